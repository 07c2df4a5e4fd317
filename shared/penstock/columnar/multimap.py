"""Slot → many entries, probed for a whole batch at once.

Entries lie in a few runs sorted by slot; older runs are longer. Four runs of similar length are merged into
one. A long run has an index from slot to start. So an entry is moved O(log n) times in all, and a probe walks
no chain, however many entries a hot key has. Removed entries are skipped, and dropped when runs are merged.
Added entries stay unsorted until the next probe, because much of a join's state is never probed.
"""

from __future__ import annotations

import numpy as np

from penstock.columnar.sorting import stable_argsort
from penstock.columnar.store import grown

#: Runs at least this long get a start index by slot.
_INDEXED = 4096
#: Runs of one length that are merged together.
_FAN = 4
_FIRST_STAMP = 1


class _Run:
    """Entries sorted by slot, with the stamp of each (None: all were added before the first removal)."""

    __slots__ = ("entries", "slots", "stamps", "starts")

    def __init__(self, slots: np.ndarray, entries: np.ndarray, stamps: np.ndarray | None) -> None:
        self.slots, self.entries, self.stamps = slots, entries, stamps
        self.starts: np.ndarray | None = None
        high = int(slots[-1]) + 1 if len(slots) else 0
        if len(slots) >= _INDEXED and high <= 8 * len(slots):
            self.starts = np.concatenate(([0], np.cumsum(np.bincount(slots, minlength=high))))

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        parts = (self.slots, self.entries, self.stamps, self.starts)
        return sum(x.nbytes for x in parts if x is not None)

    def bounds(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, number of entries) of each of these int32 slots, which must not be negative."""
        if self.starts is None:
            low = np.searchsorted(self.slots, slots)
            return low, np.searchsorted(self.slots, slots, "right") - low
        last = len(self.starts) - 1
        low = self.starts[np.minimum(slots, last)]
        return low, self.starts[np.minimum(slots + 1, last)] - low


class Found:
    """The result of a probe before it is expanded to pairs. It is valid until the map changes.

    ``counts`` (int64) is an upper bound of the entries of each probe row: removed entries may be counted.
    """

    __slots__ = ("_map", "_parts", "counts")

    def __init__(self, map_: MultiMap, parts: list[tuple[_Run, np.ndarray, np.ndarray]], n: int) -> None:
        self._map, self._parts = map_, parts
        self.counts = sum((counts for _, _, counts in parts), np.zeros(n, np.int64))

    def pairs(self, part: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """All (probe row, entry) pairs of a slice of the probe rows, both int64.

        Probe rows are numbered from the start of the slice. Pairs are ordered by probe row, then by insertion.
        """
        rows_of, entries_of = [], []
        for run, all_low, all_counts in self._parts:
            low, counts = all_low[part], all_counts[part]
            total = int(counts.sum())
            if not total:
                continue
            rows = np.repeat(np.arange(len(counts)), counts)
            shift = np.cumsum(counts) - counts
            at = np.arange(total) + np.repeat(low - shift, counts)
            rows, entries = self._map.standing(run, rows, at)
            rows_of.append(rows)
            entries_of.append(entries)
        if not rows_of:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if len(rows_of) == 1:
            return rows_of[0], entries_of[0]
        rows, entries = np.concatenate(rows_of), np.concatenate(entries_of)
        order = stable_argsort(rows)
        return rows[order], entries[order]


class MultiMap:
    """Maps a slot to many entries: whole numbers, each of them at most once in the map at a time."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []  # slots, entries, stamps
        # The stamp of each entry: the order of its addition (0: not in the map). An entry that was removed
        # and added again has another stamp than its stale items in older runs. None until the first
        # removal, at which all entries of the map get the first stamp.
        self._stamps: np.ndarray | None = None
        self._next_stamp = _FIRST_STAMP + 1
        self._high = 0
        self._dead = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size - self._dead

    @property
    def nbytes(self) -> int:
        """Allocated bytes, removed entries included."""
        own = 0 if self._stamps is None else self._stamps.nbytes
        waiting = sum(x.nbytes for part in self._waiting for x in part if x is not None)
        return own + waiting + sum(r.nbytes for r in self._runs)

    @property
    def live_bytes(self) -> int:
        """Bytes of the entries in the map: ``nbytes`` without removed entries."""
        each = 12 if self._stamps is None else 28
        return each * len(self) + sum(0 if r.starts is None else r.starts.nbytes for r in self._runs)

    def add(self, slots: np.ndarray, entries: np.ndarray) -> None:
        """Add ``entries[i]`` under ``slots[i]``, in order. No entry may be in the map already."""
        n = len(slots)
        if not n:
            return
        stamps = None
        self._high = max(self._high, int(entries.max()) + 1)
        if self._stamps is not None:
            stamps = np.arange(self._next_stamp, self._next_stamp + n)
            self._next_stamp += n
            self._stamps = grown(self._stamps, self._high, 0)
            self._stamps[entries] = stamps
        self._waiting.append((slots.astype(np.int32), entries, stamps))
        self._size += n

    def remove(self, entries: np.ndarray) -> None:
        """Remove entries that are in the map, each once. The caller may add the same numbers again."""
        if not len(entries):
            return
        if self._stamps is None:
            self._stamps = np.full(max(self._high, 1024), _FIRST_STAMP, np.int64)
        self._stamps[entries] = 0
        self._dead += len(entries)
        if 2 * self._dead > self._size:
            self._rebuild()

    def probe(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All (probe row, entry) pairs, both int64, by probe row, then by insertion. Slot -1 has no entries."""
        return self.find(slots).pairs()

    def counts(self, slots: np.ndarray) -> np.ndarray:
        """An upper bound (int64) of the entries of each slot: removed entries may be counted."""
        return self.find(slots).counts

    def find(self, slots: np.ndarray) -> Found:
        """``probe`` in two steps: the result has upper bounds at once, and expands to pairs on request."""
        n, parts = len(slots), []
        slots = slots.astype(np.int32)
        nothing = np.flatnonzero(slots < 0)
        if len(nothing):
            slots[nothing] = 0
        for run in self._sorted():
            low, counts = run.bounds(slots)
            if len(nothing):
                counts[nothing] = 0
            if counts.any():
                parts.append((run, low, counts))
        return Found(self, parts, n)

    def standing(self, run: _Run, rows: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, entries) of those of the run's items ``at`` that were not removed."""
        entries = run.entries[at]
        if self._dead:
            live = self._stamped(entries, run.stamps, at)
            return rows[live], entries[live]
        return rows, entries

    def _merge_tail(self) -> None:
        runs = self._runs
        while len(runs) >= _FAN and len(runs[-_FAN].slots) < _FAN * len(runs[-1].slots):
            self._join_last(_FAN)

    def _rebuild(self) -> None:
        runs = self._sorted()
        if runs:  # no run is left if all entries were removed
            self._join_last(len(runs))

    def _stamped(
        self, entries: np.ndarray, stamps: np.ndarray | None, at: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """Boolean mask of the items whose entries still have the stamps with which they were added."""
        assert self._stamps is not None
        return self._stamps[entries] == (_FIRST_STAMP if stamps is None else stamps[at])

    def _sorted(self) -> list[_Run]:
        """The runs, with all waiting entries sorted into them."""
        if self._waiting:
            self._runs.append(self._run_of(self._waiting))
            self._waiting = []
            self._merge_tail()
        return self._runs

    def _join_last(self, n: int) -> None:
        parts = []
        for run in self._runs[-n:]:
            slots, entries, stamps = run.slots, run.entries, run.stamps
            if self._dead:
                live = self._stamped(entries, stamps)
                removed = len(live) - int(live.sum())
                if removed:
                    slots, entries = slots[live], entries[live]
                    stamps = None if stamps is None else stamps[live]
                    self._dead -= removed
                    self._size -= removed
            parts.append((slots, entries, stamps))
        merged = self._run_of(parts)
        self._runs[-n:] = [merged] if len(merged.slots) else []

    @staticmethod
    def _run_of(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]) -> _Run:
        """One sorted run of all (slots, entries, stamps) parts; entries of one slot keep their order."""
        slots = np.concatenate([p[0] for p in parts])
        entries = np.concatenate([p[1] for p in parts])
        order = stable_argsort(slots)
        stamps = None
        if any(p[2] is not None for p in parts):
            given = [np.full(len(p[0]), _FIRST_STAMP) if p[2] is None else p[2] for p in parts]
            stamps = np.concatenate(given)[order]
        return _Run(slots[order], entries[order], stamps)
