"""What ``penstock run`` takes for the job, and what for the module of its functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.run import job_file
from penstock.errors import SpecError

SQL, PY, YAML = Path("job.sql"), Path("f.py"), Path("job.yaml")


@pytest.mark.parametrize(
    ("file", "python", "want"),
    [(SQL, None, (SQL, None)), (SQL, PY, (SQL, PY)), (PY, None, (PY, None)), (None, PY, (PY, None))],
)
def test_file_and_module(file: Path | None, python: Path | None, want: tuple[Path, Path | None]) -> None:
    assert job_file(file, python) == want


@pytest.mark.parametrize(
    ("file", "python", "remedy"),
    [(None, None, "name a job"), (YAML, PY, "leave it out"), (PY, PY, "imports")],
)
def test_refused(file: Path | None, python: Path | None, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        job_file(file, python)
    error = refused.value
    assert error.expected
    assert error.got
    assert remedy in (error.remedy or "")
