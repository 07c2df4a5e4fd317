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
    """A stream by key. Made by ``DataStream.key_by``.

    ``env``: its environment; ``step``: the step that makes it; ``keys``: numbers of the key columns; ``width``:
    the records are the first so many columns.
    """

    def __init__(
        self, env: StreamExecutionEnvironment, step: Transformation, keys: tuple[int, ...], width: int
    ) -> None:
        self._env = env
        self._step = step
        self._keys = keys
        self._width = width

    @property
    def schema(self) -> Schema:
        """Names and types of the records' columns."""
        return Schema(self._step.schema.fields[: self._width])

    @property
    def input(self) -> Input:
        """The stream as the input of a process step: step, key columns, width."""
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
        """The records that a keyed process function emits, with state and timers for each key.

        Args:
            func: A ``KeyedProcessFunction``.
            output_type: As in ``DataStream.map``.
            batch: ``func`` is called once for each key and batch, with the key's rows as an Arrow record batch.
            on_error: As in ``DataStream.map``.
        """
        return process_step(
            self._env, [self.input], "process", func, output_type, on_error, batch=batch, name="KeyedProcess"
        )

    def reduce(self, func: Any, *, on_error: str = "fail") -> DataStream:
        """The running reduction: each record gives the new value of its key.

        Args:
            func: A ``ReduceFunction``, or a callable of the value so far and the record.
            on_error: As in ``DataStream.map``.
        """
        return process_step(
            self._env, [self.input], "reduce", func, None, on_error, schema=self.schema, name="Keyed Reduce"
        )

    def _running(self, how: str, column: str | int) -> DataStream:
        untyped = is_untyped(self.schema)
        index = column if untyped else column_index(self.schema, column, how)
        return self.reduce(Running(how, index, self.schema)).name(f"Keyed {how}")

    def sum(self, column: str | int = 0) -> DataStream:
        """Each record with the sum of ``column`` so far; its other fields are those of the key's first record."""
        return self._running("sum", column)

    def min(self, column: str | int = 0) -> DataStream:
        """Each record with the smallest ``column`` so far; its other fields are those of the key's first record."""
        return self._running("min", column)

    def max(self, column: str | int = 0) -> DataStream:
        """Each record with the greatest ``column`` so far; its other fields are those of the key's first record."""
        return self._running("max", column)

    def min_by(self, column: str | int = 0) -> DataStream:
        """For each record the whole record with the smallest ``column`` so far."""
        return self._running("min_by", column)

    def max_by(self, column: str | int = 0) -> DataStream:
        """For each record the whole record with the greatest ``column`` so far."""
        return self._running("max_by", column)

    # -- windows, joins, connections ------------------------------------------------------------

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """The stream in the windows of ``assigner``."""
        return self._env.streams.windowed(self, assigner)

    def count_window(self, size: int) -> WindowedStream:
        """A window of every ``size`` records of a key."""
        return self.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(size)))

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs of records with equal keys whose event times are near: ``.between(low, high)`` bounds their distance.

        ``other``: the right side.
        """
        return self._env.streams.interval_join(self, other)

    def connect(self, other: DataStream | KeyedStream | BroadcastStream) -> ConnectedStreams:
        """This stream and ``other`` as the two inputs of one function."""
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
