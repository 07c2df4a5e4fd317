"""``KeyedStream``: records by key; process functions, running aggregates, windows, joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.datastream import DataStream
from penstock.api.function_slots import check_function
from penstock.api.functions import Function
from penstock.api.process_steps import Input, output_schema, process_step
from penstock.api.selectors import column_index, field_position, is_untyped
from penstock.api.typeinfo import type_of
from penstock.api.windows import GlobalWindows, count_windows
from penstock.columnar.python_values import is_bare, is_tuple
from penstock.columnar.record_classes import maker, taken_apart
from penstock.errors import UnsupportedError
from penstock.operators.window_functions import CountTrigger, PurgingTrigger

if TYPE_CHECKING:
    from typing import Self

    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.joins import IntervalJoin
    from penstock.api.transformations import Transformation
    from penstock.api.window_assigner import WindowAssigner
    from penstock.api.windowed import WindowedStream
    from penstock.types import logical as t
    from penstock.types.logical import Schema


class KeyedStream(DataStream):
    """A stream by key. Made by ``DataStream.key_by``.

    The methods of a stream without keys (``map``, ``union``, ``sink_to`` …) work on the records, without
    their keys.
    Settings of a step (``name``, ``uid`` …) belong to the step before ``key_by``.

    ``env``: the environment; ``records``: the step that makes the records; ``step``: the step that adds the
    keys behind the records' columns; ``keys``: numbers of the key columns of ``step``.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        records: Transformation,
        step: Transformation,
        keys: tuple[int, ...],
    ) -> None:
        super().__init__(env, records)
        self._keyed_step = step
        self._keys = keys
        self._width = len(records.schema)

    @property
    def input(self) -> Input:
        """The stream as the input of a process step: step, key columns, width."""
        return self._keyed_step, self._keys, self._width

    def name(self, name: str) -> Self:
        """Refused: a keyed stream is no step.

        Raises:
            UnsupportedError: Always.
        """
        return self._set("name", name)

    def _set(self, attribute: str, value: Any) -> Self:
        raise UnsupportedError(
            f"{attribute} cannot be set on a keyed stream",
            expected="a step: key_by only says where records meet",
            remedy="set it on the step before key_by, or on the process, reduce or window step after it",
        )

    def _partitioned(self, partitioning: Any, name: str) -> DataStream:
        """Refused: a keyed stream is partitioned by its keys.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"{name}: cannot override partitioning for KeyedStream",
            expected="a stream without keys",
            got="a keyed stream, whose keys say where records meet",
            remedy="call it before key_by, or on the stream that the next step gives",
        )

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        """Refused: a keyed stream is partitioned by its keys.

        Args:
            partitioner: As in ``DataStream``.
            key_selector: As in ``DataStream``.

        Raises:
            UnsupportedError: Always.
        """
        return self._partitioned(None, "Partition Custom")

    # -- functions --------------------------------------------------------------------------

    def map(
        self,
        func: Any,
        output_type: t.LogicalType | None = None,
        *,
        batch: bool = False,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits one record for each record, as
        ``DataStream.map``; ``open`` of a ``MapFunction`` may ask for keyed state."""
        return self._stateful("map", func, output_type, on_error) or super().map(
            func, output_type, batch=batch, on_error=on_error
        )

    def flat_map(
        self,
        func: Any,
        output_type: t.LogicalType | None = None,
        *,
        batch: bool = False,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits any number of records for each record, as
        ``DataStream.flat_map``; ``open`` may ask for keyed state."""
        return self._stateful("flat_map", func, output_type, on_error) or super().flat_map(
            func, output_type, batch=batch, on_error=on_error
        )

    def filter(self, func: Any, *, batch: bool = False, on_error: str = "fail") -> DataStream:
        """The records for which ``func`` is true, as ``DataStream.filter``; ``open`` may ask for keyed state."""
        return self._stateful("filter", func, type_of(self.schema), on_error) or super().filter(
            func, batch=batch, on_error=on_error
        )

    def _stateful(self, kind: str, func: Any, output_type: Any, on_error: str) -> DataStream | None:
        """The process step for a function object that defines ``open`` and may therefore use keyed state;
        None for other functions, which need no keys."""
        opener = getattr(type(func), "open", None)
        if opener is None or opener is Function.open:
            return None
        check_function(func, kind)
        out = self.schema if kind == "filter" else output_schema(func, output_type, kind)
        return process_step(
            self._env, [self.input], "process", PerRecord(func, kind), None, on_error,
            schema=out, name=f"Keyed {kind}",
        )  # fmt: skip

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

    def sum(self, position_to_sum: str | int = 0) -> DataStream:
        """Each record with the sum of ``position_to_sum`` so far; its other fields are those of the key's first record."""
        return self._running("sum", position_to_sum)

    def min(self, position_to_min: str | int = 0) -> DataStream:
        """Each record with the smallest ``position_to_min`` so far; its other fields are those of the key's first record."""
        return self._running("min", position_to_min)

    def max(self, position_to_max: str | int = 0) -> DataStream:
        """Each record with the greatest ``position_to_max`` so far; its other fields are those of the key's first record."""
        return self._running("max", position_to_max)

    def min_by(self, position_to_min_by: str | int = 0) -> DataStream:
        """For each record the whole record with the smallest ``position_to_min_by`` so far."""
        return self._running("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: str | int = 0) -> DataStream:
        """For each record the whole record with the greatest ``position_to_max_by`` so far."""
        return self._running("max_by", position_to_max_by)

    # -- windows, joins, connections ------------------------------------------------------------

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """The stream in the windows of ``window_assigner``."""
        return self._env.streams.windowed(self, window_assigner)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Windows of ``size`` records of a key. With ``slide`` one begins every ``slide`` records, so they overlap."""
        if slide is not None:
            return self.window(count_windows(size, slide))
        return self.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(size)))

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs of records with equal keys whose event times are near: ``.between(low, high)`` bounds their distance.

        ``other``: the right side.
        """
        return self._env.streams.interval_join(self, other)


class PerRecord:
    """A map, flat map or filter function as a process function of a keyed stream."""

    def __init__(self, function: Any, kind: str) -> None:
        self.function = function
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        self.function.open(runtime_context)
        self._call = getattr(self.function, self.kind)

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def process_element(self, value: Any, ctx: Any) -> Any:
        found = self._call(value)
        if self.kind == "filter":
            return (value,) if found else ()
        return (found,) if self.kind == "map" else found


class Running:
    """The reduce function of ``sum``, ``min``, ``max``, ``min_by``, ``max_by`` on one column."""

    def __init__(self, how: str, index: int | str, schema: Schema) -> None:
        self.how = how
        self.index: Any = index
        self.untyped = is_untyped(schema)
        self.bare = is_bare(schema) and not self.untyped
        self.fields = () if is_tuple(schema) else schema.fields

    def reduce(self, first: Any, second: Any) -> Any:
        if self.bare:
            return self._combined(first, second)
        i = self.index
        of_first = of_second = None
        if self.fields and self.fields[0].record:
            of_first, of_second, first, second = first, second, taken_apart(first), taken_apart(second)
        if self.untyped:
            i = field_position(first, i)
            if i is None:
                return self._combined(first, second)
        if self.how.endswith("_by"):
            better = self._combined(first[i], second[i])
            if of_first is not None:
                return of_first if better == first[i] else of_second
            return first if better == first[i] else second
        values = (*first[:i], self._combined(first[i], second[i]), *first[i + 1 :])
        if self.untyped:
            return list(values) if isinstance(first, list) else tuple.__new__(type(first), values)
        return maker(self.fields)(values) if self.fields else values

    def _combined(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        match self.how:
            case "sum":
                return a + b
            case "min" | "min_by":
                return b if b < a else a
        return b if b > a else a
