"""One side of a regular join: its rows by join key, with copies and partners counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import GARBAGE_ROWS, LateColumn, LateRows
from penstock.columnar.multimap import Found, MultiMap
from penstock.columnar.store import grown
from penstock.state.cold_tier import MovableTable, make_changes
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.operators.operator import OperatorContext
    from penstock.types.batch import Batch
    from penstock.types.logical import LogicalType

_LONG = t.BigIntType(False)


class JoinSide:
    """Rows as *entries*, numbered from 0.

    An append-only side keeps every batch as it came, a row an entry. From its first
    retraction on, rows are indexed by their values, equal ones sharing an entry with a
    count: then a retraction finds its row. ``keys``: the join key's columns, all of them in
    ``index``. ``counts_partners``: whether it matters how many rows of the other side a row
    is joined with. ``evicts``: rows may be moved to the disk.
    """

    def __init__(
        self, types: Sequence[LogicalType], keys: Sequence[int], index: KeyIndex, ctx: OperatorContext,
        *, counts_partners: bool, evicts: bool,
    ) -> None:  # fmt: skip
        self._types, self._key_columns, self._key_index = list(types), list(keys), index
        self._rows: LateRows | KeyIndex = LateRows(types, *((GARBAGE_ROWS,) if evicts else ()))
        self._map = MultiMap()
        self.changes = make_changes(ctx, evicts=evicts)
        #: Copies of each entry's row; None while every entry is one row.
        self._counts: np.ndarray | None = None
        self._partners = np.zeros(1024, np.int64) if counts_partners else None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        own = sum(x.nbytes for x in (self._counts, self._partners) if x is not None)
        return self._rows.nbytes + self._map.nbytes + self.changes.nbytes + own

    @property
    def live_bytes(self) -> int:
        """``nbytes`` without room that is free."""
        own = sum(x.itemsize for x in (self._counts, self._partners) if x is not None)
        return self._rows.live_bytes + self._map.live_bytes + (12 + own) * len(self._rows)

    def movable(self, came_back: Callable[[np.ndarray, np.ndarray], None]) -> MovableTable:
        """The rows as they go to the disk and come back. ``came_back(key slots, copies)``: is
        told of those that did."""

        def load(key_slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
            came_back(key_slots, columns[-2].values)
            return self.load(columns[:-2], key_slots, columns[-2].values, columns[-1].values)

        return MovableTable(
            self.changes, [*self._types, _LONG, _LONG], lambda slots: self._map.probe(slots), load=load,
            read=lambda entries: [*self.take(entries), *self.state(entries)],
        )  # fmt: skip

    @property
    def indexed(self) -> bool:
        return isinstance(self._rows, KeyIndex)

    @property
    def high(self) -> int:
        return self._rows.high if isinstance(self._rows, KeyIndex) else self._rows.slots.high

    def find(self, key_slots: np.ndarray) -> Found:
        """The entries of these join keys."""
        return self._map.find(key_slots)

    def take(self, entries: np.ndarray) -> list[Column]:
        return self._rows.keys(entries) if isinstance(self._rows, KeyIndex) else self._rows.take(entries)

    def take_later(self, entries: np.ndarray) -> Sequence[Column | LateColumn]:
        """``take`` for a snapshot."""
        rows = self._rows
        return rows.keys(entries) if isinstance(rows, KeyIndex) else rows.take_later(entries)

    def take_some(self, entries: np.ndarray, indices: Sequence[int]) -> list[Column]:
        """Only these columns of the entries' rows."""
        if isinstance(self._rows, KeyIndex):
            columns = self._rows.keys(entries)
            return [columns[i] for i in indices]
        return self._rows.take_some(entries, indices)

    def key_slots(self, entries: np.ndarray) -> np.ndarray:
        """Slot of each entry's join key."""
        return self._key_index.lookup(self.take_some(entries, self._key_columns), len(entries))

    def copies(self, entries: np.ndarray) -> np.ndarray | None:
        """How often each entry's row is there; None: once each."""
        return None if self._counts is None else self._counts[entries]

    def state(self, entries: np.ndarray) -> list[Column]:
        """Copies and partners, as a snapshot has them."""
        ones = np.ones(len(entries), np.int64)
        copies = ones if self._counts is None else self._counts[entries]
        partners = ones - 1 if self._partners is None else self._partners[entries]
        return [Column(_LONG, copies), Column(_LONG, partners)]

    def live(self) -> np.ndarray:
        return self.changes.live()

    def meet(self, entries: np.ndarray, more: np.ndarray) -> np.ndarray:
        """Add to the partners of entries (each once); returns how many they had."""
        assert self._partners is not None
        self.changes.write(entries)
        had = self._partners[entries]
        self._partners[entries] = had + more
        return had

    def change(
        self, batch: Batch, key_slots: np.ndarray, partners: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Apply a batch. Returns (new entries, entries whose last copy went, retractions
        that met no row). The caller frees the second."""
        signs = batch.signs()
        none = np.empty(0, np.int64)
        retracts = signs is not None and bool((signs < 0).any())
        if not retracts and not isinstance(self._rows, KeyIndex):
            return self._append(batch.columns, key_slots, partners), none, 0
        rows = self._indexed()
        entries, new = rows.upsert(batch.columns, batch.num_rows)
        self.changes.write(entries)
        counts = self._grow_counts()
        counts[new] = 0
        np.add.at(counts, entries, 1 if signs is None else signs.astype(np.int64))
        # Rows of one entry share key and partners: any of them may give them to it.
        row_of = np.zeros(rows.high, np.int32)
        row_of[entries] = np.arange(len(entries), dtype=np.int32)
        first = row_of[new]
        self._set_partners(new, partners[first])
        self._map.add(key_slots[first], new)
        touched = np.unique(entries)
        gone = touched[counts[touched] <= 0]
        unmatched = int(-counts[gone].sum())
        return new, gone, unmatched

    def load(
        self, columns: Sequence[Column], key_slots: np.ndarray, counts: np.ndarray, partners: np.ndarray
    ) -> np.ndarray:
        """Put rows back. Those that were kept one by one may share an entry now."""
        if isinstance(self._rows, KeyIndex):
            return self._merge(self._rows, columns, key_slots, counts, partners)
        entries = self._append(columns, key_slots, partners)
        if int(counts.max(initial=1)) > 1:
            self._grow_counts()[entries] = counts
        return entries

    def free(self, entries: np.ndarray) -> None:
        self.changes.free(entries)
        self._map.remove(entries)
        self._rows.free(entries)

    def _merge(
        self,
        rows: KeyIndex,
        columns: Sequence[Column],
        key_slots: np.ndarray,
        copies: np.ndarray,
        partners: np.ndarray,
    ) -> np.ndarray:
        """Add rows by their values: (entry of each); all their entries are new."""
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
            self._partners = grown(self._partners, self.high)
            self._partners[entries] = partners

    def _grow_counts(self) -> np.ndarray:
        if self._counts is None:
            self._counts = np.ones(max(1024, self.high), np.int64)
        self._counts = grown(self._counts, self.high, 1)
        return self._counts

    def _indexed(self) -> KeyIndex:
        """The rows by value; made of the plain ones at the first retraction.

        Entries are numbered anew.
        """
        if isinstance(self._rows, KeyIndex):
            return self._rows
        old = self.live()
        columns, key_slots = self.take(old), self.key_slots(old)
        copies, partners = (c.values for c in self.state(old))
        self.changes.renumber()
        index = KeyIndex([x.with_nullable(True) for x in self._types])
        self._rows, self._map, self._counts = index, MultiMap(), None
        self._merge(index, columns, key_slots, copies, partners)
        return index
