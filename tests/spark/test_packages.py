"""What of a job's folder is sent to the executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from penstock.errors import SpecError
from penstock.spark import packages


def test_python_files_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "job"
    for name in ("main.py", "lib/rates.py", "lib/data.csv", ".git/hook.py", "env/lib/big.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x = 1\n")
    (source / "env" / "pyvenv.cfg").write_text("")
    archive = packages.zipped(source, tmp_path / "zips")
    assert archive is not None
    with zipfile.ZipFile(archive) as found:
        assert sorted(found.namelist()) == ["lib/rates.py", "main.py"]
    assert packages.zipped(source, tmp_path / "zips") == archive
    (source / "main.py").write_text("x = 2\n")
    assert packages.zipped(source, tmp_path / "zips") != archive


def test_no_code(tmp_path: Path) -> None:
    assert packages.zipped(tmp_path, tmp_path / "zips") is None


def test_a_folder_that_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MAX_BYTES", 10)
    (tmp_path / "main.py").write_text("x" * 100)
    with pytest.raises(SpecError, match="too large"):
        packages.zipped(tmp_path, tmp_path / "zips")
