"""One side of a regular join: its rows by join key, with the numbers of their copies and partners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import LateRows
from penstock.columnar.multimap import Found, MultiMap
from penstock.columnar.store import grown
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.slot_table import SlotTable
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.columnar.late_rows import LateColumn
    from penstock.state.key_space import KeySpace
    from penstock.state.slot_table import Parsed
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

_LONG = t.BigIntType(False)


class JoinSide(SlotTable):
    """The rows of one side. An *entry* is the number of a stored row.

    An append-only side keeps each row as an entry of its own, uncopied. From the first retraction on, rows are indexed
    by value, and equal rows share an entry with a count, so that a retraction finds its row. ``keys``: the join key's
    columns. ``counts_partners``: whether to count the other side's rows that each row joins. ``ttl_ms``: the time to
    live of a row, from its arrival.
    """

    def __init__(
        self, space: KeySpace, name: str, schema: Schema, keys: Sequence[int],
        *, counts_partners: bool, ttl_ms: int,
    ) -> None:  # fmt: skip
        super().__init__(
            space, name, names=[*(f"{i}.{x}" for i, x in enumerate(schema.names)), "count", "partners"],
            types=[*schema.types, _LONG, _LONG],
        )  # fmt: skip
        self._row_types, self._key_columns = schema.types, list(keys)
        self._rows: LateRows | KeyIndex = LateRows(schema.types, space.upkeep)
        self._map = MultiMap()
        #: The number of copies of each entry's row; None while every entry is one row.
        self._counts: np.ndarray | None = None
        self._partners = np.zeros(1024, np.int64) if counts_partners else None
        self._expire_after(ttl_ms)

    def _expire_after(self, ttl_ms: int) -> None:
        lives = self.rows_to_live = TimeToLive(ttl_ms, self.space.ctx)
        if ttl_ms:
            self.times, self.touched = lives.times, lives.came_back

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live_bytes(self) -> int:
        own = sum(x.itemsize for x in (self._counts, self._partners) if x is not None)
        return self._rows.live_bytes + self._map.live_bytes + (12 + own) * len(self._rows)

    # -- as a table ----------------------------------------------------------------------

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._map.probe(keys)

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self.space.index.lookup(self.take_some(rows, self._key_columns), len(rows))

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self.take_some(rows, self._key_columns), []

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self.take(rows), *self._state(rows)]

    def later(self, rows: np.ndarray) -> list[Column | LateColumn]:
        stored = self._rows
        found = stored.keys(rows) if isinstance(stored, KeyIndex) else stored.take_later(rows)
        return [*found, *self._state(rows)]

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        k = len(self._key_columns)
        columns, n = restored_columns(blocks, [*(self._row_types[i] for i in self._key_columns), *self.types])
        return columns[:k], columns[k:], n

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """Restored rows that are equal may share an entry now."""
        rows, counts, partners = columns[:-2], columns[-2].values, columns[-1].values
        self.space.use(keys, counts)
        if isinstance(self._rows, KeyIndex):
            return self._merge(self._rows, rows, keys, counts, partners)
        entries = self._append(rows, keys, partners)
        if int(counts.max(initial=1)) > 1:
            self._grow_counts()[entries] = counts
        return entries

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        # An expired row still has copies; a retracted row has none; a retraction that met no row left a
        # negative number.
        copies = self.copies(rows)
        self.space.use(keys, -1 if copies is None else -copies)
        assert self.rows_to_live is not None
        self.rows_to_live.forget(rows)
        self.changes.free(rows)
        self._map.remove(rows)
        self._rows.free(rows)

    # -- rows ----------------------------------------------------------------------------

    @property
    def _high(self) -> int:
        return self._rows.high if isinstance(self._rows, KeyIndex) else self._rows.slots.high

    def find(self, key_slots: np.ndarray) -> Found:
        """The entries of these join keys' slots, not yet expanded to pairs."""
        return self._map.find(key_slots)

    def take(self, entries: np.ndarray) -> list[Column]:
        """The rows of entries, all columns."""
        return self._rows.keys(entries) if isinstance(self._rows, KeyIndex) else self._rows.take(entries)

    def take_some(self, entries: np.ndarray, indices: Sequence[int]) -> list[Column]:
        """The columns ``indices`` of the rows of entries."""
        if isinstance(self._rows, KeyIndex):
            columns = self._rows.keys(entries)
            return [columns[i] for i in indices]
        return self._rows.take_some(entries, indices)

    def copies(self, entries: np.ndarray) -> np.ndarray | None:
        """The number of copies (int64) of each entry's row; None if it is 1 for all."""
        return None if self._counts is None else self._counts[entries]

    def _state(self, entries: np.ndarray) -> list[Column]:
        """The numbers of copies and partners of entries, as two columns for a snapshot."""
        ones = np.ones(len(entries), np.int64)
        copies = ones if self._counts is None else self._counts[entries]
        partners = ones - 1 if self._partners is None else self._partners[entries]
        return [Column(_LONG, copies), Column(_LONG, partners)]

    def meet(self, entries: np.ndarray, more: np.ndarray) -> np.ndarray:
        """Add ``more`` to the numbers of partners of distinct entries; return the numbers before."""
        assert self._partners is not None
        self.changes.write(entries)
        had = self._partners[entries]
        self._partners[entries] = had + more
        return had

    def change(self, batch: Batch, keys: np.ndarray, partners: np.ndarray) -> int:
        """Apply a batch of changes with the rows' key slots and numbers of partners. Returns how many
        retractions met no row."""
        signs, was_indexed = batch.signs(), isinstance(self._rows, KeyIndex)
        gone, unmatched = np.empty(0, np.int64), 0
        if was_indexed or (signs is not None and (signs < 0).any()):
            added, gone, unmatched = self._apply(batch, keys, partners)
            if not was_indexed:  # indexing has renumbered all entries
                added = self.changes.live()
        else:
            added = self._append(batch.columns, keys, partners)
        self.space.use(keys, 1 if signs is None else signs.astype(np.int64))
        assert self.rows_to_live is not None
        self.rows_to_live.touch(added, self._high)
        if len(gone):
            self.free(gone, self.keys_of(gone))
        return unmatched

    def _apply(
        self, batch: Batch, keys: np.ndarray, partners: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """(new entries, entries whose last copy was retracted, number of retractions that met no row)."""
        signs, rows = batch.signs(), self._indexed()
        entries, new = rows.upsert(batch.columns, batch.num_rows)
        self.changes.write(entries)
        counts = self._grow_counts()
        counts[new] = 0
        np.add.at(counts, entries, 1 if signs is None else signs.astype(np.int64))
        # All rows of an entry have the same key and partners, so any of them supplies both.
        row_of = np.zeros(rows.high, np.int32)
        row_of[entries] = np.arange(len(entries), dtype=np.int32)
        first = row_of[new]
        self._set_partners(new, partners[first])
        self._map.add(keys[first], new)
        touched = np.unique(entries)
        gone = touched[counts[touched] <= 0]
        return new, gone, int(-counts[gone].sum())

    def _merge(
        self,
        rows: KeyIndex,
        columns: Sequence[Column],
        key_slots: np.ndarray,
        copies: np.ndarray,
        partners: np.ndarray,
    ) -> np.ndarray:
        """Add rows by value and return the entry of each. All these entries must be new."""
        entries, new = rows.upsert(columns, len(key_slots))
        self.changes.write(new)
        counts = self._grow_counts()
        counts[new] = 0
        np.add.at(counts, entries, copies)
        self._set_partners(entries, partners)
        first = np.zeros(rows.high, np.int64)
        first[entries] = key_slots
        self._map.add(first[new], new)
        return entries

    def _append(self, columns: Sequence[Column], key_slots: np.ndarray, partners: np.ndarray) -> np.ndarray:
        assert isinstance(self._rows, LateRows)
        entries = self._rows.append(columns, len(key_slots))
        self.changes.write(entries)
        if self._counts is not None:
            self._grow_counts()[entries] = 1
        self._set_partners(entries, partners)
        self._map.add(key_slots, entries)
        return entries

    def _set_partners(self, entries: np.ndarray, partners: np.ndarray) -> None:
        if self._partners is not None:
            self._partners = grown(self._partners, self._high)
            self._partners[entries] = partners

    def _grow_counts(self) -> np.ndarray:
        if self._counts is None:
            self._counts = np.ones(max(1024, self._high), np.int64)
        self._counts = grown(self._counts, self._high, 1)
        return self._counts

    def _indexed(self) -> KeyIndex:
        """The rows indexed by value. The first call builds the index and renumbers all entries."""
        if isinstance(self._rows, KeyIndex):
            return self._rows
        old = self.changes.live()
        columns, keys = self.take(old), self.keys_of(old)
        copies, partners = (c.values for c in self._state(old))
        self.changes.renumber()
        index = KeyIndex([x.with_nullable(True) for x in self._row_types])
        self._rows, self._map, self._counts = index, MultiMap(), None
        assert self.rows_to_live is not None
        self._expire_after(self.rows_to_live.ttl_ms)
        self._merge(index, columns, keys, copies, partners)
        return index
