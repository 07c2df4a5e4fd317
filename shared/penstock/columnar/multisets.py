"""Aggregates that keep values: DISTINCT, MIN and MAX over input that retracts, MIN and MAX of strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from penstock.columnar.accumulators import Accumulator, EntryTable
from penstock.columnar.equality import equal_or_both_null
from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import group_bounds, order_codes, stable_argsort
from penstock.columnar.store import grown, make_store
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.columnar.accumulators import Load

_LONG = t.BigIntType(False)


class ValueCounts:
    """Slot → distinct values with the count of each. An entry is a slot of an inner index."""

    def __init__(self, types: Sequence[t.LogicalType], load: Load) -> None:
        self.types = list(types)
        self.table = EntryTable([*types, _LONG], self._read, self.slots_of, self._entries_of, load)
        self._index = KeyIndex([_LONG, *self.types])
        self._map = MultiMap()
        self.counts = np.zeros(1024, np.int64)

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return self._index.nbytes + self._map.nbytes + self.counts.nbytes

    @property
    def live_bytes(self) -> int:
        """Bytes of the entries in use."""
        return self._index.live_bytes + self._map.live_bytes + 8 * len(self._index)

    def find(self, slots: np.ndarray, values: Sequence[Column]) -> np.ndarray:
        """The int64 entry of each (slot, value) row; -1 for an unknown value."""
        return self._index.lookup([Column(_LONG, slots), *values], len(slots))

    def add(
        self, slots: np.ndarray, values: Sequence[Column], weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, list[Column], np.ndarray]:
        """Add int64 weights (None: 1 each) to the counts of values; a count at or below 0 removes its value.

        Returns (slots, int8 signs, value columns, entries) of the values that appeared (sign 1) and
        disappeared (sign -1). The entries of the latter are already freed.
        """
        n = len(slots)
        entries, new = self._index.upsert([Column(_LONG, slots), *values], n)
        self.counts = grown(self.counts, self._index.high)
        self.table.write(entries)
        if len(new):
            self.counts[new] = 0
        if weights is None:
            fresh = new
            np.add.at(self.counts, entries, 1)
            if not len(fresh):
                return _nothing(self.types)
            self._map.add(self.slots_of(fresh), fresh)
            signs = np.ones(len(fresh), np.int8)
            return self.slots_of(fresh), signs, self.values_of(fresh), fresh
        touched = distinct(entries)
        before = self.counts[touched] > 0
        np.add.at(self.counts, entries, weights)
        after = self.counts[touched] > 0
        appeared, gone = touched[after & ~before], touched[before & ~after]
        changed = np.concatenate((gone, appeared))
        signs = np.concatenate((np.full(len(gone), -1, np.int8), np.ones(len(appeared), np.int8)))
        out = (self.slots_of(changed), signs, self.values_of(changed), changed)
        self._map.remove(gone)
        self._map.add(self.slots_of(appeared), appeared)
        self.table.free(touched[~after])
        self._index.free(touched[~after])
        return out

    def probe(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All (position in ``slots``, entry) pairs, both int64, by position."""
        return self._map.probe(slots)

    def slots_of(self, entries: np.ndarray) -> np.ndarray:
        """The int64 slot of each entry."""
        return self._index.keys(entries)[0].values

    def values_of(self, entries: np.ndarray) -> list[Column]:
        """The value columns of entries."""
        return self._index.keys(entries)[1:]

    def release(self, slots: np.ndarray) -> None:
        """Remove all values of these slots."""
        _, entries = self.probe(slots)
        self.table.free(entries)
        self._map.remove(entries)
        self._index.free(entries)

    def _entries_of(self, slots: np.ndarray) -> np.ndarray:
        return self.probe(slots)[1]

    def _read(self, entries: np.ndarray) -> list[Column]:
        return [*self.values_of(entries), Column(_LONG, self.counts[entries])]


def _nothing(types: Sequence[t.LogicalType]) -> tuple[np.ndarray, np.ndarray, list[Column], np.ndarray]:
    none = np.empty(0, np.int64)
    return none, np.empty(0, np.int8), [Column.nulls(x, 0) for x in types], none


