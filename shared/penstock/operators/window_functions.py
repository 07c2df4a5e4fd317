"""What a Python window is made of: the call, triggers, windows as users see them.

``penstock.api`` exports these under Flink's names.
"""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import SpecError, UnsupportedError
from penstock.state.descriptors import ReducingStateDescriptor
from penstock.types.logical import BigIntType

if TYPE_CHECKING:
    from typing import Self

    from penstock.types.logical import LogicalType

#: End of a global window, µs.
GLOBAL_END = 2**63 - 1


class TimeWindow(NamedTuple):
    """[start, end) in ms."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1


class GlobalWindow(TimeWindow):
    """All of time."""

    def max_timestamp(self) -> int:
        return self.end


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
    """When a window gives results. ``ctx`` is a ``TriggerContext`` (of the window operator): times in
    ms, timers and state of this key and window."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        raise NotImplementedError

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether it has ``on_merge``: only such triggers are taken for session windows."""
        return False

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        """Windows were merged into ``window``: bring their state here with
        ``ctx.merge_partitioned_state(descriptor)`` and set the timers that it needs. ``clear`` is
        called for each of the old windows afterwards."""
        raise UnsupportedError(
            "This trigger does not support merging.",
            expected="can_merge() that returns True, and on_merge(window, ctx)",
            got=type(self).__name__,
        )

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

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        # Where the watermark has passed it already, the element that merged the windows fires it.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """Once, when the clock passes the window's end."""

    @classmethod
    def create(cls) -> ProcessingTimeTrigger:
        return cls()

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(Trigger):
    """At every n-th element of the window; what is left at its end is not given out."""

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, n: int) -> CountTrigger:
        return cls(n)

    _COUNT = ReducingStateDescriptor("trigger-count", operator.add, BigIntType())

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self._COUNT)
        count.add(1)
        if count.get() < self.n:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        ctx.merge_partitioned_state(self._COUNT)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.get_partitioned_state(self._COUNT).clear()


class PurgingTrigger(Trigger):
    """Another trigger, whose firings also empty the window. The window itself stays: what comes later
    is given out without what was given out before."""

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

    def can_merge(self) -> bool:
        return self.inner.can_merge()

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        self.inner.on_merge(window, ctx)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        self.inner.clear(window, ctx)


class NeverTrigger(Trigger):
    """Never: a window that only its other means (a late side output, a merge) are wanted of."""

    @classmethod
    def create(cls) -> NeverTrigger:
        return cls()

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        """It keeps nothing."""


class _ContinuousTrigger(Trigger):
    """Every ``interval_ms``. ``fire-time``: when the window fires next; of merged windows the first."""

    _FIRE_TIME = ReducingStateDescriptor("fire-time", min, BigIntType())

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms

    @classmethod
    def of(cls, interval: Any) -> Self:
        """``interval``: a ``Time``, or whole ms."""
        interval_ms = int(getattr(interval, "to_milliseconds", lambda: interval)())
        if interval_ms <= 0:
            raise SpecError(
                f"the interval of a {cls.__name__} is not positive", expected="> 0", got=repr(interval)
            )
        return cls(interval_ms)

    @staticmethod
    def _register(ctx: Any, time: int) -> None:
        raise NotImplementedError

    @staticmethod
    def _delete(ctx: Any, time: int) -> None:
        raise NotImplementedError

    def _begin(self, time: int, window: TimeWindow, ctx: Any) -> None:
        """An element at ``time``: the next firing is set, where none is."""
        if ctx.get_partitioned_state(self._FIRE_TIME).get() is None:
            self._set_next(time - time % self.interval_ms, window, ctx)

    def _set_next(self, time: int, window: TimeWindow, ctx: Any) -> None:
        following = min(time + self.interval_ms, window.max_timestamp())
        ctx.get_partitioned_state(self._FIRE_TIME).add(following)
        self._register(ctx, following)

    def _on_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        fire_time = ctx.get_partitioned_state(self._FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self._set_next(time, window, ctx)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        ctx.merge_partitioned_state(self._FIRE_TIME)
        following = ctx.get_partitioned_state(self._FIRE_TIME).get()
        if following is not None:
            self._register(ctx, following)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        fire_time = ctx.get_partitioned_state(self._FIRE_TIME)
        following = fire_time.get()
        if following is not None:
            self._delete(ctx, following)
            fire_time.clear()


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Every interval of event time, and at the window's end."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._begin(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        return self._on_time(time, window, ctx)

    @staticmethod
    def _register(ctx: Any, time: int) -> None:
        ctx.register_event_time_timer(time)

    @staticmethod
    def _delete(ctx: Any, time: int) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Every interval of the clock."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return self._on_time(time, window, ctx)

    @staticmethod
    def _register(ctx: Any, time: int) -> None:
        ctx.register_processing_time_timer(time)

    @staticmethod
    def _delete(ctx: Any, time: int) -> None:
        ctx.delete_processing_time_timer(time)
