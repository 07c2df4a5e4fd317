"""Rows by key and time: the state of one side of a time-bounded join.

Rows are kept under (key slot, time bucket), so that a probe for an interval reads two buckets of its key and
not the key's whole history. A calendar lists the rows of each bucket, so that expiry reads only rows that
are due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import ROOMY, LateRows, Upkeep
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import group_bounds, stable_argsort
from penstock.columnar.store import grown
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.columnar.announcing import Changes
    from penstock.types.column import Column

_BUCKET_BITS = 24
_BUCKET_MASK = (1 << _BUCKET_BITS) - 1
#: The number of stale entries in the calendar below which it is not rewritten.
_STALE = 65_536


class TimedRows:
    """Rows of ``types`` by key slot and time. An *entry* is the number of a row.

    ``span_us`` is the greatest length of a probe's interval in µs. ``changes`` receives the entries that are
    written and freed. ``evicts``: all rows of a key may be freed before they are due. ``upkeep``: of the rows.
    """

    def __init__(
        self,
        types: Sequence[t.LogicalType],
        span_us: int,
        changes: Changes,
        *,
        evicts: bool = False,
        upkeep: Upkeep = ROOMY,
    ) -> None:
        self._width = max(span_us + 1, 1000)
        self.rows = LateRows(types, upkeep)
        self.changes = changes
        self.times = np.zeros(1024, np.int64)
        self.key_slots = np.zeros(1024, np.int64)
        #: Whether the row of an entry has joined with a row of the other side.
        self.matched = np.zeros(1024, np.bool_)
        self._index = KeyIndex([t.BigIntType(False)])
        self._in_bucket = np.zeros(1024, np.int64)
        self._bucket_of = np.zeros(1024, np.int64)
        self._map = MultiMap()
        self._calendar: dict[int, list[np.ndarray]] = {}
        # Only if rows may be evicted: the entries of each key, and the number of entries in the calendar.
        # Some of these are freed, or freed and added again, and then are listed twice.
        self._of_key = MultiMap() if evicts else None
        self._named = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return self.rows.nbytes + self._map.nbytes + self._index.nbytes + 3 * self.times.nbytes

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows in use: ``nbytes`` without unused room."""
        own = 37 * len(self.rows)
        if self._of_key is not None:
            own += self._of_key.live_bytes + 8 * (len(self.rows) + self._named)
        return self.rows.live_bytes + self._map.live_bytes + self._index.live_bytes + own

    def add(
        self, key_slots: np.ndarray, times: np.ndarray, columns: Sequence[Column], matched: np.ndarray
    ) -> np.ndarray:
        """Add rows with their key slots, times (int64 µs) and whether they have joined; return their entries."""
        n = len(times)
        if not n:
            return np.empty(0, np.int64)
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
        if self._of_key is not None:
            self._of_key.add(key_slots, entries)
            self._named += n
            if self._named > 2 * len(self.rows) + _STALE:
                self._rewrite_calendar()
                return entries
        first = int(days.min())
        if first == int(days.max()):
            self._calendar.setdefault(first, []).append(entries)
            return entries
        for day in distinct(days).tolist():
            self._calendar.setdefault(day, []).append(entries[days == day])
        return entries

    def of_keys(self, key_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All (position in ``key_slots``, entry) pairs of distinct keys. Without ``evicts`` it reads all rows."""
        if self._of_key is not None:
            return self._of_key.probe(key_slots)
        entries = np.flatnonzero(self.rows.slots.live[: self.rows.slots.high])
        order = np.argsort(key_slots)
        at = np.searchsorted(key_slots, self.key_slots[entries], sorter=order)
        at = order[np.minimum(at, len(key_slots) - 1)] if len(key_slots) else at
        mine = key_slots[at] == self.key_slots[entries] if len(key_slots) else np.zeros(len(at), np.bool_)
        by_key = np.argsort(at[mine], kind="stable")
        return at[mine][by_key], entries[mine][by_key]

    def probe(
        self, key_slots: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """All (probe row, entry) pairs of the same key with low <= time <= high (µs), by probe row.

        Key slot -1 has no rows. ``high - low`` must not exceed ``span_us``.
        """
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
        """Record that these rows have joined; entries may repeat."""
        fresh = entries[~self.matched[entries]]
        if len(fresh):
            self.changes.write(fresh)
            self.matched[fresh] = True

    def expired(self, limit: int) -> np.ndarray:
        """The entries with time <= ``limit`` (µs), by time, removed from the calendar. The caller frees them."""
        due = []
        for day in [d for d in self._calendar if d * self._width <= limit]:
            entries = np.concatenate(self._calendar.pop(day))
            if self._of_key is not None:
                self._named -= len(entries)
                entries = self._standing(day, entries)
            if (day + 1) * self._width - 1 > limit:
                late = self.times[entries] > limit
                if late.any():
                    self._calendar[day] = [entries[late]]
                    self._named += int(late.sum())
                    entries = entries[~late]
            due.append(entries)
        if not due:
            return np.empty(0, np.int64)
        out = np.concatenate(due)
        return out[np.argsort(self.times[out], kind="stable")]

    def free(self, entries: np.ndarray) -> None:
        """Free rows: those that ``expired`` returned, or all rows of some keys."""
        if not len(entries):
            return
        self.changes.free(entries)
        buckets = self._bucket_of[entries]
        np.subtract.at(self._in_bucket, buckets, 1)
        touched = distinct(buckets)
        self._map.remove(entries)
        if self._of_key is not None:
            self._of_key.remove(entries)
        self._index.free(touched[self._in_bucket[touched] == 0])
        self.rows.free(entries)

    def _standing(self, day: int, entries: np.ndarray) -> np.ndarray:
        """The entries that still belong to this bucket, each once. A freed entry may be another row by now."""
        entries = distinct(entries)
        here = self.rows.slots.live[entries] & (self.times[entries] // self._width == day)
        return entries[here]

    def _rewrite_calendar(self) -> None:
        entries = np.flatnonzero(self.rows.slots.live[: self.rows.slots.high])
        days = self.times[entries] // self._width
        order = stable_argsort(days)
        bounds = group_bounds(days[order])
        parts = np.split(entries[order], bounds[1:-1])
        self._calendar = {int(d): [x] for d, x in zip(days[order[bounds[:-1]]], parts, strict=True)}
        self._named = len(entries)

    def _packed(self, key_slots: np.ndarray, days: np.ndarray) -> np.ndarray:
        # Buckets may collide modulo 2^24; this does no harm, because a probe also compares times.
        return (key_slots << _BUCKET_BITS) | (days & _BUCKET_MASK)