class _Remembering(Accumulator):
    """Keeps every distinct value with its count, and an inner accumulator over the distinct values."""

    def __init__(self, inner: Accumulator, arg_types: Sequence[t.LogicalType]) -> None:
        self.inner = inner
        self.keeps_nulls = inner.keeps_nulls
        self.values = ValueCounts(arg_types, self._load)
        self.values.table.ordered = inner.depends_on_order or inner.table() is not None

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes + self.values.nbytes

    def live_bytes(self, slots: int) -> int:
        return self.inner.live_bytes(slots) + self.values.live_bytes

    def reset(self, slots: np.ndarray, high: int) -> None:
        self.inner.reset(slots, high)

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        self._add(slots, args, None if signs is None else signs.astype(np.int64))

    def _add(self, slots: np.ndarray, args: Sequence[Column], weights: np.ndarray | None) -> None:
        raise NotImplementedError

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, _Remembering)
        rows, entries = other.values.probe(other_slots)
        self._add(slots[rows], other.values.values_of(entries), other.values.counts[entries])

    def partials(self, slots: np.ndarray) -> list[Column]:
        return []

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        pass  # there are no partial columns: all state is in ``table()``

    def table(self) -> EntryTable:
        return self.values.table

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._add(slots, columns[:-1], columns[-1].values)
        return self.values.find(slots, columns[:-1])

    def release(self, slots: np.ndarray) -> None:
        self.values.release(slots)
        self.inner.release(slots)

    def result(self, slots: np.ndarray) -> Column:
        return self.inner.result(slots)


class Distinct(_Remembering):
    """An aggregate over the distinct values of each slot (AGG(DISTINCT …))."""

    def _add(self, slots: np.ndarray, args: Sequence[Column], weights: np.ndarray | None) -> None:
        changed, signs, values, _ = self.values.add(slots, args, weights)
        if len(changed):
            self.inner.add(changed, values, None if (signs > 0).all() else signs)


class RetractableExtreme(_Remembering):
    """MIN or MAX over input that retracts. When the best value disappears, all values that remain in the slot
    are searched for the next one."""

    def __init__(self, inner: Accumulator, arg_type: t.LogicalType) -> None:
        super().__init__(inner, [arg_type])
        self._high = 0

    def reset(self, slots: np.ndarray, high: int) -> None:
        self._high = max(self._high, high)
        self.inner.reset(slots, high)

    def _add(self, slots: np.ndarray, args: Sequence[Column], weights: np.ndarray | None) -> None:
        changed, signs, values, _ = self.values.add(slots, args, weights)
        if not len(changed):
            return
        gone = np.flatnonzero(signs < 0)
        seek = np.empty(0, np.int64)
        if len(gone):
            was_best = equal_or_both_null(self.inner.result(changed[gone]), values[0].take(gone))
            seek = distinct(changed[gone[was_best]])
        come = np.flatnonzero(signs > 0)
        if len(come):
            self.inner.add(changed[come], [values[0].take(come)], None)
        if len(seek):
            self.inner.reset(seek, self._high)
            rows, entries = self.values.probe(seek)
            if len(rows):
                self.inner.add(seek[rows], self.values.values_of(entries), None)


class VariableExtreme(Accumulator):
    """MIN or MAX of strings, binaries and wide decimals. It cannot retract: it ignores signs."""

    def __init__(self, function: str, type_: t.LogicalType) -> None:
        self.type = type_.with_nullable(True)
        self.types = (self.type,)
        self._last = -1 if function == "MAX" else 0
        self._better = pc.greater if function == "MAX" else pc.less
        self._store = make_store(self.type)
        self._high = 0

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def live_bytes(self, slots: int) -> int:
        return int(slots * self._store.row_bytes)

    def reset(self, slots: np.ndarray, high: int) -> None:
        self._high = max(self._high, high)
        self._store.put(slots, Column.nulls(self.type, len(slots)), self._high)

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        if not len(slots):
            return
        column = args[0]
        if len(distinct(slots)) == len(slots):  # one value per slot, as in a restore
            targets, best = slots, column
        else:
            order = stable_argsort(order_codes(column))
            order = order[stable_argsort(slots[order])]
            bounds = group_bounds(slots[order])
            rows = order[bounds[1:] - 1] if self._last else order[bounds[:-1]]
            targets, best = slots[rows], column.take(rows)
        stored = self._store.take(targets)
        wins = pc.fill_null(self._better(best.values, stored.values), True)
        chosen = np.flatnonzero(wins.to_numpy(zero_copy_only=False))
        if len(chosen):
            self._store.put(targets[chosen], best.take(chosen).cast_type(self.type), self._high)

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        self.merge(slots, other.partials(other_slots))

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [self._store.take(slots)]

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        self._high = max(self._high, at.stop)
        self._store.put(np.arange(at.start, at.stop), partials[0].cast_type(self.type), self._high)

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        valid = partials[0].valid
        if valid is None:
            self.add(slots, partials, None)
        elif valid.any():
            self.add(slots[valid], [partials[0].filter(valid)], None)

    def result(self, slots: np.ndarray) -> Column:
        return self._store.take(slots)

    def release(self, slots: np.ndarray) -> None:
        self._store.clear(slots)
