"""``join`` and ``co_group`` of two streams over windows: records with equal keys in one window meet.

Both streams become one, whose columns are a number (which stream), the columns of the first, those of the second and
the keys; a window operator over it keeps the records, and its function gets them by stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.function_slots import check_function
from penstock.api.process_steps import output_schema
from penstock.api.transformations import Compiler, Transformation, plain
from penstock.columnar.python_values import is_bare, is_tuple
from penstock.columnar.record_classes import maker
from penstock.errors import SpecError
from penstock.functions.expr import InputRef, Literal
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.api.datastream import DataStream
    from penstock.api.keyed import KeyedStream
    from penstock.api.window_assigner import WindowAssigner
    from penstock.api.windowed import WindowedStream
    from penstock.operators.evictors import Evictor
    from penstock.operators.window_functions import Trigger

_SIDE = t.Field("__side", t.IntType(nullable=False))


class _Sides:
    """Two streams and their keys.

    ``first``, ``second``: the streams; ``kind``: ``join`` or ``co_group``.
    """

    def __init__(self, first: DataStream, second: DataStream, kind: str) -> None:
        self.first, self.second, self.kind = first, second, kind

    def windowed(self, first: KeyedStream, second: KeyedStream, assigner: WindowAssigner) -> WindowedStream:
        """Both streams as one keyed stream in windows."""
        env = self.first._env
        union, records, keys = _united(first, second)
        return env.streams.windowed(env.streams.keyed(records, union, keys), assigner)


class Where:
    """``first.join(second)`` and ``first.co_group(second)``: ``where`` gives the key of the first stream.

    ``sides``: the streams.
    """

    def __init__(self, first: DataStream, second: DataStream, kind: str) -> None:
        self._sides = _Sides(first, second, kind)

    def where(self, key_selector: Any, key_type: t.LogicalType | None = None) -> EqualTo:
        """The key of the first stream.

        Args:
            key_selector: As in ``DataStream.key_by``; several columns as a list.
            key_type: Type of the key that a function makes.
        """
        return EqualTo(self._sides, _keyed(self._sides.first, key_selector, key_type))


class EqualTo:
    """Waits for the key of the second stream. ``sides``: the streams; ``first``: the first one by key."""

    def __init__(self, sides: _Sides, first: KeyedStream) -> None:
        self._sides, self._first = sides, first

    def equal_to(self, key_selector: Any, key_type: t.LogicalType | None = None) -> WithKeys:
        """The key of the second stream.

        Args:
            key_selector: As in ``where``.
            key_type: As in ``where``.

        Raises:
            SpecError: The streams are keyed by different types.
        """
        second = _keyed(self._sides.second, key_selector, key_type)
        types = [
            [s._keyed_step.schema.types[k].with_nullable(True) for k in s._keys]
            for s in (self._first, second)
        ]
        if types[0] != types[1]:
            raise SpecError(
                f"{self._sides.kind} of keys of different types",
                expected=", ".join(map(str, types[0])),
                got=", ".join(map(str, types[1])),
            )
        return WithKeys(self._sides, self._first, second)


class WithKeys:
    """Waits for the windows. ``sides``: the streams; ``first``, ``second``: both by key."""

    def __init__(self, sides: _Sides, first: KeyedStream, second: KeyedStream) -> None:
        self._sides, self._first, self._second = sides, first, second

    def window(self, window_assigner: WindowAssigner) -> WithWindow:
        """The windows in which records meet, as in ``KeyedStream.window``."""
        return WithWindow(self._sides, self._sides.windowed(self._first, self._second, window_assigner))


class WithWindow:
    """Two streams in windows. ``apply`` makes a stream of them.

    ``sides``: the streams; ``windows``: the windows of both.
    """

    def __init__(self, sides: _Sides, windows: WindowedStream) -> None:
        self._sides, self._windows = sides, windows

    def trigger(self, trigger: Trigger) -> WithWindow:
        """As ``WindowedStream.trigger``. The trigger's element is the row (number of the stream, columns of both)."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> WithWindow:
        """As ``WindowedStream.evictor``. The evictor's elements are rows (number of the stream, columns of both)."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: Any) -> WithWindow:
        """As ``WindowedStream.allowed_lateness``."""
        self._windows.allowed_lateness(time_ms)
        return self

    def apply(
        self, function: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """The records that ``function`` makes of each window and key.

        Args:
            function: After ``join`` a ``JoinFunction``, a ``FlatJoinFunction`` or a callable of two records, which is
                called for each pair; after ``co_group`` a ``CoGroupFunction`` or a callable of two lists, either of
                which may be empty.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        first, second = self._sides.first.schema, self._sides.second.schema
        splits = (_Split(first, 1), _Split(second, 1 + len(first)))
        adapter: Any
        if self._sides.kind == "join":
            flat = hasattr(function, "flat_join")
            check_function(function, "flat window join" if flat else "window join")
            adapter = _Pairs(function, flat, splits)
            out = output_schema(function, output_type, "flat_join" if flat else "join")
        else:
            check_function(function, "co-group")
            adapter = _Groups(function, splits)
            out = output_schema(function, output_type, "co_group")
        return self._windows.process(adapter, _declared(out), on_error=on_error)


