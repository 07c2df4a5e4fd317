"""``KeyedStream``: records by key; process functions, running aggregates, windows, joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.process_steps import Input, process_step
from penstock.api.selectors import column_index, field_position, is_untyped
from penstock.api.windows import GlobalWindows
from penstock.columnar.python_values import is_bare, is_tuple, row_class
from penstock.operators.window_functions import CountTrigger, PurgingTrigger
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.api.connected import BroadcastStream, ConnectedStreams
    from penstock.api.datastream import DataStream
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.joins import IntervalJoin
    from penstock.api.transformations import Transformation
    from penstock.api.windowed import WindowedStream
    from penstock.api.windows import WindowAssigner
    from penstock.types import logical as t


class KeyedStream:
    """``keys``: key columns; records are the first ``width`` columns."""

    def __init__(
        self, env: StreamExecutionEnvironment, step: Transformation, keys: tuple[int, ...], width: int
    ) -> None:
        self._env = env
        self._step = step
        self._keys = keys
        self._width = width

    @property
    def schema(self) -> Schema:
        """Of the records."""
        return Schema(self._step.schema.fields[: self._width])

    @property
    def input(self) -> Input:
        return self._step, self._keys, self._width

    # -- functions --------------------------------------------------------------------------

    def process(
        self,
        func: Any,
        output_type: t.LogicalType | None = None,
        *,
        batch: bool = False,
        on_error: str = "fail",
    ) -> DataStream:
        """A ``KeyedProcessFunction``: state and timers per key. ``batch``: it is called once per
        key and batch with that key's rows as an Arrow record batch."""
        return process_step(
            self._env, [self.input], "process", func, output_type, on_error, batch=batch, name="KeyedProcess"
        )

    def reduce(self, func: Any, *, on_error: str = "fail") -> DataStream:
        """The running reduction: each record gives its key's new value."""
        return process_step(
            self._env, [self.input], "reduce", func, None, on_error, schema=self.schema, name="Keyed Reduce"
        )

    def _running(self, how: str, column: str | int) -> DataStream:
        untyped = is_untyped(self.schema)
        index = column if untyped else column_index(self.schema, column, how)
        return self.reduce(Running(how, index, self.schema)).name(f"Keyed {how}")

    def sum(self, column: str | int = 0) -> DataStream:
        """Each record with the column's sum so far; other fields as in the key's first record."""
        return self._running("sum", column)

    def min(self, column: str | int = 0) -> DataStream:
        return self._running("min", column)

    def max(self, column: str | int = 0) -> DataStream:
        return self._running("max", column)

    def min_by(self, column: str | int = 0) -> DataStream:
        """The whole record with the smallest value so far."""
        return self._running("min_by", column)

    def max_by(self, column: str | int = 0) -> DataStream:
        return self._running("max_by", column)

    # -- windows, joins, connections ------------------------------------------------------------

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        return self._env.streams.windowed(self, assigner)

    def count_window(self, size: int) -> WindowedStream:
        """Every ``size`` records of a key."""
        return self.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(size)))

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs of equal keys whose event times are within bounds: ``.between(low, high)``."""
        return self._env.streams.interval_join(self, other)

    def connect(self, other: DataStream | KeyedStream | BroadcastStream) -> ConnectedStreams:
        """This stream and another for one function with two inputs."""
        return self._env.streams.connected(self, other)


class Running:
    """The reduce function of ``sum``, ``min``, ``max``, ``min_by``, ``max_by`` on one column."""

    def __init__(self, how: str, index: int | str, schema: Schema) -> None:
        self.how = how
        self.index: Any = index
        self.untyped = is_untyped(schema)
        self.bare = is_bare(schema) and not self.untyped
        self.names = None if is_tuple(schema) else tuple(schema.names)

    def reduce(self, first: Any, second: Any) -> Any:
        if self.bare:
            return self._combined(first, second)
        i = self.index
        if self.untyped:
            i = field_position(first, i)
            if i is None:
                return self._combined(first, second)
        if self.how.endswith("_by"):
            better = self._combined(first[i], second[i])
            return first if better == first[i] else second
        values = (*first[:i], self._combined(first[i], second[i]), *first[i + 1 :])
        if self.untyped:
            return list(values) if isinstance(first, list) else tuple.__new__(type(first), values)
        return values if self.names is None else tuple.__new__(row_class(self.names), values)

    def _combined(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        match self.how:
            case "sum":
                return a + b
            case "min" | "min_by":
                return b if b < a else a
        return b if b > a else a
