"""``KeyedStream``: records by key; process functions, running aggregates, windows, joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.function_slots import check_function
from penstock.api.selectors import FieldOfValue, column_index, field_position, is_untyped, traced
from penstock.api.transformations import Compiler, Transformation, transform
from penstock.columnar.python_values import is_bare, is_tuple, row_class
from penstock.errors import SpecError
from penstock.jobgraph import Broadcast, Hash
from penstock.jobgraph.specs import KeyedProcessSpec
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.api.datastream import DataStream
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.joins import IntervalJoin
    from penstock.api.windowed import WindowedStream
    from penstock.api.windows import WindowAssigner

#: (step, key columns, leading columns that make the record or None for all)
Input = tuple[Transformation, tuple[int, ...], "int | None"]


def key_columns(schema: Schema, selector: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Column numbers of a key given by names, numbers or a function that reads fields; None
    for a function that computes."""
    if not selector:
        raise SpecError("key_by without a key", expected="a column, several, or a function of the record")
    if len(selector) == 1 and isinstance(selector[0], (list, tuple)):
        selector = tuple(selector[0])
    if all(isinstance(s, (str, int)) for s in selector):
        return tuple(column_index(schema, s, "key_by") for s in selector)
    if len(selector) > 1:
        raise SpecError("several key functions", expected="one function that returns a tuple")
    function = getattr(selector[0], "get_key", selector[0])
    if not callable(function):
        raise SpecError("not a key selector", expected="a column or a function", got=repr(selector[0]))
    check_function(selector[0], "key_by")
    return traced(function, schema)


def of_untyped(schema: Schema, selector: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fields given by number, of values whose type nobody declared: a function reads them."""
    if len(selector) == 1 and isinstance(selector[0], (list, tuple)):
        selector = tuple(selector[0])
    numbers = selector and all(isinstance(s, int) and not isinstance(s, bool) for s in selector)
    return (FieldOfValue(selector),) if numbers and is_untyped(schema) else selector


def check_key_types(types: Sequence[t.LogicalType]) -> None:
    """SpecError for what has no equality as a key."""
    for type_ in types:
        if _holds_collection(type_):
            raise SpecError(
                f"Type {type_} cannot be used as key.",
                expected="numbers, strings, times, rows or tuples of them",
                got=str(type_),
                remedy="key by a tuple of its elements, or by a text made of them",
            )


def _holds_collection(type_: t.LogicalType) -> bool:
    if isinstance(type_, t.RowType):
        return any(_holds_collection(f.type) for f in type_.fields)
    return isinstance(type_, (t.ArrayType, t.MapType, t.MultisetType))


def process_step(
    env: StreamExecutionEnvironment,
    inputs: list[Input],
    kind: str,
    func: Any,
    output_type: t.LogicalType | None,
    on_error: str,
    *,
    schema: Schema | None = None,
    batch: bool = False,
    name: str = "Process",
    method: str = "process_element",
) -> DataStream:
    """A process operator over one or two inputs."""
    from penstock.api.datastream import DataStream, output_schema, policy

    on_error = policy(on_error)
    check_function(func, kind)
    out = schema or output_schema(func, output_type, "flat_map")
    widths = tuple(len(step.schema) if width is None else width for step, _, width in inputs)

    def spec(step: Transformation, compiler: Compiler) -> KeyedProcessSpec:
        return KeyedProcessSpec(
            kind=kind,  # type: ignore[arg-type]
            function=compiler.function(func, kind),
            keys=tuple(keys for _, keys, _ in inputs),
            per="batch" if batch else "record",
            on_error=on_error,  # type: ignore[arg-type]
            record_columns=widths,
            tags=tuple(sorted(step.tags)),
        )

    partitioning = []
    for i, (_, keys, _) in enumerate(inputs):
        broadcast = kind == "broadcast-process" and i == 1
        partitioning.append(Broadcast() if broadcast else Hash(keys) if keys else None)
    steps = tuple(step for step, _, _ in inputs)
    made = transform(spec, steps, out, name, tuple(partitioning), has_tags=True)
    return DataStream(env, made)


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
        from penstock.api.windowed import WindowedStream

        return WindowedStream(self, assigner)

    def count_window(self, size: int) -> WindowedStream:
        """Every ``size`` records of a key."""
        from penstock.api.windowed import WindowedStream
        from penstock.api.windows import GlobalWindows
        from penstock.operators.window_functions import CountTrigger, PurgingTrigger

        return WindowedStream(self, GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(size)))

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs of equal keys whose event times are within bounds: ``.between(low, high)``."""
        from penstock.api.joins import IntervalJoin

        return IntervalJoin(self, other)

    def connect(self, other: Any) -> Any:
        from penstock.api.connected import ConnectedStreams

        return ConnectedStreams(self, other)


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
