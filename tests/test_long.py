"""What `make test-long` repeats is there, and so is what proves the same in `make test`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.long import PROVED, is_long

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def test_a_case_and_all_cases_of_a_test() -> None:
    one, whole = next(x for x in PROVED if "[" in x), next(x for x in PROVED if "[" not in x)
    assert is_long(one)
    assert not is_long(f"{one.partition('[')[0]}[another]")
    assert is_long(whole)
    assert is_long(f"{whole}[any]")
    assert not is_long(f"{whole}_more")


def test_what_proves_a_long_test_is_not_long() -> None:
    assert [proof for proof in PROVED.values() if is_long(proof)] == []


@pytest.mark.long
def test_every_name_is_a_test() -> None:
    """Collecting takes seconds; a name that is no test's would only leave its test in `make test`."""
    names = {*PROVED, *PROVED.values()}
    files = sorted({name.partition("::")[0] for name in names})
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    told = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    there = set(told.stdout.splitlines())
    there |= {line.partition("[")[0] for line in there}
    assert sorted(names - there) == []
