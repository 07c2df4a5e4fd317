import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from penstock.embedded.processes import Child, ProcessSet

SLEEP = [sys.executable, "-c", "import signal, time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def restarts():
    return []


@pytest.fixture
def processes(restarts: list):
    told = threading.Event()

    def on_restart(child: Child, status: int) -> None:
        restarts.append((child.name, status))
        told.set()

    made = ProcessSet(os.environ, on_restart)
    made.told = told
    yield made
    made.stop(())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_child_is_started_again(processes: ProcessSet, restarts: list, tmp_path: Path) -> None:
    child = Child("sleeper-0", SLEEP, tmp_path / "log")
    processes.add(child)
    first = child.pid
    os.kill(first, signal.SIGKILL)
    assert processes.told.wait(30)
    while child.starts < 2:
        threading.Event().wait(0.01)
    assert restarts == [("sleeper-0", -signal.SIGKILL)]
    assert child.pid != first
    assert alive(child.pid)


def test_stop_ends_all_even_a_stopped_one(processes: ProcessSet, tmp_path: Path) -> None:
    children = [Child(f"sleeper-{i}", SLEEP, tmp_path / f"log{i}") for i in range(2)]
    processes.add(*children)
    pids = [c.pid for c in children]
    os.kill(pids[0], signal.SIGSTOP)
    processes.stop((("sleeper",),))
    assert not any(alive(p) for p in pids)


def test_children_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = f"""
import os, sys, time
from pathlib import Path
from penstock.embedded.processes import Child, ProcessSet
p = ProcessSet(os.environ, lambda c, s: None)
c = Child("sleeper-0", {SLEEP!r}, Path({str(tmp_path / "log")!r}))
p.add(c)
print(c.pid, flush=True)
time.sleep(600)
"""
    import subprocess

    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    descriptor = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(30_000), "the child outlived its parent"
