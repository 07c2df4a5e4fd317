"""Aggregates that depend on the order of arrival: the first value, the last value, or all values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.accumulators import Accumulator, EntryTable
from penstock.columnar.equality import equal_or_both_null
from penstock.columnar.finishers import FINISHERS, first_value, last_value
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import first_of_each, last_of_each, position_in_group, stable_argsort
from penstock.columnar.store import RowStore, grown, make_store
from penstock.errors import UnsupportedError
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import AggregateCall

_LONG = t.BigIntType(False)
FIRSTS = ("FIRST_VALUE", "FIRST")
LASTS = ("LAST_VALUE", "LAST", "SINGLE_VALUE")


def sequence_accumulator(
    call: AggregateCall, arg_types: Sequence[t.LogicalType], *, retracts: bool
) -> Accumulator:
    """The accumulator of a call that depends on the order of arrival. ``retracts``: the input retracts rows.

    Raises:
        UnsupportedError: this engine does not know the aggregate.
    """
    name = call.function.upper()
    if name in FIRSTS + LASTS:
        if not retracts:
            return FirstLast(name in FIRSTS, arg_types[0])
        return ValueSequence(call, arg_types, last_value if name in LASTS else first_value, keeps_nulls=False)
    finish, keeps_nulls = FINISHERS.get(name, (None, False))
    if finish is None:
        raise UnsupportedError(
            f"the aggregate {call.function} is not known to this engine",
            expected="one of COUNT, SUM, AVG, MIN, MAX, STDDEV*, VAR*, FIRST_VALUE, LAST_VALUE, "
            + ", ".join(sorted(FINISHERS)),
            got=call.function,
        )
    return ValueSequence(call, arg_types, finish, keeps_nulls=keeps_nulls and not call.ignore_nulls)


class FirstLast(Accumulator):
    """FIRST_VALUE or LAST_VALUE by order of arrival, without NULLs, as in Flink. It cannot retract."""

    def __init__(self, first: bool, type_: t.LogicalType) -> None:
        self._first = first
        self.type = type_.with_nullable(True)
        #: The value and its arrival number (0: no value yet).
        self.types = (self.type, _LONG)
        self._store = make_store(self.type)
        self._arrival = np.zeros(1024, np.int64)
        self._next = 1
        self._high = 0

    @property
    def nbytes(self) -> int:
        return self._store.nbytes + self._arrival.nbytes

    def live_bytes(self, slots: int) -> int:
        return int(slots * (self._store.row_bytes + 8))

    def reset(self, slots: np.ndarray, high: int) -> None:
        self._high = max(self._high, high)
        self._arrival = grown(self._arrival, self._high)
        self._arrival[slots] = 0
        self._store.put(slots, Column.nulls(self.type, len(slots)), self._high)

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        arrivals = np.arange(self._next, self._next + len(slots))
        self._next += len(slots)
        self._take(slots, args[0], arrivals)

    def _take(self, slots: np.ndarray, column: Column, arrivals: np.ndarray) -> None:
        rows = first_of_each(slots) if self._first else last_of_each(slots)
        have, come = self._arrival[slots[rows]], arrivals[rows]
        wins = (have == 0) | (come < have) if self._first else come > have
        rows = rows[wins]
        if len(rows):
            self._store.put(slots[rows], column.take(rows).cast_type(self.type), self._high)
            self._arrival[slots[rows]] = arrivals[rows]

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        self.merge(slots, other.partials(other_slots))

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [self._store.take(slots), Column(_LONG, self._arrival[slots])]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        arrivals = partials[1].values
        known = np.flatnonzero(arrivals > 0)
        if not len(known):
            return
        self._next = max(self._next, int(arrivals.max()) + 1)
        order = known[stable_argsort(arrivals[known])]
        self._take(slots[order], partials[0].take(order), arrivals[order])

    def result(self, slots: np.ndarray) -> Column:
        return self._store.take(slots)

    def release(self, slots: np.ndarray) -> None:
        self._store.clear(slots)


class ValueSequence(Accumulator):
    """Keeps all values of a slot in order of arrival; ``finish`` (see ``finishers``) computes the result."""

    def __init__(
        self,
        call: AggregateCall,
        arg_types: Sequence[t.LogicalType],
        finish: Callable[[AggregateCall, list[Column], np.ndarray], Column],
        *,
        keeps_nulls: bool,
    ) -> None:
        self.call, self._finish, self.keeps_nulls = call, finish, keeps_nulls
        self._types = list(arg_types)
        self._rows = RowStore(arg_types)
        self._map = MultiMap()
        # The slot and the arrival number of each entry. Freed entries are reused, so they give no order.
        self._slot_of = np.zeros(1024, np.int64)
        self._arrival = np.zeros(1024, np.int64)
        self._next = 1
        self._table = EntryTable(
            [*self._types, _LONG], self._read, self._slots_of, self._entries_of, self._load, ordered=True
        )

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._map.nbytes + 2 * self._arrival.nbytes

    def live_bytes(self, slots: int) -> int:
        return self._rows.live_bytes + self._map.live_bytes + 16 * len(self._rows)

    def reset(self, slots: np.ndarray, high: int) -> None:
        pass

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        come = slots if signs is None else slots[signs > 0]
        values = list(args) if signs is None else [a.filter(signs > 0) for a in args]
        if len(come):
            self._append(come, values)
        if signs is not None and len(come) < len(slots):
            self._take_back(slots[signs < 0], [a.filter(signs < 0) for a in args])

    def _append(self, slots: np.ndarray, values: Sequence[Column]) -> np.ndarray:
        """Store the values; return their entries."""
        n = len(slots)
        entries = self._rows.append(values, n)
        self._slot_of = grown(self._slot_of, self._rows.slots.high)
        self._arrival = grown(self._arrival, self._rows.slots.high)
        self._table.write(entries)
        self._slot_of[entries] = slots
        self._arrival[entries] = np.arange(self._next, self._next + n)
        self._next += n
        self._map.add(slots, entries)
        return entries

    def _take_back(self, slots: np.ndarray, values: list[Column]) -> None:
        """Remove the first entry that equals each row; the k-th of several equal rows removes the k-th entry."""
        rows, entries = self._map.probe(slots)
        same = np.ones(len(rows), np.bool_)
        for mine, column in zip(self._rows.take(entries), values, strict=True):
            same &= equal_or_both_null(mine, column.take(rows))
        rows, entries = rows[same], entries[same]
        if not len(rows):
            return
        # Rows with the same slot and value found the same first entry.
        starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
        owner, first = rows[starts], entries[starts]
        order = stable_argsort(first)
        rank = np.zeros(len(slots), np.int64)
        rank[owner[order]] = position_in_group(first[order])
        chosen = position_in_group(rows) == rank[rows]
        self._remove(entries[chosen])

    def _remove(self, entries: np.ndarray) -> None:
        self._table.free(entries)
        self._map.remove(entries)
        self._rows.free(entries)

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, ValueSequence)
        rows, entries = other._map.probe(other_slots)
        if len(rows):
            self.add(slots[rows], other._rows.take(entries), None)

    def partials(self, slots: np.ndarray) -> list[Column]:
        return []

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        pass  # there are no partial columns: all state is in ``table()``

    def table(self) -> EntryTable:
        return self._table

    def _slots_of(self, entries: np.ndarray) -> np.ndarray:
        return self._slot_of[entries]

    def _entries_of(self, slots: np.ndarray) -> np.ndarray:
        return self._map.probe(slots)[1]

    def _read(self, entries: np.ndarray) -> list[Column]:
        return [*self._rows.take(entries), Column(_LONG, self._arrival[entries])]

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        # Snapshots of version 1 have no arrival numbers; their rows are in order.
        order = stable_argsort(columns[-1].values)
        entries = np.empty(len(slots), np.int64)
        entries[order] = self._append(slots[order], [c.take(order) for c in columns[:-1]])
        return entries

    def result(self, slots: np.ndarray) -> Column:
        rows, entries = self._map.probe(slots)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(slots)))))
        return self._finish(self.call, self._rows.take(entries), offsets.astype(np.int64))

    def release(self, slots: np.ndarray) -> None:
        _, entries = self._map.probe(slots)
        self._remove(entries)
