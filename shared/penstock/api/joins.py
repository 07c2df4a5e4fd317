"""Interval joins of keyed streams, on columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.clock_joins import Columns, clock_join
from penstock.api.common import duration_us
from penstock.api.function_slots import check_function
from penstock.api.transformations import Compiler, plain, transform
from penstock.api.window_results import with_time_column
from penstock.columnar.python_values import is_bare
from penstock.columnar.rows import make_row
from penstock.errors import SpecError, UnsupportedError
from penstock.functions.expr import InputRef
from penstock.jobgraph.specs import RecordTimeSpec
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.api.datastream import DataStream
    from penstock.api.keyed import KeyedStream


class IntervalJoin:
    """``left.interval_join(right).between(low, high)``: joins rows for which right.time lies in [left.time +
    low, left.time + high]."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        left_types = [left._keyed_step.schema.types[k].with_nullable(True) for k in left._keys]
        right_types = [right._keyed_step.schema.types[k].with_nullable(True) for k in right._keys]
        if left_types != right_types:
            raise SpecError(
                "a join of keys of different types",
                expected=", ".join(map(str, left_types)),
                got=", ".join(map(str, right_types)),
            )
        self._left = left
        self._right = right
        self._bounds: tuple[int, int] | None = None
        self._by_clock = False

    def in_event_time(self) -> IntervalJoin:
        """The distance of two records is that of their event times, as it is without this call."""
        self._by_clock = False
        return self

    def in_processing_time(self) -> IntervalJoin:
        """The distance of two records is that of their arrivals, by the clock of the subtask (ms). Bounds are whole ms."""
        self._by_clock = True
        return self

    def lower_bound_exclusive(self) -> IntervalJoin:
        """The lower bound itself is no match: 1 ms more is the least distance."""
        low, high = self._known()
        self._bounds = (low + 1_000, high)
        return self

    def upper_bound_exclusive(self) -> IntervalJoin:
        """The upper bound itself is no match: 1 ms less is the greatest distance."""
        low, high = self._known()
        self._bounds = (low, high - 1_000)
        return self

    def _known(self) -> tuple[int, int]:
        """The bounds, µs. SpecError if there are none yet."""
        if self._bounds is None:
            raise SpecError("an interval join without bounds", expected=".between(lower, upper)")
        return self._bounds

    def between(self, lower: Any, upper: Any) -> IntervalJoin:
        low, high = duration_us(lower, "lower bound"), duration_us(upper, "upper bound")
        if low > high:
            raise SpecError("an empty interval", expected="lower <= upper", got=f"{lower} … {upper}")
        self._bounds = (low, high)
        return self

    def inner(self) -> DataStream:
        """Rows with the columns of left, then those of right. A column of right whose name left has already
        gets a 0 appended."""
        return self._join("inner")

    def left(self) -> DataStream:
        """As ``inner``, and each left row without a match, with NULLs, once the watermark has passed its
        interval."""
        return self._join("left")

    def process(self, func: Any, output_type: t.LogicalType | None = None) -> DataStream:
        """The result of ``func(left, right)`` for every pair."""
        check_function(func, "interval join")
        if self._by_clock:
            low, high = self._known()
            return clock_join(self._left, self._right, (low // 1_000, high // 1_000), func, output_type)
        width = self._left._width
        left, right = self._left.schema, self._right.schema
        names = (
            None if is_bare(left) else tuple(left.names),
            None if is_bare(right) else tuple(right.names),
        )
        call = getattr(func, "process_element", func)
        return self.inner().map(_OfPair(call, width, names), output_type)

    def _join(self, kind: str) -> DataStream:
        low, high = self._known()
        left, right = self._left, self._right
        if self._by_clock and kind != "inner":
            raise UnsupportedError(
                "an outer join by the clock",
                expected="inner() or process(…), or an interval join by event time",
                got="left()",
            )
        if self._by_clock:
            fields = _unique([*left.schema.fields, *right.schema.fields])
            return clock_join(left, right, (low // 1_000, high // 1_000), Columns(), Schema(tuple(fields)))
        steps = (with_time_column(left._keyed_step), with_time_column(right._keyed_step))
        left_schema, right_schema = (s.schema for s in steps)
        left_time, right_time = len(left_schema) - 1, len(right_schema) - 1
        others = list(right_schema.fields)
        if kind == "left":
            others = [t.Field(f.name, f.type.with_nullable(True)) for f in others]
        both = Schema(tuple(_unique([*left_schema.fields, *others])))

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            return n.Join(
                left=inputs[0],
                right=inputs[1],
                kind=kind,  # type: ignore[arg-type]
                left_keys=left._keys,
                right_keys=right._keys,
                interval=(left_time, right_time, low, high),
                schema=both,
            )

        joined = plain(make, steps, both, "Interval Join")
        width = len(left_schema)
        wanted = [*range(left._width), *(width + i for i in range(right._width)), left_time]
        fields = _unique([*left_schema.fields[: left._width], *others[: right._width]])
        out = Schema((*fields, t.Field("__time", both.types[left_time])))
        refs = tuple(InputRef(i, both.types[i]) for i in wanted)
        kept = plain(
            lambda inputs, c: n.Project(input=inputs[0], expressions=refs, schema=out),
            (joined,),
            out,
            "Record",
        )
        spec = RecordTimeSpec(kind="assign", column=len(out) - 1, drop=True)
        timed = transform(lambda s, c: spec, (kept,), Schema(out.fields[:-1]), "Event time")
        return left._env.streams.plain(timed)


def _unique(fields: list[t.Field]) -> list[t.Field]:
    seen: set[str] = set()
    out = []
    for field in fields:
        name, number = field.name, 0
        while name in seen:
            name, number = f"{field.name}{number}", number + 1
        seen.add(name)
        out.append(t.Field(name, field.type))
    return out


class _OfPair:
    """Splits a joined row into the two records."""

    def __init__(
        self, function: Any, width: int, names: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    ) -> None:
        self.function = function
        self.width = width
        self.names = names

    def __call__(self, row: Any) -> Any:
        return self.function(
            _record(self.names[0], row[: self.width]), _record(self.names[1], row[self.width :])
        )


def _record(names: tuple[str, ...] | None, values: tuple[Any, ...]) -> Any:
    if names is None:
        return values[0]
    return make_row(names, values)
