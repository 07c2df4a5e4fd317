"""The CPU time that a run of tests tells."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.costs import lines, with_descendants

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SPENDS = "import time\nwhile time.process_time() < {}: pass\n"
_TESTS = f"""
import subprocess, sys
def test_it(): subprocess.run([sys.executable, "-c", {_SPENDS.format(0.6)!r}], check=True)
"""


def test_a_process_its_children_and_those_that_ended_count(tmp_path: Path) -> None:
    # The name of a program may hold brackets and blanks.
    for pid, parent, times in (
        (7, 1, "100 20 3 0"),
        (8, 7, "1000 0 0 0"),
        (9, 8, "0 0 0 5"),
        (5, 1, "9 9 9 9"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(
            f"{pid} (a ) b) S {parent} 3 4 5 6 7 8 9 10 11 {times} 16 17"
        )
    (tmp_path / "self").mkdir()
    assert with_descendants(7, tmp_path) == 1128 / os.sysconf("SC_CLK_TCK")
    assert with_descendants(7, tmp_path / "absent") == 0


def test_the_dearest_are_named_first() -> None:
    told = list(lines({"a": 1.0, "b": 1000.04, "c": 3.0}, shown=2))
    assert told == ["CPU time of all: 1,004 s; of the 2 dearest files:", "  1000.0 s  b", "     3.0 s  c"]


def test_a_run_with_workers_tells_it(tmp_path: Path) -> None:
    (tmp_path / "test_dear.py").write_text(_TESTS)
    (tmp_path / "test_cheap.py").write_text("def test_it(): pass\n")
    (tmp_path / "conftest.py").write_text(
        "from tests.costs import Costs\ndef pytest_configure(config): config.pluginmanager.register(Costs())\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"} | {"PYTHONPATH": ROOT}
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
        str(tmp_path),
    ]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.partition("CPU time of all: ")[2]
    by_name = {line.split()[2]: float(line.split()[0]) for line in told.splitlines() if line.endswith(".py")}
    assert by_name["test_dear.py"] >= 0.6, done.stdout
    assert by_name["test_dear.py"] > by_name["test_cheap.py"], done.stdout
