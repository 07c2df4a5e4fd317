"""``ConnectedStreams``: two streams as the inputs of one function. Keyed streams share one state, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.function_slots import check_function
from penstock.api.keyed import KeyedStream
from penstock.api.process_steps import Input, process_step
from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from penstock.api.datastream import DataStream
    from penstock.types import logical as t


class BroadcastStream:
    """A stream whose records go to every subtask, with the descriptors of the state that they fill.

    Made by ``DataStream.broadcast``: ``stream`` is the stream, ``descriptors`` those of its map state.
    """

    def __init__(self, stream: DataStream, descriptors: tuple[Any, ...]) -> None:
        self.stream = stream
        self.descriptors = descriptors


class ConnectedStreams:
    """Two streams for one function with two inputs. Made by ``connect`` of streams: ``first`` and ``second``."""

    def __init__(
        self, first: DataStream | KeyedStream, second: DataStream | KeyedStream | BroadcastStream
    ) -> None:
        self._first = first
        self._second = second

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: t.LogicalType | None = None
    ) -> ConnectedStreams:
        """Key both streams; records with equal keys meet. Keys that a stream had before are forgotten.

        Args:
            key_selector1: Key of the first stream, as in ``DataStream.key_by``; several columns as a list.
            key_selector2: Key of the second stream.
            key_type: Type of the keys that functions make.

        Raises:
            SpecError: The second stream is broadcast.
        """
        first, second = self._first, self._second
        if isinstance(second, BroadcastStream):
            raise SpecError(
                "key_by of a stream that is broadcast",
                expected="two streams without broadcast",
                remedy="key the first stream before connect: stream.key_by(…).connect(rules.broadcast(…))",
            )
        return ConnectedStreams(
            first.key_by(*_selector(key_selector1), key_type=key_type),
            second.key_by(*_selector(key_selector2), key_type=key_type),
        )

    def process(
        self, func: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """The records that ``func`` emits for both inputs.

        Args:
            func: A ``CoProcessFunction``; after ``broadcast(…)`` a ``KeyedBroadcastProcessFunction``.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.

        Raises:
            SpecError: The streams are keyed by different types.
        """
        first = _input(self._first)
        env = self._first._env
        if isinstance(self._second, BroadcastStream):
            inputs: list[Input] = [first, (self._second.stream._step, (), None)]
            return process_step(
                env, inputs, "broadcast-process", func, output_type, on_error, name="Broadcast Process"
            )
        second = _input(self._second)
        keys = [[step.schema.types[k].with_nullable(True) for k in cols] for step, cols, _ in (first, second)]
        if keys[0] != keys[1]:
            raise SpecError(
                "connected streams are keyed by different types",
                expected=", ".join(map(str, keys[0])) or "no key",
                got=", ".join(map(str, keys[1])) or "no key",
            )
        return process_step(
            env, [first, second], "co-process", func, output_type, on_error, name="Co-Process"
        )

    def map(
        self, func: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """Emits one record for each record of either input.

        Args:
            func: A ``CoMapFunction``.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.

        Raises:
            UnsupportedError: ``func`` is no ``CoMapFunction``.
        """
        if not hasattr(func, "map1"):
            raise UnsupportedError("map of connected streams", expected="a CoMapFunction with map1 and map2")
        check_function(func, "co-map")
        return self.process(_CoMapped(func), output_type, on_error=on_error)

    def flat_map(
        self, func: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """Emits any number of records for each record of either input.

        Args:
            func: A ``CoFlatMapFunction``.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.

        Raises:
            UnsupportedError: ``func`` is no ``CoFlatMapFunction``.
        """
        if not hasattr(func, "flat_map1"):
            raise UnsupportedError(
                "flat_map of connected streams", expected="a CoFlatMapFunction with flat_map1 and flat_map2"
            )
        check_function(func, "co-flat-map")
        return self.process(_CoFlatMapped(func), output_type, on_error=on_error)


def _selector(selector: Any) -> tuple[Any, ...]:
    return tuple(selector) if isinstance(selector, (list, tuple)) else (selector,)


def _input(stream: Any) -> Input:
    return stream.input if isinstance(stream, KeyedStream) else (stream._step, (), None)


class _CoMapped:
    """A ``CoMapFunction`` as a ``CoProcessFunction``."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, context: Any) -> None:
        self.function.open(context)

    def close(self) -> None:
        self.function.close()

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return (self.function.map1(value),)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return (self.function.map2(value),)


class _CoFlatMapped(_CoMapped):
    """A ``CoFlatMapFunction`` as a ``CoProcessFunction``."""

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return self.function.flat_map1(value)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return self.function.flat_map2(value)
