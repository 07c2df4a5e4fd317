"""Which children are ended and which are not; ends that are noticed, with the kernel's calls and without."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

import penstock.processes
from penstock.processes import ProcessHandle, children_with, end_processes, is_alive

VARIABLE = "PENSTOCK_TEST_SESSION"
#: Says that it runs, so that its environment is its own already.
RUNS = "import sys; print(flush=True); sys.stdin.read()"


def readable(handle: ProcessHandle, timeout_ms: int | None = None) -> bool:
    """Whether its process has ended, within the time (None: however long it takes)."""
    poll = select.poll()  # unlike select.select, it takes descriptors above 1,023
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(timeout_ms))


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


@pytest.fixture(params=["as Linux tells", "as elsewhere"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "as elsewhere":
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.setattr(penstock.processes, "_prctl", None)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfd_open")
    return str(request.param)


def test_the_end_of_a_process_makes_its_handle_readable(kernel: str) -> None:
    process = started("1")
    handle = ProcessHandle(process.pid)
    try:
        assert not readable(handle, 0)
        handle.kill()
        process.wait()
        assert readable(handle)
        handle.kill()  # nothing, and nobody else
        assert not is_alive(process.pid)
        with pytest.raises(ProcessLookupError):
            ProcessHandle(process.pid)
    finally:
        handle.close()
        process.communicate()


def test_a_handle_is_closed_while_its_process_runs(kernel: str) -> None:
    process = started("1")
    handle = ProcessHandle(process.pid)
    handle.close()
    assert process.poll() is None
    process.kill()
    process.communicate()


#: Its child says its id, and waits for ever; the argument says whether the kernel knows prctl.
PARENT = r"""
import os, subprocess, sys
child = (
    "import os, sys, threading, penstock.processes as p\n"
    "if sys.argv[1] == 'without': p._prctl = None\n"
    "p.die_with_parent(int(sys.argv[2])); print(os.getpid(), flush=True); threading.Event().wait()"
)
subprocess.Popen([sys.executable, "-c", child, sys.argv[1], str(os.getpid())]).wait()
"""


@pytest.mark.parametrize("prctl", ["with", "without"])
def test_a_process_dies_with_its_parent(prctl: str) -> None:
    if prctl == "with" and penstock.processes._prctl is None:
        pytest.skip("this system has no prctl")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, prctl], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = ProcessHandle(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert readable(child)
    child.close()
    parent.stdout.close()


def test_a_program_is_started_where_the_kernel_has_no_prctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock.processes, "_prctl", None)
    started_with = penstock.processes.die_with_parent_after_exec
    assert subprocess.run([sys.executable, "-c", ""], preexec_fn=started_with).returncode == 0
