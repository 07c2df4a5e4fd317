"""Table aggregate functions: they give several rows for a group.

The engine aggregates each group to an ARRAY of its rows, and unnests it. When a group changes, its earlier rows are taken
back and the new ones are added, as Flink does.
"""

from __future__ import annotations

import inspect
from typing import Any

from penstock.api.user_functions import AggregateFunction
from penstock.columnar.accumulator_rows import new_accumulator
from penstock.errors import SpecError
from penstock.types import logical as t


class TableAggregateFunction:
    """An aggregate function that gives several rows of a group: ``flat_aggregate(udtaf(…))``.

    ``retract(accumulator, *args)`` is needed over an updating input, ``merge(accumulator, [others])`` for session and
    sliding windows.
    """

    def open(self, context: Any) -> None:
        """Called once, before the first row. ``context``: as in ``ScalarFunction.open``."""

    def close(self) -> None:
        """Called once at the end."""

    def create_accumulator(self) -> Any:
        """The accumulator of no row: any object that pickles; a ``Row`` can be changed in place."""
        raise NotImplementedError

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        """Add one row to ``accumulator``; ``args``: the arguments, None for NULL."""
        raise NotImplementedError

    def emit_value(self, accumulator: Any) -> Any:
        """The rows of a group, yielded or returned: each a ``Row``, a tuple, or the value of the only column."""
        raise NotImplementedError


class _Counted:
    """An accumulator with the number of rows in it."""

    __slots__ = ("inner", "rows")

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.rows = 0


class RowsOfGroup(AggregateFunction):
    """An aggregate function whose value is the ARRAY of the rows that ``function`` emits; ``one``: of one column, bare."""

    def __init__(self, function: Any, one: bool) -> None:
        self._function = function
        self._one = one
        # The engine asks whether there is such a method.
        if hasattr(function, "retract"):
            self.retract = self._retract
        if hasattr(function, "merge"):
            self.merge = self._merge

    def open(self, context: Any) -> None:
        if hasattr(self._function, "open"):
            self._function.open(context)

    def close(self) -> None:
        if hasattr(self._function, "close"):
            self._function.close()

    def create_accumulator(self) -> Any:
        return _Counted(new_accumulator(self._function))

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        changed = self._function.accumulate(accumulator.inner, *args)
        accumulator.inner = accumulator.inner if changed is None else changed
        accumulator.rows += 1

    def _retract(self, accumulator: Any, *args: Any) -> Any:
        changed = self._function.retract(accumulator.inner, *args)
        accumulator.inner = accumulator.inner if changed is None else changed
        accumulator.rows -= 1

    def _merge(self, accumulator: Any, accumulators: Any) -> Any:
        others = list(accumulators)
        changed = self._function.merge(accumulator.inner, [other.inner for other in others])
        accumulator.inner = accumulator.inner if changed is None else changed
        accumulator.rows += sum(other.rows for other in others)

    def get_value(self, accumulator: Any) -> Any:
        if not accumulator.rows:
            return []  # Flink asks no group without rows
        emitted = self._function.emit_value(accumulator.inner)
        return [self._row(value) for value in emitted or ()]

    def _row(self, value: Any) -> Any:
        if not self._one:
            return tuple(value)
        return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def rows_type(declared: t.LogicalType | list[t.LogicalType] | tuple[t.LogicalType, ...]) -> t.ArrayType:
    """The type of the ARRAY of a function whose rows are ``declared``: a ROW, one column, or the types of several."""
    if isinstance(declared, (list, tuple)):
        fields = tuple(t.Field(f"f{i}", type_) for i, type_ in enumerate(declared))
        return t.ArrayType(t.RowType(fields) if len(fields) != 1 else fields[0].type)
    return t.ArrayType(declared)


def check_emits(function: Any) -> None:
    """Raises SpecError unless ``function`` has the methods of a table aggregate function."""
    missing = [
        name
        for name in ("create_accumulator", "accumulate", "emit_value")
        if not callable(getattr(function, name, None))
    ]
    if missing:
        raise SpecError(
            "udtaf of something that is no table aggregate function",
            expected="an object with create_accumulator, accumulate and emit_value",
            got=f"{function!r} without {', '.join(missing)}",
        )
    if inspect.iscoroutinefunction(function.accumulate):
        raise SpecError(
            "udtaf of an async function", expected="a plain accumulate", got=type(function).__name__
        )
