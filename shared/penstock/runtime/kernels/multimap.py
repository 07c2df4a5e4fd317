"""Slot → many entries, probed for a whole batch at once.

Entries lie in a few runs sorted by slot, older ones longer; four of about one length become
one. Long runs carry an index from slot to start. So adding costs O(log n) moves an entry in all,
and expanding a probe never walks a chain, however many entries a hot key has. Removed
entries are skipped, and dropped when runs are merged. What is added waits unsorted until
something is looked for: much of a join's state never is.
"""

from __future__ import annotations

import numpy as np

from penstock.runtime.kernels.sorting import stable_argsort
from penstock.runtime.kernels.store import grown

#: Runs at least this long get a start index by slot.
_INDEXED = 4096
#: Runs of one length that are merged together.
_FAN = 4


class _Run:
    __slots__ = ("entries", "slots", "stamps", "starts")

    def __init__(self, slots: np.ndarray, entries: np.ndarray, stamps: np.ndarray) -> None:
        self.slots, self.entries, self.stamps = slots, entries, stamps
        self.starts: np.ndarray | None = None
        high = int(slots[-1]) + 1 if len(slots) else 0
        if len(slots) >= _INDEXED and high <= 8 * len(slots):
            self.starts = np.concatenate(([0], np.cumsum(np.bincount(slots, minlength=high))))

    def bounds(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.starts is None:
            return np.searchsorted(self.slots, slots), np.searchsorted(self.slots, slots, "right")
        last = len(self.starts) - 1
        return self.starts[np.minimum(slots, last)], self.starts[np.minimum(slots + 1, last)]


class MultiMap:
    """Entries are whole numbers, each in the map at most once at a time."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # slots, entries, stamps
        # When each entry was added (0: not in the map). A number that was freed and came
        # back has another stamp than the stale items it left in older runs.
        self._stamps = np.zeros(1024, np.int64)
        self._next_stamp = 1
        self._dead = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size - self._dead

    @property
    def nbytes(self) -> int:
        runs = sum(r.slots.nbytes + r.entries.nbytes for r in self._runs)
        return self._stamps.nbytes + runs + sum(3 * slots.nbytes for slots, _, _ in self._waiting)

    def add(self, slots: np.ndarray, entries: np.ndarray) -> None:
        """Put entries (new to the map) under slots, in order."""
        if not len(slots):
            return
        n = len(slots)
        stamps = np.arange(self._next_stamp, self._next_stamp + n)
        self._next_stamp += n
        self._stamps = grown(self._stamps, int(entries.max()) + 1, 0)
        self._stamps[entries] = stamps
        self._waiting.append((slots, entries, stamps))
        self._size += n

    def remove(self, entries: np.ndarray) -> None:
        """Take entries out. Their numbers may be used again after this returns."""
        if not len(entries):
            return
        self._stamps[entries] = 0
        self._dead += len(entries)
        if 2 * self._dead > self._size:
            self._rebuild()

    def probe(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All (probe row, entry) pairs, by probe row, then in order of insertion. Slot -1
        finds nothing."""
        rows_of, entries_of = [], []
        for run in self._sorted():
            low, high = run.bounds(np.maximum(slots, 0))
            counts = np.where(slots < 0, 0, high - low)
            total = int(counts.sum())
            if not total:
                continue
            rows = np.repeat(np.arange(len(slots)), counts)
            shift = np.cumsum(counts) - counts
            at = np.arange(total) + np.repeat(low - shift, counts)
            entries = run.entries[at]
            if self._dead:
                live = self._stamps[entries] == run.stamps[at]
                rows, entries = rows[live], entries[live]
            rows_of.append(rows)
            entries_of.append(entries)
        if not rows_of:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if len(rows_of) == 1:
            return rows_of[0], entries_of[0]
        rows, entries = np.concatenate(rows_of), np.concatenate(entries_of)
        order = stable_argsort(rows)
        return rows[order], entries[order]

    def counts(self, slots: np.ndarray) -> np.ndarray:
        """At most how many entries each probe row will find (dead ones may be counted)."""
        out = np.zeros(len(slots), np.int64)
        for run in self._sorted():
            low, high = run.bounds(np.maximum(slots, 0))
            out += np.where(slots < 0, 0, high - low)
        return out

    def _merge_tail(self) -> None:
        runs = self._runs
        while len(runs) >= _FAN and len(runs[-_FAN].slots) < _FAN * len(runs[-1].slots):
            self._join_last(_FAN)

    def _rebuild(self) -> None:
        runs = self._sorted()
        if runs:  # sorting may have merged runs of nothing but removed entries away
            self._join_last(len(runs))

    def _sorted(self) -> list[_Run]:
        """The runs, with everything that waited."""
        if self._waiting:
            slots, entries, stamps = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
            self._waiting = []
            order = stable_argsort(slots)
            self._runs.append(_Run(slots[order], entries[order], stamps[order]))
            self._merge_tail()
        return self._runs

    def _join_last(self, n: int) -> None:
        runs = self._runs[-n:]
        slots = np.concatenate([r.slots for r in runs])
        entries = np.concatenate([r.entries for r in runs])
        stamps = np.concatenate([r.stamps for r in runs])
        live = self._stamps[entries] == stamps
        if not live.all():
            slots, entries, stamps = slots[live], entries[live], stamps[live]
            removed = len(live) - len(slots)
            self._dead -= removed
            self._size -= removed
        order = stable_argsort(slots)
        kept = [_Run(slots[order], entries[order], stamps[order])] if len(slots) else []
        self._runs[-n:] = kept
