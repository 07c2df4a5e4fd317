"""Processes: those that die with their parent, those whose end is waited for, those that others started.

Linux has a call for the first two. Where there is none (macOS), a thread does the same by looking
several times a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
#: Loaded here: between a fork and an exec as little as possible is done. None: no such call.
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
#: How often a process is looked for where the kernel does not tell of its end.
_LOOK_S = 0.05


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL for this process when its parent ends; exits at once if it has ended already."""
    if _prctl is None:
        threading.Thread(target=_die_after, args=(parent_pid,), name="penstock-parent", daemon=True).start()
    elif _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(1)


def _die_after(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_parent_after_exec() -> None:
    """For ``preexec_fn``: the program that is started dies with the thread that starts it. Without
    prctl no watch survives the exec: then only an orderly end of the parent ends it."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def name_process(name: str) -> None:
    """Sets the name, of at most 15 bytes, by which ``ps`` and ``top`` show this process. Without prctl it keeps the
    name of its program."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, ctypes.c_char_p(os.fsencode(name)[:15]))


def is_alive(pid: int) -> bool:
    """Whether there is such a process, ended and not reaped ones included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class ProcessHandle:
    """A process whose end can be waited for: its descriptor is readable once it has ended, so an
    event loop or ``select`` takes it. ProcessLookupError when there is no such process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            self._pidfd = self._readable = os.pidfd_open(pid)
            return
        if not is_alive(pid):
            raise ProcessLookupError(pid)
        self._readable, self._writable = os.pipe()
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._look, name=f"penstock-watch-{pid}", daemon=True)
        self._watch.start()

    def _look(self) -> None:
        while is_alive(self.pid) and not self._closed.wait(_LOOK_S):
            pass
        os.close(self._writable)  # the end of the pipe: readable

    def fileno(self) -> int:
        return self._readable

    def kill(self) -> None:
        """SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Sends a signal, if the process has not ended. By its descriptor where there is one: the number may be
        another process's by now."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Stop watching."""
        if self._pidfd is None:
            self._closed.set()
            self._watch.join()
        os.close(self._readable)


def children_with(parent: int, variable: str) -> dict[int, str]:
    """Id → value of ``variable``, of each child of ``parent`` whose environment has it. Processes
    that end meanwhile, or are not ours to look into, are passed over."""
    begin, found = f"{variable}=".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything; the parent is the second field behind it.
            if int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1]) != parent:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        values = [entry.removeprefix(begin) for entry in environment if entry.startswith(begin)]
        if values:
            found[int(folder.name)] = os.fsdecode(values[0])
    return found


def end_processes(pids: Iterable[int]) -> list[int]:
    """SIGTERM to each that is still there. Their ids."""
    ended = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            ended.append(pid)
    return ended
