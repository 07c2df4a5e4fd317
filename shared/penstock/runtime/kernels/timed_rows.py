"""Rows by key and time: the state of one side of a time-bounded join.

Rows are kept under (key slot, time bucket), so that a probe for a stretch of time reads
two buckets of its key and not the key's whole history; and in a calendar, so that expiry
touches only what is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.kernels.grouping import distinct
from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.late_rows import LateRows
from penstock.runtime.kernels.multimap import MultiMap
from penstock.runtime.kernels.store import grown
from penstock.runtime.state.tables import SlotChanges
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.runtime.state.epochs import Epochs
    from penstock.types.column import Column

_BUCKET_BITS = 24
_BUCKET_MASK = (1 << _BUCKET_BITS) - 1


class TimedRows:
    """``span_us``: the length of time that a probe asks for. ``changes``: the rows' changes,
    by entry."""

    def __init__(self, types: Sequence[t.LogicalType], span_us: int, epochs: Epochs) -> None:
        self._width = max(span_us + 1, 1000)
        self.rows = LateRows(types)
        self.changes = SlotChanges(epochs)
        self.times = np.zeros(1024, np.int64)
        self.key_slots = np.zeros(1024, np.int64)
        #: Whether a row has met a partner.
        self.matched = np.zeros(1024, np.bool_)
        self._index = KeyIndex([t.BigIntType(False)])
        self._in_bucket = np.zeros(1024, np.int64)
        self._bucket_of = np.zeros(1024, np.int64)
        self._map = MultiMap()
        self._calendar: dict[int, list[np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self._map.nbytes + self._index.nbytes + 3 * self.times.nbytes

    @property
    def live_bytes(self) -> int:
        """``nbytes`` without room that is free."""
        return self.rows.live_bytes + self._map.live_bytes + self._index.live_bytes + 37 * len(self.rows)

    def add(
        self, key_slots: np.ndarray, times: np.ndarray, columns: Sequence[Column], matched: np.ndarray
    ) -> None:
        """Keep rows."""
        n = len(times)
        if not n:
            return
        entries = self.rows.append(columns, n)
        self.changes.write(entries)
        high = self.rows.slots.high
        self.times = grown(self.times, high)
        self.key_slots = grown(self.key_slots, high)
        self.matched = grown(self.matched, high)
        self._bucket_of = grown(self._bucket_of, high)
        self.times[entries], self.key_slots[entries], self.matched[entries] = times, key_slots, matched
        days = times // self._width
        buckets, _ = self._index.upsert_ints(self._packed(key_slots, days))
        self._in_bucket = grown(self._in_bucket, self._index.high)
        np.add.at(self._in_bucket, buckets, 1)
        self._bucket_of[entries] = buckets
        self._map.add(buckets, entries)
        first = int(days.min())
        if first == int(days.max()):
            self._calendar.setdefault(first, []).append(entries)
            return
        for day in distinct(days).tolist():
            self._calendar.setdefault(day, []).append(entries[days == day])

    def probe(
        self, key_slots: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(probe row, entry) pairs of equal key with low <= time <= high; slot -1: none."""
        n = len(key_slots)
        first, last = low // self._width, high // self._width
        second = np.flatnonzero(last != first)
        probes = np.concatenate((np.arange(n), second))
        days = np.concatenate((first, last[second]))
        slots = key_slots[probes]
        buckets = self._index.lookup_ints(self._packed(slots, days))
        buckets[slots < 0] = -1
        at, entries = self._map.probe(buckets)
        rows = probes[at]
        times = self.times[entries]
        inside = (times >= low[rows]) & (times <= high[rows])
        rows, entries = rows[inside], entries[inside]
        order = np.argsort(rows, kind="stable") if len(second) else None
        return (rows, entries) if order is None else (rows[order], entries[order])

    def match(self, entries: np.ndarray) -> None:
        """These rows have met a partner (repeats allowed)."""
        fresh = entries[~self.matched[entries]]
        if len(fresh):
            self.changes.write(fresh)
            self.matched[fresh] = True

    def expired(self, limit: int) -> np.ndarray:
        """Entries with time <= limit, by time."""
        due = []
        for day in [d for d in self._calendar if d * self._width <= limit]:
            entries = np.concatenate(self._calendar.pop(day))
            if (day + 1) * self._width - 1 > limit:
                late = self.times[entries] > limit
                if late.any():
                    self._calendar[day] = [entries[late]]
                    entries = entries[~late]
            due.append(entries)
        if not due:
            return np.empty(0, np.int64)
        out = np.concatenate(due)
        return out[np.argsort(self.times[out], kind="stable")]

    def free(self, entries: np.ndarray) -> None:
        """Drop rows that ``expired`` gave."""
        if not len(entries):
            return
        self.changes.free(entries)
        buckets = self._bucket_of[entries]
        np.subtract.at(self._in_bucket, buckets, 1)
        touched = distinct(buckets)
        self._map.remove(entries)
        self._index.free(touched[self._in_bucket[touched] == 0])
        self.rows.free(entries)

    def _packed(self, key_slots: np.ndarray, days: np.ndarray) -> np.ndarray:
        # Days may collide modulo 2^24: a probe compares times anyway.
        return (key_slots << _BUCKET_BITS) | (days & _BUCKET_MASK)
