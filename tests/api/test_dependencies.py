"""Packages and archives that travel with a job: what the planner reads, and what a slot makes of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from penstock.api import StreamExecutionEnvironment
from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.jobgraph.dependencies import DEPENDENCIES, Archive, Dependencies, decode, entries
from penstock.plan.engine import SparkSupport, choose_engine
from penstock.runtime import dependencies
from penstock.table import EnvironmentSettings, TableEnvironment
from tests.api.wheels import NAME, make_wheel

if TYPE_CHECKING:
    from pathlib import Path


def test_the_planner_reads_what_a_program_names(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", "1.0", "ANSWER = 42\n")
    (tmp_path / "requirements.txt").write_text(f"{NAME}==1.0\n")
    (tmp_path / "a.zip").write_bytes(b"first")
    (tmp_path / "b.tar.gz").write_bytes(b"second")
    expected = Dependencies(
        f"{NAME}==1.0\n",
        {wheel.name: wheel.read_bytes()},
        (Archive("a.zip", "a.zip", b"first"), Archive("data", "b.tar.gz", b"second")),
    )
    program = StreamExecutionEnvironment({})
    program.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
    program.add_python_archive(str(tmp_path / "a.zip")).add_python_archive(str(tmp_path / "b.tar.gz"), "data")
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
    tables.add_python_archive(str(tmp_path / "a.zip"))
    tables.add_python_archive(str(tmp_path / "b.tar.gz"), "data")
    assert program.configuration["python.archives"] == tables.get_config().get("python.archives", "")
    for config in (program.configuration, {"python.requirements": tables.get_config().get("python.requirements", ""),
                                           "python.archives": tables.get_config().get("python.archives", "")}):  # fmt: skip
        data = entries(config)[DEPENDENCIES].data
        assert data is not None
        assert decode(data) == expected
    assert entries({}) == {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"python.requirements": "/no/such/file"}, "cannot be read"),
        ({"python.requirements": "{file}#/no/such/folder"}, "folder of packages"),
        ({"python.archives": "{file}"}, "no archive"),
        ({"python.archives": "{file}.zip#../above"}, "outside"),
        ({"python.archives": "{file}.zip#/tmp/elsewhere"}, "outside"),
    ],
)
def test_what_cannot_be_read_is_refused(config: dict[str, str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SpecError, match=said):
        entries({key: value.format(file=file) for key, value in config.items()})


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (b"numpy\n# f\xfcr Karten\n", "the byte 0xfc in line 2 of"),
        ("numpy\n".encode("utf-16"), "the byte 0xff in line 1 of"),
    ],
)
def test_a_requirements_file_that_is_no_utf_8_is_refused(text: bytes, got: str, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_bytes(text)
    with pytest.raises(SpecError, match="no text of UTF-8") as refused:
        entries({"python.requirements": str(file)})
    assert refused.value.got == f"{got} {file}"


def test_a_mark_before_the_text_is_no_part_of_the_first_requirement(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_bytes("numpy\n".encode("utf-8-sig"))
    data = entries({"python.requirements": str(file)})[DEPENDENCIES].data
    assert data is not None
    assert decode(data).requirements == "numpy\n"


def test_a_wheel_that_cannot_be_read_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text("broken\n")
    wheel = tmp_path / "wheels" / "broken-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"PK\x03\x04 and the connection was lost")
    config = {"python.requirements": f"{tmp_path}/requirements.txt#{wheel.parent}"}
    with pytest.raises(SpecError, match="no zip archive") as refused:
        entries(config)
    assert refused.value.got == f"{wheel}, 32 bytes"

    def denied(path: Any) -> bytes:
        if path == wheel:
            raise PermissionError(13, "Permission denied")
        return path.open("rb").read()

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)  # root may read every file
    with pytest.raises(SpecError, match="cannot be read: Permission denied") as refused:
        entries(config)
    assert refused.value.got == str(wheel)


def test_a_job_with_packages_stays_on_the_streaming_engine() -> None:
    spark = SparkSupport(None, lambda graph: None)
    asked = {"execution.engine": "auto", "python.requirements": "r.txt"}
    chosen = choose_engine(asked, bounded=True, reads_tables=True, spark=spark)
    assert (chosen.engine, chosen.reason) == (
        "streaming",
        "packages or archives come with it (python.requirements)",
    )
    with pytest.raises(UnsupportedError, match="on Spark"):
        choose_engine({**asked, "execution.engine": "spark"}, bounded=True, reads_tables=True, spark=spark)


def test_processes_share_packages_and_have_archives_of_their_own(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", "2.0", "ANSWER = 43\n")
    zipped, packed = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("n.txt", "7")
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("inner/m.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"8"))
    needed = Dependencies(
        f"{NAME}==2.0",
        {wheel.name: wheel.read_bytes()},
        (Archive("z", "z.zip", zipped.getvalue()), Archive("t", "t.tgz", packed.getvalue())),
    )
    (tmp_path / "needed").write_bytes(msgspec.msgpack.encode(needed))
    code = (
        "import sys; from pathlib import Path\n"
        "from penstock.jobgraph.dependencies import decode; from penstock.runtime.dependencies import use\n"
        "use(decode(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]), Path(sys.argv[3]))\n"
        f"import {NAME}; print({NAME}.ANSWER, open('z/n.txt').read(), open('t/inner/m.txt').read(), {NAME}.__file__)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "needed")]
    running = [
        subprocess.Popen([*command, str(tmp_path / f"slot{i}"), str(tmp_path / "shared")], stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]  # fmt: skip
    told = {process.communicate()[0].strip() for process in running}
    assert len(told) == 1, "both import the same file"
    assert told.pop().startswith("43 7 8 " + str(tmp_path / "shared"))
    assert len([p for p in (tmp_path / "shared").iterdir() if p.is_dir()]) == 1
    assert all((tmp_path / f"slot{i}" / "python-archives" / "z" / "n.txt").exists() for i in range(2))


def test_what_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(dependencies.INSTALLED, os.environ.get(dependencies.INSTALLED, ""))
    absent = Dependencies("penstock_no_such_package==1.0", {"other-1.0-py3-none-any.whl": b""})
    with pytest.raises(FunctionError, match="cannot be installed") as err:
        dependencies.use(absent, tmp_path / "slot", tmp_path / "shared")
    assert "penstock_no_such_package" in str(err.value.got)
    with pytest.raises(FunctionError, match=r"'a\.zip' cannot be unpacked"):
        dependencies.use(Dependencies("", {}, (Archive("a", "a.zip", b"torn"),)), tmp_path / "slot")
