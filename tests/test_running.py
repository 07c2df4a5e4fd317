"""A run of tests that is told to end says what hung."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TESTS = """
import time
def test_quick(): pass
def test_hanging():
    while True:
        time.sleep(0.1)
def test_behind_it(): pass
"""


def test_the_hanging_test_and_its_stack_are_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text("from tests.running import watch\npytest_configure = watch\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout = 1\nasyncio_default_fixture_loop_scope = function\n"
    )
    out = tmp_path / "out"
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "test_it.py",
    ]
    # Options for the run that this test is part of are none of the run that it starts.
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"} | {"PYTHONPATH": ROOT}
    with out.open("wb") as to:
        process = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=to, stderr=to)
    try:
        end = time.monotonic() + 120
        while "Timeout (0:00:01)!" not in out.read_text():  # faulthandler's word, from the worker
            assert process.poll() is None, out.read_text()
            assert time.monotonic() < end, out.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    before, _, after = out.read_text().partition("The tests are told to end (SIGTERM).")
    assert "in test_hanging" in before
    assert "runs test_it.py::test_hanging for " in after
    assert "2 of its tests have not ended" in after
    assert "in test_hanging" in after.partition("have not ended")[2]  # the stacks, as they are now
