"""Function classes to derive from. Plain callables do where there is nothing to open.

Every class may define ``open(runtime_context)`` and ``close()``. Outputs are returned or
yielded; ``yield tag, value`` sends to a side output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.operators.process_context import ProcessContext
    from penstock.operators.user_code import RuntimeContext
    from penstock.operators.window_contexts import WindowContext


class Function:
    """Base class."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per subtask, before the first record."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class MapFunction(Function):
    def map(self, value: Any) -> Any:
        raise NotImplementedError


class FlatMapFunction(Function):
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        raise NotImplementedError


class FilterFunction(Function):
    def filter(self, value: Any) -> bool:
        raise NotImplementedError


class ReduceFunction(Function):
    def reduce(self, value1: Any, value2: Any) -> Any:
        raise NotImplementedError


class KeySelector(Function):
    def get_key(self, value: Any) -> Any:
        raise NotImplementedError


class AggregateFunction(Function):
    """``merge`` is needed for session windows."""

    def create_accumulator(self) -> Any:
        raise NotImplementedError

    def add(self, value: Any, accumulator: Any) -> Any:
        """The new accumulator."""
        raise NotImplementedError

    def get_result(self, accumulator: Any) -> Any:
        raise NotImplementedError

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.merge, needed for session windows")


class ProcessFunction(Function):
    """Without keys: no state, no timers; side outputs and timestamps."""

    Context = "penstock.operators.process_context.ProcessContext"

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError


class KeyedProcessFunction(ProcessFunction):
    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """A timer set for ``timestamp`` (ms) fires; the key is the one that set it."""


class CoProcessFunction(Function):
    """Two inputs; after ``key_by`` on both, one state per key."""

    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None: ...


class KeyedCoProcessFunction(CoProcessFunction):
    pass


class CoMapFunction(Function):
    def map1(self, value: Any) -> Any:
        raise NotImplementedError

    def map2(self, value: Any) -> Any:
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function):
    """The second input goes to every subtask; its state is ``ctx.get_broadcast_state(desc)``."""

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None: ...


BroadcastProcessFunction = KeyedBroadcastProcessFunction


class ProcessWindowFunction(Function):
    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any] | None:
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """The window is over: clear ``context.window_state()``."""


class WindowFunction(Function):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        raise NotImplementedError
