"""What a Python window is made of: the call, triggers, windows as users see them.

``penstock.api`` exports these under Flink's names.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType

#: End of a global window, µs.
GLOBAL_END = 2**63 - 1


class TimeWindow(NamedTuple):
    """[start, end) in ms."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1


@dataclass(frozen=True)
class WindowCall:
    """The function-table entry of a window operator.

    ``function``: reduce function, AggregateFunction or None (all elements are kept);
    ``window_function``: ProcessWindowFunction, called with its result, or None;
    ``state_type``: of the accumulator, or of an element when there is none.
    """

    function: Any
    window_function: Any
    state_type: LogicalType
    trigger: Trigger | None = None


class TriggerResult(enum.Enum):
    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def fires(self) -> bool:
        return self.value[0]

    @property
    def purges(self) -> bool:
        return self.value[1]


class Trigger:
    """When a window gives results. ``ctx``: ``get_current_watermark`` (ms),
    ``register_event_time_timer(ms)``, ``register_processing_time_timer(ms)``,
    ``get_partitioned_state(descriptor)`` (of this key and window)."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        raise NotImplementedError

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        """The window is over: forget what ``ctx`` holds for it."""


class EventTimeTrigger(Trigger):
    """Once, when the watermark passes the window's end; at once for late elements."""

    @classmethod
    def create(cls) -> EventTimeTrigger:
        return cls()

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE


class ProcessingTimeTrigger(Trigger):
    @classmethod
    def create(cls) -> ProcessingTimeTrigger:
        return cls()

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE


class CountTrigger(Trigger):
    """At every n-th element of the window."""

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, n: int) -> CountTrigger:
        return cls(n)

    def _count(self, ctx: Any) -> Any:
        from penstock.runtime.state.descriptors import ReducingStateDescriptor
        from penstock.types.logical import BigIntType

        return ctx.get_partitioned_state(ReducingStateDescriptor("trigger-count", _add, BigIntType()))

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        count = self._count(ctx)
        count.add(1)
        if count.get() < self.n:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        self._count(ctx).clear()


def _add(a: int, b: int) -> int:
    return a + b


class PurgingTrigger(Trigger):
    """Another trigger, whose firings also empty the window."""

    def __init__(self, inner: Trigger) -> None:
        self.inner = inner

    @classmethod
    def of(cls, inner: Trigger) -> PurgingTrigger:
        return cls(inner)

    @staticmethod
    def _purging(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if result.fires else result

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return self._purging(self.inner.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return self._purging(self.inner.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return self._purging(self.inner.on_processing_time(time, window, ctx))

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        self.inner.clear(window, ctx)


class ContinuousEventTimeTrigger(Trigger):
    """Every ``interval_ms`` of event time, and at the window's end."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms

    @classmethod
    def of(cls, interval: Any) -> ContinuousEventTimeTrigger:
        return cls(int(getattr(interval, "to_milliseconds", lambda: interval)()))

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.register_event_time_timer(timestamp - timestamp % self.interval_ms + self.interval_ms)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if time > window.max_timestamp():
            return TriggerResult.CONTINUE
        if time < window.max_timestamp():
            following = time + self.interval_ms
            if following < window.max_timestamp():
                ctx.register_event_time_timer(following)
        return TriggerResult.FIRE
