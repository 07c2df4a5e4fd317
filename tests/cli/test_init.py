"""``penstock init``: the project that it makes runs, and so does its test."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cli.new_project import new_project
from penstock.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_test_of_a_new_project_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "words"
    new_project(str(folder))
    assert "penstock run job.py" in capsys.readouterr().out
    assert 'name = "words"' in (folder / "pyproject.toml").read_text()
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("mine")
    with pytest.raises(SpecError, match="has these files already"):
        new_project(str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["job.py"]


def test_other_files_stay_and_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "data").mkdir()
    new_project(str(tmp_path))
    said = capsys.readouterr().out
    assert "is not empty: 2 files and folders stay as before; job.py, test_job.py" in said
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.cluster
def test_the_job_of_a_new_project_runs(tmp_path: Path) -> None:
    new_project(str(tmp_path / "words"))
    run = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "job.py"],
        cwd=tmp_path / "words", capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "+I[to,2]" in run.stdout + run.stderr
