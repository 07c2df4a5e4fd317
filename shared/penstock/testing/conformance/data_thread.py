"""Measures what a connector does to the data thread and to the helper thread."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.conformance.driving import Helper

#: Python lines that one call may run in the helper thread: some 5 ms of the interpreter's lock.
HELPER_LINES = 50_000
#: CPU time that the data thread may spend at a stretch.
DATA_THREAD_MS = 5.0
#: CPU time of a call in the helper thread between two turns of the data thread's loop: thousands of turns
#: pass while a call works that releases the interpreter's lock, none while one does not.
HELD_MS = 100.0
#: Passes of a measured check: it fails only when each of them fails.
_PASSES = 3

_watched: set[int] = set()
_blocking: list[str] = []
_hooked = False
#: Audit events of calls that wait; a non-blocking socket's connect is none.
_EVENTS = (
    "subprocess.Popen",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "urllib.Request",
    "sqlite3.connect",
)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _watched or threading.get_ident() not in _watched:
        return
    if event in _EVENTS or (event == "socket.connect" and args[0].gettimeout() != 0.0):
        _blocking.append(event)


_sleep = time.sleep


def _noted_sleep(seconds: Any) -> None:
    if threading.get_ident() in _watched:
        _blocking.append("time.sleep")
    _sleep(seconds)


def waits_of_this_thread() -> int:
    """How often this thread has given up the processor to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class DataThread:
    """Watches the thread of the running loop: the longest stretch of CPU time between two turns of the
    loop, and calls that wait."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self.longest_ms = 0.0
        self.blocking: list[str] = []

    async def __aenter__(self) -> DataThread:
        global _hooked
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked = True
        _blocking.clear()
        self._sleep = time.sleep
        time.sleep = _noted_sleep
        _watched.add(threading.get_ident())
        self._helper.measured = True
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        time.sleep = self._sleep
        _watched.discard(threading.get_ident())
        self._helper.measured = False
        self.blocking = list(_blocking)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tick(self) -> None:
        here = time.thread_time_ns()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time_ns()
            self.longest_ms = max(self.longest_ms, (now - here) / 1e6)
            here = now
            ident = self._helper.in_flight
            if ident is not None:
                self._helper.turn(time.clock_gettime_ns(time.pthread_getcpuclockid(ident)))

    def faults(self, remedy: str = "") -> dict[str, str]:
        """What was wrong with the use of this thread, by kind, in words."""
        wrong = {}
        if self.blocking:
            wrong["blocking"] = f"the data thread was kept waiting by {sorted(set(self.blocking))}"
        if self.longest_ms > DATA_THREAD_MS:
            wrong["long"] = (
                f"the data thread was busy for {self.longest_ms:.1f} ms of CPU time at a stretch; "
                f"at most {DATA_THREAD_MS:.0f} are allowed{remedy}"
            )
        return wrong


def helper_faults(helper: Helper) -> dict[str, str]:
    """What was wrong with the calls in the helper thread, by kind, in words."""
    wrong = {}
    if helper.most_lines > HELPER_LINES:
        wrong["lines"] = (
            f"a call in the helper thread ran {helper.most_lines} lines of Python; at most "
            f"{HELPER_LINES} are allowed, since they keep the data thread from running"
        )
    if helper.held_ms > HELD_MS:
        wrong["held"] = f"a call in the helper thread held the interpreter's lock for {helper.held_ms:.0f} ms"
    return wrong


def measured_in_passes(one_pass: Callable[[], dict[str, str]]) -> None:
    """AssertionError for what goes wrong in each of several passes; ``one_pass`` gives its faults by kind."""
    passes = [one_pass() for _ in range(_PASSES)]
    shared = set.intersection(*map(set, passes))
    assert not shared, "; ".join(passes[0][name] for name in sorted(shared))
