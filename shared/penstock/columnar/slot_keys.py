"""The keys of slots: which slots are in use, and the key columns of each.

Keys of whole numbers are one int64 a slot: the one column itself, or several columns packed side by side while
their values are small enough. Any other key is held column by column, beside its 64-bit hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.columnar.equality import equal_or_both_null
from penstock.columnar.growing import grown
from penstock.columnar.hash_table import hash_ints
from penstock.columnar.hashing import hash_columns
from penstock.columnar.key_packing import KeyPacking
from penstock.columnar.store import RowStore, Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.column import Column
    from penstock.types.logical import LogicalType


class Wanted(NamedTuple):
    """Keys to look up, one a row.

    ``hashes``: uint64, and either ``keys``, int64 without NULL, or the key ``columns``.
    """

    hashes: np.ndarray
    keys: np.ndarray | None = None
    columns: Sequence[Column] | None = None

    def take(self, rows: np.ndarray) -> Wanted:
        """The keys of ``rows``."""
        columns = None if self.columns is None else [c.take(rows) for c in self.columns]
        return Wanted(self.hashes[rows], None if self.keys is None else self.keys[rows], columns)


class SlotKeys:
    """The keys of slots. ``types`` are the key columns' types."""

    def __init__(self, types: Sequence[LogicalType]) -> None:
        self.types = list(types)
        self.packing = KeyPacking(self.types)
        #: Whether a key is one int64.
        self.whole = KeyPacking.suits(self.types)
        #: The slot of NULL among whole numbers, which ``ints`` cannot hold; -1: there is none.
        self.null_slot = -1
        if self.whole:
            self.slots = Slots()
            self.ints = np.zeros(1024, np.int64)
        else:
            self._rows = RowStore(self.types)
            self.slots = self._rows.slots
            self._hashes = np.zeros(1024, np.uint64)

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return self.ints.nbytes if self.whole else self._hashes.nbytes + self._rows.nbytes

    @property
    def row_bytes(self) -> float:
        """Bytes of one key, on average."""
        return 8 if self.whole else 8 + self._rows.row_bytes

    def live(self) -> np.ndarray:
        """All slots in use, ascending."""
        return np.flatnonzero(self.slots.live[: self.slots.high])

    def live_ints(self) -> tuple[np.ndarray, np.ndarray]:
        """(int64 keys, int64 slots) of all keys but NULL."""
        slots = self.live()
        slots = slots[slots != self.null_slot]
        return self.ints[slots], slots

    def take(self, slots: np.ndarray) -> list[Column]:
        """The key columns of slots in use."""
        if not self.whole:
            return self._rows.take(slots)
        valid = None
        if self.null_slot >= 0:
            mask = slots != self.null_slot
            valid = None if mask.all() else mask
        return self.packing.unpacked(self.ints.take(slots), valid)

    def hashes_of(self, slots: np.ndarray) -> np.ndarray:
        """uint64 hashes of the keys of slots."""
        return hash_ints(self.ints[slots]) if self.whole else self._hashes[slots]

    def matches(self, slots: np.ndarray, wanted: Wanted, rows: np.ndarray | None = None) -> np.ndarray:
        """Boolean mask of the slots, negative ones for none, that have the keys wanted.

        ``rows``: the row of ``wanted`` for each slot; None: all rows, in order.
        """
        match = slots >= 0
        # A negative slot reads an unrelated key, which the mask removes.
        if wanted.keys is not None:
            match &= self.ints[slots] == (wanted.keys if rows is None else wanted.keys[rows])
            return match
        match &= self._hashes[slots] == (wanted.hashes if rows is None else wanted.hashes[rows])
        columns = wanted.columns
        assert columns is not None
        hit = np.flatnonzero(match)
        if rows is None and len(hit) == len(match):
            match &= self._equal(slots, columns)
        elif len(hit):
            at = hit if rows is None else rows[hit]
            match[hit] = self._equal(slots[hit], [c.take(at) for c in columns])
        return match

    def _equal(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        out: np.ndarray | None = None
        for mine, other in zip(self._rows.take(slots), columns, strict=True):
            same = equal_or_both_null(mine, other)
            out = same if out is None else out & same
        assert out is not None
        return out

    # -- changing --------------------------------------------------------------------

    def add(self, rows: np.ndarray, wanted: Wanted) -> np.ndarray:
        """Allocate a slot for the key of each of the ``rows`` of ``wanted``; the slots."""
        if wanted.keys is not None:
            slots = self.slots.allocate(len(rows))
            self.ints = grown(self.ints, self.slots.high)
            self.ints[slots] = wanted.keys[rows]
        else:
            assert wanted.columns is not None
            slots = self._rows.append([c.take(rows) for c in wanted.columns], len(rows))
            self._hashes = grown(self._hashes, self.slots.high)
            self._hashes[slots] = wanted.hashes[rows]
        return slots

    def add_null(self) -> int:
        """Allocate the slot of NULL among whole numbers; the slot."""
        self.null_slot = int(self.slots.allocate(1)[0])
        self.ints = grown(self.ints, self.slots.high)
        return self.null_slot

    def add_empty(self, n: int) -> np.ndarray:
        """Allocate slots for ``n`` keys without columns; the slots."""
        return self._rows.append([], n)

    def extend_ints(self, keys: np.ndarray) -> None:
        """Allocate consecutive slots for int64 ``keys``. No slot may have been freed before."""
        first = self.slots.high
        self.slots.allocate(len(keys))
        self.ints = grown(self.ints, self.slots.high)
        self.ints[first : first + len(keys)] = keys

    def extend(self, hashes: np.ndarray, columns: Sequence[Column]) -> None:
        """Allocate consecutive slots for keys of ``columns``. No slot may have been freed before."""
        first = self.slots.high
        self._rows.append(columns, len(hashes))
        self._hashes = grown(self._hashes, self.slots.high)
        self._hashes[first : first + len(hashes)] = hashes

    def free(self, slots: np.ndarray) -> None:
        """Free slots in use, each once."""
        if self.whole:
            self.slots.free(slots)
        else:
            self._rows.free(slots)

    def stop_packing(self) -> None:
        """Keep the keys column by column from now on, because a key does not fit into 64 bits."""
        slots = self.live()
        columns = self.packing.unpacked(self.ints[slots], None)
        self.whole = False
        self._rows = RowStore(self.types)
        self._rows.slots = self.slots
        self._hashes = np.zeros(max(1024, self.slots.high), np.uint64)
        if len(slots):
            self._rows.put(slots, columns)
            self._hashes[slots] = hash_columns(columns)
