"""Aggregates of ordered values: FIRST, LAST, LISTAGG, ARRAY_AGG, COLLECT, JSON, percentiles;
a user's aggregate function; variances of decimals."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columnar.accumulators import Accumulator, EntryTable
from penstock.columnar.equality import equal_or_both_null
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import first_of_each, last_of_each, position_in_group, stable_argsort
from penstock.columnar.store import RowStore, grown, make_store
from penstock.errors import FunctionError, PenstockError, UnsupportedError
from penstock.functions.python_calls import shown
from penstock.functions.python_results import MISFIT, allowed, first_misfit, result_of
from penstock.types import logical as t
from penstock.types.column import Column, external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import AggregateCall

_LONG = t.BigIntType(False)
FIRSTS = ("FIRST_VALUE", "FIRST")
#: What a user's accumulator counts as: nobody knows its size.
_OBJECT_BYTES = 128
LASTS = ("LAST_VALUE", "LAST", "SINGLE_VALUE")


def sequence_accumulator(
    call: AggregateCall, arg_types: Sequence[t.LogicalType], *, retracts: bool
) -> Accumulator:
    """The accumulator of a call that needs its values in order."""
    name = call.function.upper()
    if name in FIRSTS + LASTS:
        if not retracts:
            return FirstLast(name in FIRSTS, arg_types[0])
        return ValueSequence(call, arg_types, _last if name in LASTS else _first, keeps_nulls=False)
    finish, keeps_nulls = _FINISHERS.get(name, (None, False))
    if finish is None:
        raise UnsupportedError(
            f"the aggregate {call.function} is not known to this engine",
            expected="one of COUNT, SUM, AVG, MIN, MAX, STDDEV*, VAR*, FIRST_VALUE, LAST_VALUE, "
            + ", ".join(sorted(_FINISHERS)),
            got=call.function,
        )
    return ValueSequence(call, arg_types, finish, keeps_nulls=keeps_nulls and not call.ignore_nulls)


class FirstLast(Accumulator):
    """FIRST_VALUE or LAST_VALUE by order of arrival; NULLs are passed over, as in Flink."""

    def __init__(self, first: bool, type_: t.LogicalType) -> None:
        self._first = first
        self.type = type_.with_nullable(True)
        #: The value, and when it came (0: none yet).
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
    """All values of a slot in order of arrival; ``finish`` makes the result of them."""

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
        # By entry: its slot, and when it came (entries' numbers are used again).
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
        """Entries of the new values."""
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
        """Remove the first entry equal to each row; the k-th equal row takes the k-th."""
        rows, entries = self._map.probe(slots)
        same = np.ones(len(rows), np.bool_)
        for mine, column in zip(self._rows.take(entries), values, strict=True):
            same &= equal_or_both_null(mine, column.take(rows))
        rows, entries = rows[same], entries[same]
        if not len(rows):
            return
        # Rows of equal slot and value found the same first entry.
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
        pass  # no columnar state: everything is in the table below

    def table(self) -> EntryTable:
        return self._table

    def _slots_of(self, entries: np.ndarray) -> np.ndarray:
        return self._slot_of[entries]

    def _entries_of(self, slots: np.ndarray) -> np.ndarray:
        return self._map.probe(slots)[1]

    def _read(self, entries: np.ndarray) -> list[Column]:
        return [*self._rows.take(entries), Column(_LONG, self._arrival[entries])]

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        # Snapshots of version 1 have no arrivals; their rows stand in order.
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


# -- finishers: (call, value columns, offsets of n + 1) → one value a slot --------------------


def _edge(call: AggregateCall, column: Column, offsets: np.ndarray, at: np.ndarray) -> Column:
    return column.take_or_null(np.where(np.diff(offsets) > 0, at, -1)).cast_type(call.type)


def _first(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    return _edge(call, args[0], offsets, offsets[:-1])


def _last(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    return _edge(call, args[0], offsets, offsets[1:] - 1)


def _lists(values: pa.Array, offsets: np.ndarray) -> pa.ListArray:
    """Lists of values; an empty one is NULL."""
    marks = pa.array(offsets.astype(np.int32), mask=np.append(np.diff(offsets) == 0, False))
    return pa.ListArray.from_arrays(marks, values)


def _listagg(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    separator = str(call.constants[0]) if call.constants else ","
    return Column(call.type, pc.binary_join(_lists(args[0].values, offsets), separator))


def _array_agg(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    lists = _lists(args[0].to_external_arrow(), offsets)
    return Column(call.type, lists.cast(external_arrow_type(call.type)))


def _per_slot(
    call: AggregateCall,
    args: list[Column],
    offsets: np.ndarray,
    one: Callable[..., Any],
    *,
    of_nothing: bool = False,
) -> Column:
    """One Python value a slot from lists of Python values (of no rows: None, unless
    ``of_nothing``)."""
    lists = [a.to_pylist() for a in args]
    out = []
    for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        out.append(one(*(values[low:high] for values in lists)) if high > low or of_nothing else None)
    return Column.of(call.type, out)


def _collect(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    return _per_slot(call, args, offsets, lambda values: list(Counter(values).items()), of_nothing=True)


def _json_value(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None), list, dict)) else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _json_array(absent: bool) -> Callable[[AggregateCall, list[Column], np.ndarray], Column]:
    def one(values: list[Any]) -> str:
        return _json([_json_value(v) for v in values if not (absent and v is None)])

    return lambda call, args, offsets: _per_slot(call, args, offsets, one, of_nothing=True)


def _json_object(absent: bool) -> Callable[[AggregateCall, list[Column], np.ndarray], Column]:
    def one(keys: list[Any], values: list[Any]) -> str:
        pairs = zip(keys, values, strict=True)
        return _json({str(k): _json_value(v) for k, v in pairs if not (absent and v is None)})

    return lambda call, args, offsets: _per_slot(call, args, offsets, one)


def _percentile(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    """Linear interpolation between the two nearest of the sorted values."""
    wanted = call.constants[0] if call.constants else None

    def one(values: list[Any], *more: list[Any]) -> Any:
        points = wanted if wanted is not None else more[0][0]
        weights = more[-1] if len(more) > (wanted is None) else None
        pairs = sorted(zip(map(float, values), weights or [1] * len(values), strict=True))
        spread = [v for v, w in pairs for _ in range(int(w))]
        if not spread:
            return None

        def at(p: float) -> float:
            position = (len(spread) - 1) * float(p)
            low = int(position)
            high = min(low + 1, len(spread) - 1)
            return spread[low] + (position - low) * (spread[high] - spread[low])

        return [at(p) for p in points] if isinstance(points, (list, tuple)) else at(points)

    return _per_slot(call, args, offsets, one)


_FINISHERS: dict[str, tuple[Callable[[AggregateCall, list[Column], np.ndarray], Column], bool]] = {
    "LISTAGG": (_listagg, False),
    "STRING_AGG": (_listagg, False),
    "ARRAY_AGG": (_array_agg, True),
    "COLLECT": (_collect, False),
    "PERCENTILE": (_percentile, False),
    "JSON_ARRAYAGG": (_json_array(absent=True), True),
    "JSON_ARRAYAGG_ABSENT_ON_NULL": (_json_array(absent=True), True),
    "JSON_ARRAYAGG_NULL_ON_NULL": (_json_array(absent=False), True),
    "JSON_OBJECTAGG": (_json_object(absent=False), True),
    "JSON_OBJECTAGG_NULL_ON_NULL": (_json_object(absent=False), True),
    "JSON_OBJECTAGG_ABSENT_ON_NULL": (_json_object(absent=True), True),
}


class PythonAggregate(Accumulator):
    """A user's AggregateFunction: ``create_accumulator``, ``accumulate(acc, *args)``,
    ``get_value(acc)``, and where needed ``retract`` and ``merge``. An accumulator is any
    object that pickles; ``accumulate`` may return a new one."""

    keeps_nulls = True
    types = (t.RawType(),)

    def __init__(self, function: Any, type_: t.LogicalType) -> None:
        self._function, self.type = function, type_
        declared = getattr(function, "penstock_function", None) or {}
        self._per_batch = declared.get("per") == "batch"
        self._state = np.full(1024, None, object)

    @property
    def nbytes(self) -> int:
        return self.live_bytes(len(self._state))

    def live_bytes(self, slots: int) -> int:
        return slots * _OBJECT_BYTES

    def reset(self, slots: np.ndarray, high: int) -> None:
        self._state = grown(self._state, high, None)
        for slot in slots.tolist():
            self._state[slot] = self._function.create_accumulator()

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        if self._per_batch:
            self._add_batches(slots, args, signs)
            return
        lists = [a.to_pylist() for a in args]
        rows = zip(*lists, strict=True) if lists else iter([()] * len(slots))
        adding = [True] * len(slots) if signs is None else (signs > 0).tolist()
        for slot, values, adds in zip(slots.tolist(), rows, adding, strict=True):
            self._step("accumulate" if adds else "retract", slot, values)

    def _add_batches(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        """One call a key (and direction) with Arrow arrays of all its rows in the batch."""
        adding = np.ones(len(slots), np.bool_) if signs is None else signs > 0
        for direction, method in ((True, "accumulate"), (False, "retract")):
            rows = np.flatnonzero(adding == direction)
            order = rows[np.argsort(slots[rows], kind="stable")]
            found, starts = np.unique(slots[order], return_index=True)
            for slot, part in zip(found.tolist(), np.split(order, starts[1:]), strict=bool(len(found))):
                self._step(method, slot, [a.take(part).to_external_arrow() for a in args])

    def _step(self, method: str, slot: int, values: Sequence[Any]) -> None:
        step = self._method(method)
        try:
            changed = step(self._state[slot], *values)
        except Exception as err:
            raise self._failed(err, method, values) from err
        if changed is not None:
            self._state[slot] = changed

    def _failed(self, err: Exception, method: str, values: Sequence[Any]) -> Exception:
        if isinstance(err, PenstockError):
            return err
        name = type(self._function).__name__
        frames = err.__traceback__.tb_next if err.__traceback__ else None
        return FunctionError(
            f"{method}() of the aggregate function {name} raised {type(err).__name__}: {err}",
            got=f"arguments {shown(tuple(values))}" if values else None,
            where=f"function {name}.{method}",
            remedy="correct the function, or filter such records out before it",
            user_traceback="".join(traceback.format_exception(type(err), err, frames)),
        )

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, PythonAggregate)
        self._merge(slots, other._state[other_slots])

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [Column(t.RawType(), self._state[slots])]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        for slot, accumulator in zip(slots.tolist(), partials[0].values, strict=True):
            self._state[slot] = accumulator

    def _merge(self, slots: np.ndarray, accumulators: np.ndarray) -> None:
        merge = self._method("merge")
        for slot, accumulator in zip(slots.tolist(), accumulators, strict=True):
            changed = merge(self._state[slot], [accumulator])
            if changed is not None:
                self._state[slot] = changed

    def _method(self, name: str) -> Any:
        method = getattr(self._function, name, None)
        if method is None:
            raise FunctionError(
                f"the aggregate function {type(self._function).__name__} has no {name}()",
                expected=f"a method {name}, since "
                + ("its input retracts rows" if name == "retract" else "its windows share panes"),
                got="none",
                remedy=f"define {name} in the class",
            )
        return method

    def result(self, slots: np.ndarray) -> Column:
        values = []
        for slot in slots.tolist():
            try:
                values.append(self._function.get_value(self._state[slot]))
            except Exception as err:
                raise self._failed(err, "get_value", ()) from err
        try:
            return result_of(self.type, values)
        except MISFIT as err:
            found = first_misfit(self.type, values)
            raise FunctionError(
                f"the aggregate function {type(self._function).__name__} gave something that is no {self.type}",
                expected=allowed(self.type),
                got=str(err) if found is None else f"{shown(found[1:])} ({type(found[1]).__name__})",
                where=f"function {type(self._function).__name__}.get_value",
                remedy="correct get_value, or declare another result_type",
            ) from err

    def release(self, slots: np.ndarray) -> None:
        self._state[slots] = None
