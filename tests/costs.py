"""At the end a run says how much CPU time it took, and which files took most of it, so that growth is seen.

CPU time, and not the clock: tests run side by side, and wait for each other on a busy machine. Processes that a test
starts count with it, and those that live on (a server or a Spark of the session) with the file that makes them work.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The name of what a worker spends before its first test.
COLLECTING = "collecting tests"
#: Files that are named.
_SHOWN = 10
#: Where /proc/<pid>/stat has the parent, and the times of the process and of its children that have ended, behind the
#: name in brackets.
_PARENT, _TIMES = 1, slice(11, 15)


def with_descendants(pid: int, proc: Path = Path("/proc")) -> float:
    """Seconds of CPU time of a process and all that it started; 0 where the system does not tell."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc) if proc.is_dir() else ():
        if not name.isdigit():
            continue
        try:
            fields = (proc / name / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks[int(name)] = sum(map(int, fields[_TIMES]))
        children.setdefault(int(fields[_PARENT]), []).append(int(name))
    found, look = 0, [pid]
    while look:
        one = look.pop()
        found += ticks.get(one, 0)
        look += children.get(one, ())
    return found / os.sysconf("SC_CLK_TCK")


def lines(costs: Mapping[str, float], shown: int = _SHOWN) -> Iterator[str]:
    """The sum and the dearest, a line each."""
    yield f"CPU time of all: {sum(costs.values()):,.0f} s; of the {shown} dearest files:"
    for name, cost in Counter(costs).most_common(shown):
        yield f"{cost:8.1f} s  {name}"


class Costs:
    """The plugin: counts in the process that runs tests, and tells in the one that reports."""

    def __init__(self) -> None:
        self.by_file: Counter[str] = Counter()
        self._seen = 0.0

    def count(self, name: str) -> None:
        """What was spent since the last call was spent for ``name``."""
        now = with_descendants(os.getpid())
        # A process whose parent was killed is no longer below us: less than before is nothing.
        self.by_file[name] += max(0.0, now - self._seen)
        self._seen = now

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.count(COLLECTING)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:  # one look a file: a look takes milliseconds
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self.count(item.nodeid.partition("::")[0])
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["cpu"] = dict(self.by_file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", None) or {}  # a worker that crashed tells nothing
        self.by_file.update(output.get("cpu", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self.by_file.values()) >= 1:
            terminalreporter.section("CPU time")
            for line in lines(self.by_file):
                terminalreporter.line(line)
