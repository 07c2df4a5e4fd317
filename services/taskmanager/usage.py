"""Memory and processor use of a process, from ``/proc``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: The share of a processor is computed over at least so many seconds: /proc counts hundredths.
LEAST_S = 0.5


class Usage:
    """The use of one process. ``now_s``: seconds of a clock that never goes back."""

    def __init__(self, pid: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._now_s = now_s
        self._before: tuple[float, float] | None = None
        self._share: float | None = None

    def read(self) -> dict[str, Any]:
        """``rss_bytes``, ``cpu_seconds``, and ``cpu_share``, the number of processors in use since the reading
        before (absent at the first one). Empty if the process has ended."""
        try:
            stat = self._stat.read_text().rpartition(")")[2].split()
        except OSError:
            return {}
        cpu_s = (int(stat[11]) + int(stat[12])) / _TICKS_PER_S
        now_s = self._now_s()
        if self._before is None:
            self._before = (now_s, cpu_s)
        elif now_s - self._before[0] >= LEAST_S:
            self._share = round((cpu_s - self._before[1]) / (now_s - self._before[0]), 3)
            self._before = (now_s, cpu_s)
        found = {"rss_bytes": int(stat[21]) * _PAGE_BYTES, "cpu_seconds": cpu_s}
        return found if self._share is None else {**found, "cpu_share": self._share}
