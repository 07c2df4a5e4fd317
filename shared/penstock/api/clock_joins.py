"""Interval joins by the clock: records of two keyed streams that arrive near each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.process_steps import output_schema, process_step
from penstock.api.typeinfo import type_of
from penstock.columnar.record_classes import taken_apart
from penstock.state.descriptors import MapStateDescriptor
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.api.datastream import DataStream
    from penstock.api.keyed import KeyedStream


def clock_join(
    left: KeyedStream,
    right: KeyedStream,
    bounds_ms: tuple[int, int],
    function: Any,
    output: t.Schema | t.LogicalType | None,
) -> DataStream:
    """The records that ``function`` makes of each pair for which right's arrival − left's lies in ``bounds_ms``.

    ``output``: the result's columns, or its type (None: the function's annotation).
    """
    schema = output if isinstance(output, t.Schema) else output_schema(function, output, "process_element")
    joined = ByClock(function, bounds_ms, type_of(left.schema), type_of(right.schema))
    return process_step(
        left._env, [left.input, right.input], "co-process", joined, None, "fail", schema=schema, name="Interval Join",
    )  # fmt: skip


class ByClock:
    """A ``CoProcessFunction`` that keeps records as long as the clock may bring a partner.

    Args:
        function: Gets a pair.
        bounds_ms: Least and greatest (right's arrival − left's).
        left: Type of a left record.
        right: Type of a right record.
    """

    def __init__(
        self, function: Any, bounds_ms: tuple[int, int], left: t.LogicalType, right: t.LogicalType
    ) -> None:
        self.function = function
        self.low, self.high = bounds_ms
        self.types = (left, right)

    def open(self, context: Any) -> None:
        opener = getattr(self.function, "open", None)
        if opener is not None:
            opener(context)
        self._call = getattr(self.function, "process_element", self.function)
        long = t.BigIntType()
        self._left, self._right = (
            context.get_map_state(MapStateDescriptor(name, long, t.ArrayType(type_)))
            for name, type_ in zip(("left", "right"), self.types, strict=True)
        )

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def process_element1(self, value: Any, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        if self.high >= 0:  # a right record may still come
            self._keep(self._left, value, now, now + self.high + 1, ctx)
        for time, rows in sorted(self._right.items()):
            if self.low <= time - now <= self.high:
                for row in rows:
                    yield self._call(value, row)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        if self.low <= 0:  # a left record may still come
            self._keep(self._right, value, now, now - self.low + 1, ctx)
        for time, rows in sorted(self._left.items()):
            if self.low <= now - time <= self.high:
                for row in rows:
                    yield self._call(row, value)

    def _keep(self, state: Any, value: Any, now: int, until: int, ctx: Any) -> None:
        state.put(now, [*(state.get(now) or ()), value])
        ctx.timer_service().register_processing_time_timer(until)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        if self.high >= 0:
            self._left.remove(timestamp - self.high - 1)
        if self.low <= 0:
            self._right.remove(timestamp + self.low - 1)


class Columns:
    """The columns of both records as one."""

    def __call__(self, left: Any, right: Any) -> Any:
        return (*_values(left), *_values(right))


def _values(record: Any) -> Any:
    values = taken_apart(record)
    return values if isinstance(values, (tuple, list)) else (values,)
