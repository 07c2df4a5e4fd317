"""Measures how a connector uses the data thread and the helper thread."""

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

#: The number of Python lines that one call may run in the helper thread: they hold the interpreter's lock for
#: about 5 ms.
HELPER_LINES = 50_000
#: CPU time that the data thread may spend without a break, in ms.
DATA_THREAD_MS = 5.0
#: CPU time that a call in the helper thread may spend between two turns of the data thread's loop, in ms. A
#: call that releases the interpreter's lock lets thousands of turns pass; a call that holds it lets none
#: pass.
HELD_MS = 100.0
#: The number of passes of a measured check, which fails only when every pass fails.
_PASSES = 3

_watched: set[int] = set()
_blocking: list[str] = []
_hooked = False
#: Audit events of calls that wait. The connect of a non-blocking socket does not wait.
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
    """Watches the thread of the running loop. Records the longest CPU time between two turns of the loop, and
    calls that wait."""

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
        """Faults in the use of this thread: kind → description."""
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
    """Faults of the calls in the helper thread: kind → description."""
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
    """Raises AssertionError for a fault that occurs in every pass. ``one_pass``: runs a pass and returns its
    faults by kind."""
    passes = [one_pass() for _ in range(_PASSES)]
    shared = set.intersection(*map(set, passes))
    assert not shared, "; ".join(passes[0][name] for name in sorted(shared))
