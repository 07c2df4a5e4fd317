"""What the process really takes, beside what the operators count of it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.state.allocators import release_memory

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: One part in so many of the limit may always be counted: a process whose memory is taken by something else than
#: state would have all its state on the disk, and be no smaller.
_LEAST_SHARE = 4
#: The process is held near this share of the limit, for some of what it holds comes and goes; below ``_ROOM`` of
#: that it has room again.
_HELD, _ROOM = 0.875, 0.9
#: When it holds too much, so much less than would do is allowed, so that it does not happen with every batch.
_LESS = 0.95
#: What is counted by so much more than may be is still on its way out.
_NEAR = 1.1
#: What may be counted at first, as a share of the limit: what is given up stays in memory for a while, so the first
#: of it must go before the process is full.
_FIRST = 0.625
#: What may be counted grows by one part in so many of the limit at once.
_STEP = 1024


def private_bytes() -> int | None:
    """Resident memory of this process that is not mapped from files; None where /proc does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return None
    return (int(resident) - int(shared)) * _PAGE_BYTES


def rss_bytes() -> int:
    """Resident memory of this process, the template's shared pages included; the highest so far where /proc does
    not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return highest if sys.platform == "darwin" else highest * 1024
    return pages * _PAGE_BYTES


class ProcessMemory:
    """How many bytes of state a process may count, so that it grows by about ``limit_bytes``.

    Operators count the rows that they hold. The process also holds what they gave up and what the allocators
    have not given back, copies for a snapshot, batches on their way, and LevelDB's buffers. Where all that
    together is more than the limit, so much less may be counted; where it is less, the limit itself.

    ``private``: bytes of memory that this process has alone (by default, as the system tells them). What it
    has when this is made does not count.
    """

    def __init__(self, limit_bytes: int, private: Callable[[], int | None] = private_bytes) -> None:
        self._limit = limit_bytes
        self._least = limit_bytes // _LEAST_SHARE
        self._private = private
        self._before = private()
        self._allowed = int(_FIRST * limit_bytes)

    def allowed(self, counted: int) -> int:
        """Bytes that may be counted now, when ``counted`` are."""
        if self._before is None:
            return self._limit
        if counted <= self._least:
            return self._allowed
        if counted > self._allowed * _NEAR:
            return self._allowed  # What was asked for last has not gone yet.
        held = _HELD * self._limit
        grown = self._grown()
        if grown > held and self._allowed > self._least:
            release_memory()
            grown = self._grown()
            if grown > held:
                self._allowed = max(self._least, int(_LESS * min(counted, self._allowed) * held / grown))
        elif grown < _ROOM * held:
            self._allowed = min(self._limit, self._allowed + self._limit // _STEP)
        return self._allowed

    def relieve(self) -> None:
        """Gives free memory back to the system, if the process holds too much."""
        if self._before is not None and self._grown() > _HELD * self._limit:
            release_memory()

    def _grown(self) -> int:
        return (self._private() or 0) - (self._before or 0)
