"""The function classes that programs derive from. A plain callable is enough where there is nothing to open.

Every class may define ``open(runtime_context)`` and ``close()``. Outputs are returned or
yielded; ``yield tag, value`` sends to a side output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.jobgraph.loading import LoadedLater

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from penstock.operators.process_context import ProcessContext
    from penstock.operators.user_code import RuntimeContext
    from penstock.operators.window_contexts import WindowContext


_PROCESS_CONTEXT = LoadedLater("penstock.operators.process_context:ProcessContext")
_WINDOW_CONTEXT = LoadedLater("penstock.operators.window_contexts:WindowContext")


class Function:
    """The base class of functions. ``MapFunction[str, int]`` is ``MapFunction``: the type parameters have no
    effect."""

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        return cls

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per subtask, before the first record."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class MapFunction(Function):
    """Gives one record for each record: ``map``."""

    def map(self, value: Any) -> Any:
        """The record that takes the place of ``value``."""
        raise NotImplementedError


class FlatMapFunction(Function):
    """Gives any number of records for each record: ``flat_map``."""

    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The records that take the place of ``value``: an iterable (or yield them), or None for no record."""
        raise NotImplementedError


class FilterFunction(Function):
    """Keeps or drops each record: ``filter``."""

    def filter(self, value: Any) -> bool:
        """True if ``value`` is kept."""
        raise NotImplementedError


class ReduceFunction(Function):
    """Combines two records of a key to one: ``reduce``."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The combination of the result so far, ``value1``, and the next record, ``value2``; a record of the same type."""
        raise NotImplementedError


class KeySelector(Function):
    """The key of a record: ``get_key``."""

    def get_key(self, value: Any) -> Any:
        """The key of ``value``. Records with equal keys meet in one subtask."""
        raise NotImplementedError


class AggregateFunction(Function):
    """Aggregates the records of a window through an accumulator of any type. Session windows need ``merge``."""

    def create_accumulator(self) -> Any:
        """The accumulator of no record."""
        raise NotImplementedError

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator after ``value`` was added to ``accumulator``: the same object, changed, or a new one."""
        raise NotImplementedError

    def get_result(self, accumulator: Any) -> Any:
        """The result of ``accumulator``."""
        raise NotImplementedError

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """The accumulator of the records of ``acc_a`` and ``acc_b`` together. Called when session windows merge."""
        raise NotImplementedError(f"{type(self).__name__}.merge, needed for session windows")


class ProcessFunction(Function):
    """Sees each record with its timestamp and may send to side outputs. Without keys it has no state and no timers."""

    Context: Any = _PROCESS_CONTEXT

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value``: an iterable (or yield them), or None.

        ``ctx`` gives the timestamp and, after ``key_by``, the key, the state and the timer service.
        """
        raise NotImplementedError


class KeyedProcessFunction(ProcessFunction):
    """Process function of a keyed stream: state and timers for each key."""

    OnTimerContext: Any = _PROCESS_CONTEXT

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit when a timer fires that was set for ``timestamp`` (ms since the epoch).

        ``ctx`` has the key that set the timer.
        """


class CoProcessFunction(Function):
    """Process function with two inputs. After ``key_by`` on both, they share one state for each key."""

    Context: Any = _PROCESS_CONTEXT
    OnTimerContext: Any = _PROCESS_CONTEXT

    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the first input. ``ctx``: as in ``ProcessFunction``."""
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the second input. ``ctx``: as in ``ProcessFunction``."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit when a timer fires that was set for ``timestamp`` (ms). ``ctx`` has the key that set it."""


class KeyedCoProcessFunction(CoProcessFunction):
    """Process function with two keyed inputs, under Flink's name."""


class CoMapFunction(Function):
    """Gives one record for each record. Each input has its own method."""

    def map1(self, value: Any) -> Any:
        """The record for ``value`` of the first input."""
        raise NotImplementedError

    def map2(self, value: Any) -> Any:
        """The record for ``value`` of the second input."""
        raise NotImplementedError


class CoFlatMapFunction(Function):
    """Gives any number of records for each record. Each input has its own method."""

    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """The records for ``value`` of the first input."""
        raise NotImplementedError

    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """The records for ``value`` of the second input."""
        raise NotImplementedError


class Partitioner(Function):
    """Says which subtask of the next step gets a record: ``DataStream.partition_custom``."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """The number of the subtask for ``key``, from 0 to ``num_partitions - 1``."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function):
    """Process function of a keyed stream and a broadcast stream.

    Every subtask gets all records of the second input and keeps what it learns from them in
    ``ctx.get_broadcast_state(descriptor)``.
    """

    Context: Any = _PROCESS_CONTEXT
    ReadOnlyContext: Any = _PROCESS_CONTEXT
    OnTimerContext: Any = _PROCESS_CONTEXT

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the keyed input. ``ctx`` may read the broadcast state."""
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the broadcast input. ``ctx`` may change the broadcast state."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit when a timer fires that was set for ``timestamp`` (ms). ``ctx`` has the key that set it."""


BroadcastProcessFunction = KeyedBroadcastProcessFunction


class ProcessWindowFunction(Function):
    """Sees all records of a window when the window fires."""

    Context: Any = _WINDOW_CONTEXT

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any] | None:
        """The records to emit for the window of ``key`` that fires.

        Args:
            key: The key, as the key selector made it.
            context: The window, its state, the current watermark.
            elements: The records of the window; after an aggregate, its one result.
        """
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """The window is over: clear ``context.window_state()``."""


class WindowFunction(Function):
    """As ``ProcessWindowFunction``, without a context: ``apply``."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        """The records to emit for ``key`` and ``window`` (``start`` and ``end`` in ms), whose records are ``inputs``."""
        raise NotImplementedError


class ProcessAllWindowFunction(Function):
    """As ``ProcessWindowFunction``, for the windows of a stream without keys (``window_all``)."""

    Context: Any = _WINDOW_CONTEXT

    def process(self, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any] | None:
        """The records to emit for the window that fires. ``context`` and ``elements``: as in ``ProcessWindowFunction``."""
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """The window is over: clear ``context.window_state()``."""


class AllWindowFunction(Function):
    """As ``ProcessAllWindowFunction``, without a context: ``apply``."""

    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        """The records to emit for ``window`` (``start`` and ``end`` in ms), whose records are ``inputs``."""
        raise NotImplementedError


class JoinFunction(Function):
    """Joins two records: ``first.join(second)``."""

    def join(self, first: Any, second: Any) -> Any:
        """The record for the pair of ``first`` and ``second``, which have one key and one window."""
        raise NotImplementedError


class FlatJoinFunction(Function):
    """As ``JoinFunction``, with any number of records for a pair."""

    def flat_join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """The records for the pair of ``first`` and ``second``: an iterable (or yield them), or None."""
        raise NotImplementedError


class CoGroupFunction(Function):
    """Sees all records of two streams that have one key and one window: ``first.co_group(second)``."""

    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """The records to emit for the records ``first`` and ``second`` of the two streams; one list may be empty."""
        raise NotImplementedError
