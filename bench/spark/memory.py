"""Peak resident memory of the processes that a measurement started."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_LOOK_S = 0.1


class PeakMemory:
    """While the block runs: the peaks, in MiB, of Java, of this process and of Spark's Python
    workers together (they come and go, so their sum is sampled)."""

    def __init__(self) -> None:
        self.java_mib = self.here_mib = self.workers_mib = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        workers = 0.0
        self.here_mib = max(self.here_mib, _status_mib(Path("/proc/self"), "VmHWM"))
        for process in descendants(os.getpid()):
            try:
                if process.joinpath("comm").read_text().strip() == "java":
                    self.java_mib = max(self.java_mib, _status_mib(process, "VmHWM"))
                else:
                    workers += _status_mib(process, "VmRSS")
            except OSError:
                continue  # it ended meanwhile
        self.workers_mib = max(self.workers_mib, workers)


def descendants(pid: int) -> list[Path]:
    """``/proc`` folders of all processes below one."""
    parents: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        parents.setdefault(parent, []).append(int(process.name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += [Path("/proc") / str(p) for p in below]
        todo += below
    return found


def _status_mib(process: Path, field: str) -> float:
    for line in process.joinpath("status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0
