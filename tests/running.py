"""When the tests are told to end (SIGTERM), the run says which test each worker runs, and where it stands.

A run that a time limit ends has no other word on what hung. pytest's ``faulthandler_timeout`` writes the stacks of one
test that takes very long; this module covers what lies outside of a test, and a limit that comes sooner.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import FrameType

#: Seconds for the workers to write their stacks, after they have been asked.
_STACKS_S = 1.0


class Running:
    """The plugin of pytest-xdist's controller: which tests have begun and not ended."""

    def __init__(self, config: pytest.Config, out: int) -> None:
        self._config = config
        self._out = out
        self._began: dict[str, float] = {}
        self._pids: dict[str, int] = {}
        self._before: Any = signal.signal(signal.SIGTERM, self._told_to_end)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        self._pids[gateway.id] = gateway._rinfo().pid  # pytest-xdist asks for it at the same moment

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._pids.pop(node.gateway.id, None)

    def pytest_unconfigure(self) -> None:
        signal.signal(signal.SIGTERM, self._before)
        os.close(self._out)

    def lines(self) -> list[str]:
        """What each worker does, a line a worker."""
        sched = getattr(self._config.pluginmanager.getplugin("dsession"), "sched", None)
        now = time.monotonic()
        found = []
        for node, units in getattr(sched, "assigned_work", {}).items():
            left = [nodeid for unit in units.values() for nodeid, done in unit.items() if not done]
            runs = [
                f"{nodeid} for {now - self._began[nodeid]:.0f} s" for nodeid in left if nodeid in self._began
            ]
            found.append(
                f"{node.gateway.id} (process {self._pids.get(node.gateway.id)}) runs {', '.join(runs) or 'no test'}; "
                f"{len(left)} of its tests have not ended"
            )
        return found

    def _told_to_end(self, number: int, _frame: FrameType | None) -> None:
        text = "\n".join(["", "The tests are told to end (SIGTERM).", *self.lines(), ""])
        os.write(self._out, text.encode())
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(_STACKS_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def watch(config: pytest.Config) -> None:
    """To be called when pytest is configured, in the controller and in each worker: output is not captured yet."""
    if hasattr(config, "workerinput"):
        assert sys.__stderr__ is not None
        faulthandler.register(signal.SIGUSR1, file=os.dup(sys.__stderr__.fileno()), all_threads=True)
    elif config.getoption("numprocesses", None):
        assert sys.__stderr__ is not None
        config.pluginmanager.register(Running(config, os.dup(sys.__stderr__.fileno())), "penstock-running")