def _declared(schema: Schema) -> t.LogicalType:
    from penstock.api.typeinfo import type_of

    return type_of(schema)


def _keyed(stream: DataStream, selector: Any, key_type: t.LogicalType | None) -> KeyedStream:
    parts = tuple(selector) if isinstance(selector, (list, tuple)) else (selector,)
    return stream.key_by(*parts, key_type=key_type)


def _united(
    first: KeyedStream, second: KeyedStream
) -> tuple[Transformation, Transformation, tuple[int, ...]]:
    """(the rows of both with their keys, a step of the same rows without them, the numbers of the key columns)."""
    columns = []
    for name, stream in (("l", first), ("r", second)):
        columns += [
            t.Field(f"{name}{i}", f.type.with_nullable(True)) for i, f in enumerate(stream.schema.fields)
        ]
    types = [first._keyed_step.schema.types[k].with_nullable(True) for k in first._keys]
    record = Schema((_SIDE, *columns))
    whole = Schema((*record.fields, *(t.Field(f"__key{i}", type_) for i, type_ in enumerate(types))))

    def side(number: int, stream: KeyedStream) -> Transformation:
        start = 1 if number == 0 else 1 + len(first.schema)
        source = stream._keyed_step.schema
        cells: list[Any] = [Literal(number, _SIDE.type), *(Literal(None, c.type) for c in columns)]
        for i in range(len(stream.schema)):
            cells[start + i] = InputRef(i, source.types[i])
        cells += [InputRef(k, source.types[k]) for k in stream._keys]

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            return n.Project(input=inputs[0], expressions=tuple(cells), schema=whole)

        return plain(make, (stream._keyed_step,), whole, "Side")

    union = plain(
        lambda inputs, c: n.Union_(inputs=inputs, schema=whole),
        (side(0, first), side(1, second)),
        whole,
        "Union",
    )
    refs = tuple(InputRef(i, f.type) for i, f in enumerate(record.fields))
    records = plain(
        lambda inputs, c: n.Project(input=inputs[0], expressions=refs, schema=record),
        (union,),
        record,
        "Record",
    )
    return union, records, tuple(range(len(record), len(whole)))


class _Split:
    """Makes records of one stream again from rows of both.

    ``schema``: the stream's; ``start``: the number of its first column in the row.
    """

    def __init__(self, schema: Schema, start: int) -> None:
        self.schema, self.start = schema, start
        self._make: Callable[[Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "start": self.start, "_make": None}

    def record(self, row: Any) -> Any:
        """The record that ``row`` holds."""
        if self._make is None:
            first, tuples = is_bare(self.schema), is_tuple(self.schema)
            made = tuple if tuples else maker(self.schema.fields)
            self._make = (lambda values: values[0]) if first else made
        # A row of a class with fields is a tuple, so this slice is one, too.
        return self._make(tuple.__getitem__(row, slice(self.start, self.start + len(self.schema))))


class _Groups:
    """A ``CoGroupFunction`` as a ``ProcessWindowFunction`` over rows of both streams."""

    def __init__(self, function: Any, splits: tuple[_Split, _Split]) -> None:
        self.function, self.splits = function, splits

    def open(self, context: Any) -> None:
        opener = getattr(self.function, "open", None)
        if opener is not None:
            opener(context)

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def _sides(self, elements: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        first, second = self.splits
        for row in elements:
            if row[0]:
                sides[1].append(second.record(row))
            else:
                sides[0].append(first.record(row))
        return sides

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return getattr(self.function, "co_group", self.function)(*self._sides(elements))


class _Pairs(_Groups):
    """A ``JoinFunction`` or ``FlatJoinFunction`` as a ``ProcessWindowFunction`` over rows of both streams."""

    def __init__(self, function: Any, flat: bool, splits: tuple[_Split, _Split]) -> None:
        super().__init__(function, splits)
        self.flat = flat

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        call = getattr(self.function, "flat_join" if self.flat else "join", self.function)
        first, second = self._sides(elements)
        for left in first:
            for right in second:
                if self.flat:
                    yield from call(left, right) or ()
                else:
                    yield call(left, right)
