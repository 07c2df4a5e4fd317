"""The cache of a lookup join: rows by key, and for each key the times of its lookup and its last use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.multimap import MultiMap
from penstock.columnar.store import RowStore, grown
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.lookup import LookupSettings
    from penstock.types.column import Column
    from penstock.types.logical import Schema


class LookupCache:
    """Cached rows of ``schema`` by its ``keys`` columns. All times are ms. A key without a row is cached too."""

    def __init__(self, schema: Schema, keys: Sequence[int], settings: LookupSettings) -> None:
        self.schema = schema
        self.key_columns = list(keys)
        self._settings = settings
        self._keys = KeyIndex([schema.types[k].with_nullable(True) for k in keys])
        self._rows = RowStore(schema.types)
        self._entries = MultiMap()
        self._written_ms = np.zeros(1024, np.int64)
        self._used_ms = np.zeros(1024, np.int64)

    def __len__(self) -> int:
        """The number of cached keys, keys without a row included."""
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        times = self._written_ms.nbytes + self._used_ms.nbytes
        return self._keys.nbytes + self._rows.nbytes + self._entries.nbytes + times

    def find(self, keys: Sequence[Column], n: int, now_ms: int) -> np.ndarray:
        """The int64 slot of each key whose entry has not expired at ``now_ms``, else -1. Expired keys are removed."""
        slots = self._keys.lookup(keys, n)
        known = np.unique(slots[slots >= 0])
        stale = np.zeros(len(known), np.bool_)
        if self._settings.expire_after_write_ms is not None:
            stale |= now_ms - self._written_ms[known] >= self._settings.expire_after_write_ms
        if self._settings.expire_after_access_ms is not None:
            stale |= now_ms - self._used_ms[known] >= self._settings.expire_after_access_ms
        if stale.any():
            self._forget(known[stale])
            slots = self._keys.lookup(keys, n)
        self._used_ms[slots[slots >= 0]] = now_ms
        return slots

    def put(self, keys: Batch, rows: Batch, now_ms: int) -> None:
        """Store the response ``rows`` to distinct ``keys`` that are not cached. Rows of other keys are ignored."""
        slots, _ = self._keys.upsert(keys.columns, keys.num_rows)
        high = self._keys.high
        self._written_ms, self._used_ms = grown(self._written_ms, high), grown(self._used_ms, high)
        self._written_ms[slots] = self._used_ms[slots] = now_ms
        found = self._keys.lookup([rows.columns[k] for k in self.key_columns], rows.num_rows)
        asked = np.zeros(high, np.bool_)
        asked[slots] = True
        wanted = np.flatnonzero((found >= 0) & asked[found])
        if len(wanted):
            rows, found = rows.take(wanted), found[wanted]
            self._entries.add(found, self._rows.append(rows.columns, rows.num_rows))
        if not self._settings.cache_missing_key:
            self._keys.free(np.setdiff1d(slots, found))

    def slots(self, keys: Sequence[Column], n: int) -> np.ndarray:
        """The int64 slot of each cached key, expired or not, else -1."""
        return self._keys.lookup(keys, n)

    def fan_out(self, slots: np.ndarray) -> np.ndarray:
        """An upper bound of the number of rows of each slot."""
        return self._entries.counts(slots)

    def probe(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All (probe row, entry) pairs, by probe row."""
        return self._entries.probe(slots)

    def take(self, entries: np.ndarray) -> list[Column]:
        """The rows of entries."""
        return self._rows.take(entries)

    def evict(self) -> None:
        """Remove the least recently used keys above ``lookup.partial-cache.max-rows``."""
        most = self._settings.max_rows
        if most is None or len(self._keys) <= most:
            return
        live = self._keys.live_slots()
        order = np.argsort(self._used_ms[live], kind="stable")
        self._forget(live[order[: len(live) - most]])

    def _forget(self, slots: np.ndarray) -> None:
        _, entries = self._entries.probe(slots)
        self._entries.remove(entries)
        self._rows.free(entries)
        self._keys.free(slots)


def whole_table(schema: Schema, keys: Sequence[int], settings: LookupSettings, rows: Batch) -> LookupCache:
    """A cache that holds every key of the table (``lookup.cache`` = ``FULL``)."""
    cache = LookupCache(schema, keys, settings)
    names = [schema.fields[k] for k in keys]
    whole = Batch(schema, rows.columns, num_rows=rows.num_rows)
    cache.put(distinct(Batch(type(schema)(tuple(names)), [rows.columns[k] for k in keys])), whole, 0)
    return cache


def distinct(keys: Batch) -> Batch:
    """Each key once, in order of first appearance."""
    index = KeyIndex([x.with_nullable(True) for x in keys.schema.types])
    _, new = index.upsert(keys.columns, keys.num_rows)
    return Batch(keys.schema, index.keys(np.sort(new)), num_rows=len(new))
