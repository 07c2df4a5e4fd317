"""Triggers: when a Python window emits its results, and drops its elements.

``penstock.api`` exports these under Flink's names.
"""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, UnsupportedError
from penstock.jobgraph.loading import LoadedLater
from penstock.state.descriptors import ReducingStateDescriptor
from penstock.types.logical import BigIntType

if TYPE_CHECKING:
    from typing import Self

    from penstock.operators.window_functions import TimeWindow


class TriggerResult(enum.Enum):
    """What a window does: emit results (FIRE), drop its elements (PURGE), both, or nothing (CONTINUE)."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def fires(self) -> bool:
        """Whether the window emits results."""
        return self.value[0]

    def is_fire(self) -> bool:
        """``fires``, under Flink's name."""
        return self.fires

    def is_purge(self) -> bool:
        """``purges``, under Flink's name."""
        return self.purges

    @property
    def purges(self) -> bool:
        """Whether the window drops its elements."""
        return self.value[1]


class Trigger:
    """Decides when a window emits results.

    The ``ctx`` of each method is a ``TriggerContext``: times in ms, timers, and the state of this key and
    window. ``Trigger[tuple, TimeWindow]`` is the same class: type parameters have no effect.
    """

    TriggerContext: Any = LoadedLater("penstock.operators.window_contexts:TriggerContext")
    OnMergeContext: Any = LoadedLater("penstock.operators.window_contexts:OnMergeContext")

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        return cls

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        """Called for each ``element`` of ``window``; ``timestamp``: its event time, ms. ``ctx``: see ``Trigger``."""
        raise NotImplementedError

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        """Called when an event-time timer set for ``time`` (ms) fires in ``window``. ``ctx``: see ``Trigger``."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        """Called when a processing-time timer set for ``time`` (ms) fires in ``window``. ``ctx``: see ``Trigger``."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether the trigger implements ``on_merge``. Session windows take only such triggers."""
        return False

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        """Called when windows were merged into ``window``.

        Bring their state together with ``ctx.merge_partitioned_state(descriptor)``, and set the timers that the merged
        window needs. ``clear`` is called for each of the old windows afterwards.

        Raises:
            UnsupportedError: The trigger cannot merge.
        """
        raise UnsupportedError(
            "This trigger does not support merging.",
            expected="can_merge() that returns True, and on_merge(window, ctx)",
            got=type(self).__name__,
        )

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        """Called when ``window`` has ended: delete the state and timers that ``ctx`` holds for it."""


class EventTimeTrigger(Trigger):
    """Fires once, when the watermark passes the window's end, and at once for each late element."""

    @classmethod
    def create(cls) -> EventTimeTrigger:
        """The trigger."""
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
        # If the watermark has passed the window's end, the element that merged the windows fires the window.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """Fires once, when the clock passes the window's end."""

    @classmethod
    def create(cls) -> ProcessingTimeTrigger:
        """The trigger."""
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
    """Fires at every ``n``-th element of the window. Elements after the last firing are never emitted."""

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def of(cls, window_size: int) -> CountTrigger:
        """A trigger that fires at every ``window_size``-th element."""
        return cls(window_size)

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
    """Fires as the trigger ``inner`` does, and empties the window each time.

    The window stays open: later firings emit only the elements that came after the last one.
    """

    def __init__(self, inner: Trigger) -> None:
        self.inner = inner

    @classmethod
    def of(cls, nested_trigger: Trigger) -> PurgingTrigger:
        """A trigger that fires as ``nested_trigger`` does and purges."""
        return cls(nested_trigger)

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
    """Never fires. Use it for a window whose results are not needed (a late side output, a merge)."""

    @classmethod
    def create(cls) -> NeverTrigger:
        """The trigger."""
        return cls()

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        """Does nothing: the trigger keeps no state."""


class _ContinuousTrigger(Trigger):
    """Fires every ``interval_ms``. The state ``fire-time`` is the next firing; merged windows take the earliest."""

    _FIRE_TIME = ReducingStateDescriptor("fire-time", min, BigIntType())

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms

    @classmethod
    def of(cls, interval: Any) -> Self:
        """A trigger that fires every ``interval``, a ``Time`` or whole ms.

        Raises:
            SpecError: The interval is not above 0.
        """
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
        """An element came at ``time`` (ms): set the next firing if none is set."""
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
    """Fires every interval of event time, and at the window's end."""

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
    """Fires every interval of the clock."""

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
