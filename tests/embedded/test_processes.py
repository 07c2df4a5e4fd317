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


def service(role: str, folder: Path, *arguments: str, restart: bool = True) -> Child:
    """A service that waits for a NATS that is not there."""
    argv = [sys.executable, "-P", "-m", f"penstock_services.{role}", *arguments]
    return Child(f"{role}-0", argv, folder / f"{role}.log", restart=restart)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_services_are_forked_from_one_template_and_outlive_its_end(tmp_path: Path) -> None:
    restarts: list[tuple[str, int]] = []
    processes = ProcessSet(os.environ, lambda c, s: restarts.append((c.name, s)), tmp_path / "template.log")
    away = ("-Dnats.url=nats://127.0.0.1:1",)

    def wait_for_starts(number: int) -> None:
        for _ in range(6000):
            if all(c.starts == number and alive(c.pid) for c in children[: 2 if number == 3 else 1]):
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"not started again: {restarts}, {[(c.name, c.starts) for c in children]}")

    try:
        children = [service("resourcemanager", tmp_path, *away), service("jobmanager", tmp_path, *away)]
        processes.add(*children)
        template = parent_of(children[0].pid)
        assert parent_of(children[1].pid) == template
        assert parent_of(template) == os.getpid()
        assert os.getpgid(0) not in [os.getpgid(c.pid) for c in children]  # Ctrl-C does not reach them

        # One that is killed is forked again from the same template.
        first = children[0].pid
        os.kill(first, signal.SIGKILL)
        wait_for_starts(2)
        assert restarts == [("resourcemanager-0", -signal.SIGKILL)]
        assert parent_of(children[0].pid) == template

        # A template that is killed takes its services with it; all are forked again from another.
        children[1].starts += 1
        os.kill(template, signal.SIGKILL)
        wait_for_starts(3)
        assert sorted(restarts[1:]) == [("jobmanager-0", -9), ("resourcemanager-0", -9)]
        another = parent_of(children[0].pid)
        assert another != template
        assert parent_of(children[1].pid) == another

        # The exit code and the last words of a service are its own.
        wrong = service("dispatcher", tmp_path, "--nonsense", restart=False)
        processes.add(wrong)
        assert wrong.process.wait(60) not in (None, 0)
        assert "nonsense" in wrong.tail()
    finally:
        processes.stop(())
    assert not any(alive(pid) for pid in (another, *(c.pid for c in children)))
