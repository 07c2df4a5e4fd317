"""CPU time of the processes that a benchmark has started."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_SAMPLE_S = 0.05
_TICK = os.sysconf("SC_CLK_TCK")


class Tree(threading.Thread):
    """CPU seconds of this process' descendants but for ``others`` and theirs, sampled all the time, so that those of processes
    that end are kept."""

    def __init__(self, others: set[int]) -> None:
        super().__init__(daemon=True)
        self._others = others
        self._used: dict[int, float] = {}
        self._names: dict[int, str] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._sample()

    def stop(self) -> float:
        """Returns the CPU seconds since the start."""
        self._ended.set()
        self.join()
        self._sample()
        return sum(self._used.values()) - sum(self._before.values())

    def by_name(self) -> dict[str, float]:
        """CPU seconds of the processes that took the most, by their titles."""
        found = {f"{self._names[p]}:{p}": used - self._before.get(p, 0.0) for p, used in self._used.items()}
        return {
            name: round(used, 1) for name, used in sorted(found.items(), key=lambda x: -x[1]) if used > 0.2
        }

    def start(self) -> None:
        self._sample()
        self._before = dict(self._used)
        super().start()

    def _sample(self) -> None:
        parents, used = {}, {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
                except OSError:  # it has ended
                    continue
                parents[int(entry)] = int(fields[1])
                used[int(entry)] = (int(fields[11]) + int(fields[12])) / _TICK
        mine = {os.getpid()}
        found = {0}
        while found:
            found = {p for p, parent in parents.items() if parent in mine} - mine - self._others
            mine |= found
        self._used |= {p: used[p] for p in mine - {os.getpid()}}
        for p in mine - set(self._names):
            with suppress(OSError):  # it has ended
                words = Path(f"/proc/{p}/cmdline").read_text().split("\0")
                self._names[p] = " ".join(words[:6])[-60:]
