"""All accumulators of one aggregation, by slot number: filters, NULLs, DISTINCT, state and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.columnar.accumulators import Accumulator, cell_accumulator
from penstock.errors import UnsupportedError
from penstock.functions.accumulators import EXTREMES, SUMS, VARIANCES, is_ordered_fixed
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from penstock.columnar.accumulators import EntryTable
    from penstock.functions.expr import AggregateCall


def make_accumulator(
    call: AggregateCall,
    arg_types: Sequence[t.LogicalType],
    *,
    retracts: bool = False,
    function: Callable[[str], Any] | None = None,
) -> Accumulator:
    """The accumulator of one call. ``arg_types``: the types of its arguments. ``retracts``: the input
    contains −U and −D. ``function`` loads a user's aggregate function; without it UnsupportedError is
    raised for such a call."""
    name = call.function.upper()
    if name == "APPROX_COUNT_DISTINCT" or (call.distinct and (call.python or name not in EXTREMES)):
        from penstock.columnar.multisets import Distinct

        plain = msgspec.structs.replace(
            call, distinct=False, function="COUNT" if name == "APPROX_COUNT_DISTINCT" else call.function
        )
        return Distinct(make_accumulator(plain, arg_types, retracts=retracts, function=function), arg_types)
    if call.python is not None:
        from penstock.columnar.python_aggregate import PythonAggregate

        if function is None:
            raise UnsupportedError("a Python aggregate needs the job's function table", got=call.python)
        return PythonAggregate.loaded(call.python, call.type, function)
    if name in EXTREMES and retracts:
        from penstock.columnar.multisets import RetractableExtreme

        inner = make_accumulator(call, arg_types)
        return RetractableExtreme(inner, arg_types[0])
    if name in EXTREMES and not is_ordered_fixed(arg_types[0]):
        from penstock.columnar.multisets import VariableExtreme

        return VariableExtreme(name, arg_types[0])
    if name == "COUNT" or name in SUMS or name in EXTREMES or name in VARIANCES:
        return cell_accumulator(call, arg_types)
    from penstock.columnar.sequences import sequence_accumulator

    return sequence_accumulator(call, arg_types, retracts=retracts)


class AggregateSet:
    """The accumulators of ``calls`` over an input with columns of ``input_types``. Slots are arrays of int64.

    ``retracts`` and ``function``: see ``make_accumulator``.
    """

    def __init__(
        self,
        calls: Sequence[AggregateCall],
        input_types: Sequence[t.LogicalType],
        *,
        retracts: bool = False,
        function: Callable[[str], Any] | None = None,
    ) -> None:
        self.calls = list(calls)
        self._input_types = list(input_types)
        self._retracts, self._function = retracts, function
        self.accumulators = [
            make_accumulator(c, [input_types[i] for i in c.args], retracts=retracts, function=function)
            for c in calls
        ]

    def fresh(self) -> AggregateSet:
        """An empty set for the same calls, for example to merge panes in."""
        return AggregateSet(self.calls, self._input_types, retracts=self._retracts, function=self._function)

    @property
    def columnar(self) -> bool:
        """Whether the state of every accumulator is a set of columns, without further entries."""
        return all(a.types for a in self.accumulators)

    @property
    def partial_types(self) -> list[t.LogicalType]:
        """The types of the columns of all accumulators."""
        return [x for a in self.accumulators for x in a.types]

    @property
    def partial_names(self) -> list[str]:
        """The names of these columns in a snapshot."""
        return [f"agg{i}.{j}" for i, a in enumerate(self.accumulators) for j in range(len(a.types))]

    def reset(self, slots: np.ndarray, high: int) -> None:
        """Makes ``slots`` empty. ``high``: one above the highest slot number in use."""
        for a in self.accumulators:
            a.reset(slots, high)

    def release(self, slots: np.ndarray) -> None:
        """Frees what the accumulators hold for ``slots``."""
        for a in self.accumulators:
            a.release(slots)

    def add(self, slots: np.ndarray, columns: Sequence[Column], signs: np.ndarray | None) -> None:
        """Adds input rows to their slots. ``columns``: all input columns; ``signs``: +1 or -1 for each row,
        None: all +1."""
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            keep = _counted_rows(call, accumulator, columns)
            args = [columns[i] for i in call.args]
            if keep is None:
                accumulator.add(slots, args, signs)
            elif len(keep):
                args = [a.take(keep) for a in args]
                accumulator.add(slots[keep], args, None if signs is None else signs[keep])

    def absorb(self, slots: np.ndarray, other: AggregateSet, other_slots: np.ndarray) -> None:
        """Merges the state of ``other_slots`` of another set into ``slots``."""
        for mine, theirs in zip(self.accumulators, other.accumulators, strict=True):
            mine.absorb(slots, theirs, other_slots)

    def partials(self, slots: np.ndarray) -> list[Column]:
        """Copies of the columns of ``slots``."""
        return [c for a in self.accumulators for c in a.partials(slots)]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        """Merges ``partials``, columns as ``partials()`` returns them, into ``slots``."""
        at = 0
        for a in self.accumulators:
            a.merge(slots, partials[at : at + len(a.types)])
            at += len(a.types)

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        """As ``merge``, into the range ``at`` of new slots."""
        column = 0
        for a in self.accumulators:
            a.load(at, partials[column : column + len(a.types)])
            column += len(a.types)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with allocated space that is not in use."""
        return sum(a.nbytes for a in self.accumulators)

    def live_bytes(self, slots: int) -> int:
        """Bytes of memory that so many slots in use take."""
        return sum(a.live_bytes(slots) for a in self.accumulators)

    def remembered(self) -> list[tuple[str, EntryTable]]:
        """(name in a snapshot, table of entries) for each accumulator with many entries for a slot."""
        found = [(_table_name(i), a.table()) for i, a in enumerate(self.accumulators)]
        return [(name, table) for name, table in found if table is not None]

    def touch_entries(self, slots: np.ndarray) -> None:
        """Announces that the leading columns of the entries of ``slots`` are about to change."""
        for accumulator in self.accumulators:
            table = accumulator.table()
            if table is not None and len(slots):
                table.write(table.entries_of(slots))

    def results(self, slots: np.ndarray) -> list[Column]:
        """The result columns of ``slots``, one for each call."""
        return [
            _as(call.type, a.result(slots)) for call, a in zip(self.calls, self.accumulators, strict=True)
        ]


def _table_name(i: int) -> str:
    return f"agg{i}.values"


def _as(type_: t.LogicalType, column: Column) -> Column:
    return column if column.type == type_ else column.cast_type(type_)


def _counted_rows(
    call: AggregateCall, accumulator: Accumulator, columns: Sequence[Column]
) -> np.ndarray | None:
    """The rows that an aggregate counts: FILTER is TRUE and no argument is NULL. None: all rows."""
    mask: np.ndarray | None = None
    if call.filter is not None:
        column = columns[call.filter]
        mask = column.values if column.valid is None else column.values & column.valid
    if call.args and not accumulator.keeps_nulls:
        # COUNT(a, b) and COUNT(DISTINCT a, b) skip a row with any NULL.
        for index in call.args:
            valid = columns[index].valid
            if valid is not None:
                mask = valid if mask is None else mask & valid
    return None if mask is None or mask.all() else np.flatnonzero(mask)
