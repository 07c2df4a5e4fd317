"""Which children are ended, and which are not."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock.processes import children_with, end_processes

VARIABLE = "PENSTOCK_TEST_SESSION"
#: Says that it runs, so that its environment is its own already.
RUNS = "import sys; print(flush=True); sys.stdin.read()"


def started(session: str | None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **({} if session is None else {VARIABLE: session})}
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_children_are_told_apart_by_their_environment() -> None:
    one, longer, two, other = (started(x) for x in ("1", "11", "2", None))
    try:
        assert children_with(one.pid, VARIABLE) == {}, "not its children"
        assert children_with(os.getpid(), VARIABLE) == {one.pid: "1", longer.pid: "11", two.pid: "2"}
        assert end_processes([one.pid]) == [one.pid]
        one.wait()
        assert end_processes([one.pid]) == [], "it is gone"
        assert [p.poll() for p in (longer, two, other)] == [None] * 3
    finally:
        for process in (one, longer, two, other):
            process.communicate()
