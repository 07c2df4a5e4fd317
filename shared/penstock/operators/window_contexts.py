"""The contexts that window functions and triggers receive: the window, times in ms, state and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.operators.operator import MAX_WATERMARK
from penstock.operators.process_context import MAX_LONG, to_ms, to_us
from penstock.operators.window_functions import GLOBAL_END, CountWindow, GlobalWindow, TimeWindow
from penstock.state.states import MergingState

if TYPE_CHECKING:
    from typing import Self

    from penstock.jobgraph.specs import KeyedWindowSpec
    from penstock.operators.keyed_window import KeyedWindowOperator

#: (start, end) in µs.
Window = tuple[int, int]
#: A window fires when the watermark reaches its last microsecond.
LAST_US = 1
_MS = 1_000


def user_window(window: Window) -> TimeWindow:
    """The window in ms, as users see it; a ``GlobalWindow`` for the global window."""
    if window[1] == GLOBAL_END:
        return GlobalWindow(*window) if window[0] < 0 else CountWindow(*window)
    return TimeWindow(window[0] // _MS, window[1] // _MS)


def cleanup_time(spec: KeyedWindowSpec, window: Window) -> int:
    """When everything of a window is given up (µs)."""
    if window[1] == GLOBAL_END:
        return MAX_WATERMARK
    lateness = spec.allowed_lateness_us if spec.event_time else 0
    return window[1] - LAST_US + lateness


class _Context:
    """The methods that the contexts of window functions and of triggers share."""

    def __init__(self, operator: KeyedWindowOperator) -> None:
        self._operator = operator

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        """``Context[TimeWindow]`` is the class: the parameters are for the reader."""
        return cls

    def current_watermark(self) -> int:
        """The current watermark in ms."""
        operator = self._operator
        if operator._batch and operator._trigger is None:
            return MAX_LONG  # windows fire at the end
        return to_ms(operator._watermark)

    get_current_watermark = current_watermark

    def current_processing_time(self) -> int:
        """The current processing time, ms since the epoch."""
        return self._operator.ctx.now_ms()

    get_current_processing_time = current_processing_time


class EvictorContext(_Context):
    """``evictor_context`` of an evictor."""


class WindowContext(_Context):
    """``context`` of a ProcessWindowFunction."""

    def __init__(self, operator: KeyedWindowOperator) -> None:
        super().__init__(operator)
        self.current: Window = (0, 0)

    def window(self) -> TimeWindow:
        """The window that is being processed."""
        return user_window(self.current)

    def window_state(self) -> _States:
        """State of this key and window. The function must clear it in ``clear``."""
        return _States(self._operator, windowed=True)

    def global_state(self) -> _States:
        """State of this key that all its windows share."""
        return _States(self._operator, windowed=False)

    def output(self, tag: Any, value: Any) -> None:
        """Send ``value`` to the side output ``tag``."""
        self._operator._emit.side_output(tag, value)


class TriggerContext(_Context):
    """``ctx`` of a trigger: timers (times in ms) and state of the key and window for which the trigger is called."""

    def get_partitioned_state(self, descriptor: Any) -> Any:
        """State of this key and window."""
        operator = self._operator
        return operator._backend.state(descriptor, scope=operator._scope, namespaced=True)

    def register_event_time_timer(self, time: int) -> None:
        """Fire at event time ``time`` (ms). A timer that is registered twice fires once."""
        operator = self._operator
        entry = operator._scope.key
        if operator._sets_no_timers(entry[1]):
            return
        operator._backend.event_timers.register(
            self._event_us(entry[1], time), entry, operator._backend.journal
        )

    def delete_event_time_timer(self, time: int) -> None:
        """Delete the event-time timer at ``time`` (ms), if there is one."""
        operator = self._operator
        entry = operator._scope.key
        operator._backend.event_timers.delete(
            self._event_us(entry[1], time), entry, operator._backend.journal
        )

    def register_processing_time_timer(self, time: int) -> None:
        """Fire at processing time ``time`` (ms). A timer that is registered twice fires once."""
        operator = self._operator
        entry = operator._scope.key
        if operator._sets_no_timers(entry[1]):
            return
        at = self._clock_ms(entry[1], time)
        operator._backend.processing_timers.register(at, entry, operator._backend.journal)
        operator.ctx.wake_at(at)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete the processing-time timer at ``time`` (ms), if there is one."""
        operator = self._operator
        entry = operator._scope.key
        operator._backend.processing_timers.delete(
            self._clock_ms(entry[1], time), entry, operator._backend.journal
        )

    def _event_us(self, window: Window, time: int) -> int:
        """The time (µs) of a timer that a trigger sets for ``time`` ms.

        The last ms of a window, and of its clean-up, become the last µs, so that the timer is the operator's
        own timer.
        """
        if window[1] != GLOBAL_END:
            for own in (window[1] - LAST_US, cleanup_time(self._operator._spec, window)):
                if time == own // _MS:
                    return own
        return to_us(time)

    def _clock_ms(self, window: Window, time: int) -> int:
        """The time (ms) of a processing-time timer. The timer of the window's last ms fires one ms later, at
        the window's end."""
        over = not self._operator._spec.event_time and time == user_window(window).max_timestamp()
        return time + 1 if over else time


class OnMergeContext(TriggerContext):
    """``ctx`` of ``on_merge``. ``merged`` are the (key, window) pairs that are part of the new window."""

    def __init__(self, operator: KeyedWindowOperator, merged: list[tuple[Any, Window]]) -> None:
        super().__init__(operator)
        self._merged = merged

    def merge_partitioned_state(self, descriptor: Any) -> None:
        """Move the state of the merged windows into the state of the new one.

        Raises:
            UnsupportedError: the state is a value or a map, which cannot be merged.
        """
        state = self.get_partitioned_state(descriptor)
        if not isinstance(state, MergingState):
            raise UnsupportedError(
                "The given state descriptor does not refer to a mergeable state (MergingState)",
                expected="a reducing, aggregating or list state",
                got=repr(descriptor),
                where=f"on_merge of a trigger, operator '{self._operator.ctx.name}'",
            )
        state.merge(self._merged)


class _States:
    """Access to a store of keyed state for window functions."""

    def __init__(self, operator: KeyedWindowOperator, *, windowed: bool) -> None:
        self._operator = operator
        self._windowed = windowed

    def get_state(self, descriptor: Any) -> Any:
        operator = self._operator
        if not self._windowed:
            return operator._backend.state(descriptor)
        return operator._backend.state(descriptor, scope=operator._scope, namespaced=True)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state
