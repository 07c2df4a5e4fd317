"""One side of a regular join: its rows by join key, with copies and partners counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.multimap import MultiMap
from penstock.runtime.kernels.store import RowStore, grown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.batch import Batch
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType


class JoinSide:
    """Rows as *entries*.

    An append-only side stores every row as an entry of its own. From its first retraction
    on, rows are indexed by their values, equal ones sharing an entry with a count: then a
    retraction finds its row.
    """

    def __init__(self, types: Sequence[LogicalType]) -> None:
        self._types = list(types)
        self._rows: RowStore | KeyIndex = RowStore(types)
        self._map = MultiMap()
        self.key_slots = np.zeros(1024, np.int64)
        #: Copies of the row, and rows of the other side it is joined with.
        self.counts = np.zeros(1024, np.int64)
        self.partners = np.zeros(1024, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._map.nbytes + 3 * self.counts.nbytes

    @property
    def indexed(self) -> bool:
        return isinstance(self._rows, KeyIndex)

    @property
    def high(self) -> int:
        return self._rows.high if isinstance(self._rows, KeyIndex) else self._rows.slots.high

    def fan_out(self, key_slots: np.ndarray) -> np.ndarray:
        """At least as many entries as each probe row will find."""
        return self._map.counts(key_slots)

    def probe(self, key_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._map.probe(key_slots)

    def take(self, entries: np.ndarray) -> list[Column]:
        return self._rows.keys(entries) if isinstance(self._rows, KeyIndex) else self._rows.take(entries)

    def live(self) -> np.ndarray:
        return np.flatnonzero(self.counts[: self.high] > 0)

    def change(
        self, batch: Batch, key_slots: np.ndarray, partners: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Apply a batch. Returns (new entries, entries whose last copy went, retractions
        that met no row). The caller frees the second."""
        signs = batch.signs()
        none = np.empty(0, np.int64)
        retracts = signs is not None and bool((signs < 0).any())
        if not retracts and not isinstance(self._rows, KeyIndex):
            entries = self._rows.append(batch.columns, batch.num_rows)
            self._grow()
            self.counts[entries] = 1
            self._place(entries, key_slots, partners)
            return entries, none, 0
        rows = self._indexed()
        entries, new = rows.upsert(batch.columns, batch.num_rows)
        self._grow()
        self.counts[new] = 0
        np.add.at(self.counts, entries, 1 if signs is None else signs.astype(np.int64))
        fresh = np.zeros(rows.high, np.bool_)
        fresh[new] = True
        of_new = np.flatnonzero(fresh[entries])
        # Rows of one entry share key and partners: any of them may write.
        self.key_slots[entries[of_new]] = key_slots[of_new]
        self.partners[entries[of_new]] = partners[of_new]
        self._map.add(self.key_slots[new], new)
        touched = np.unique(entries)
        gone = touched[self.counts[touched] <= 0]
        unmatched = int(-self.counts[gone].sum())
        return new, gone, unmatched

    def load(
        self,
        columns: Sequence[Column],
        key_slots: np.ndarray,
        counts: np.ndarray,
        partners: np.ndarray,
    ) -> np.ndarray:
        """Restore entries."""
        assert isinstance(self._rows, RowStore)
        entries = self._rows.append(columns, len(key_slots))
        self._grow()
        self.counts[entries] = counts
        self._place(entries, key_slots, partners)
        return entries

    def free(self, entries: np.ndarray) -> None:
        self.counts[entries] = 0
        self._map.remove(entries)
        self._rows.free(entries)

    def _place(self, entries: np.ndarray, key_slots: np.ndarray, partners: np.ndarray) -> None:
        self.key_slots[entries] = key_slots
        self.partners[entries] = partners
        self._map.add(key_slots, entries)

    def _grow(self) -> None:
        self.key_slots = grown(self.key_slots, self.high)
        self.counts = grown(self.counts, self.high)
        self.partners = grown(self.partners, self.high)

    def _indexed(self) -> KeyIndex:
        """The rows by value; made of the plain ones at the first retraction.

        Entries are numbered anew.
        """
        if isinstance(self._rows, KeyIndex):
            return self._rows
        old, columns = self.live(), self.take(self.live())
        index = KeyIndex([x.with_nullable(True) for x in self._types])
        counts, partners, key_slots = self.counts, self.partners, self.key_slots
        self._rows, self._map = index, MultiMap()
        size = max(len(counts), 1024)
        self.counts, self.partners, self.key_slots = (np.zeros(size, np.int64) for _ in range(3))
        if len(old):
            entries, new = index.upsert(columns, len(old))
            self._grow()
            np.add.at(self.counts, entries, counts[old])
            self.partners[entries] = partners[old]
            self.key_slots[entries] = key_slots[old]
            self._map.add(self.key_slots[new], new)
        return index
