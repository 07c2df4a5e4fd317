"""What functions and triggers of windows see of the operator: the window, times in ms, state and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.operators.process_context import MAX_LONG, to_ms, to_us
from penstock.operators.window_functions import GLOBAL_END, GlobalWindow, TimeWindow
from penstock.state.states import MergingState

if TYPE_CHECKING:
    from typing import Self

    from penstock.operators.keyed_window import KeyedWindowOperator

#: (start, end) in µs.
Window = tuple[int, int]
#: A window fires when the watermark reaches its last microsecond.
LAST_US = 1
_MS = 1_000


def user_window(window: Window) -> TimeWindow:
    """Windows as users see them: ms. The last of a global window is the largest that there is."""
    if window[1] == GLOBAL_END:
        return GlobalWindow(*window)
    return TimeWindow(window[0] // _MS, window[1] // _MS)


class _Context:
    """What window functions and triggers both see."""

    def __init__(self, operator: KeyedWindowOperator) -> None:
        self._operator = operator

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        """``Context[TimeWindow]`` is the class: the parameters are for the reader."""
        return cls

    def current_watermark(self) -> int:
        """ms"""
        operator = self._operator
        if operator._batch and operator._trigger is None:
            return MAX_LONG  # windows fire at the end
        return to_ms(operator._watermark)

    get_current_watermark = current_watermark

    def current_processing_time(self) -> int:
        """ms"""
        return self._operator.ctx.now_ms()

    get_current_processing_time = current_processing_time


class WindowContext(_Context):
    """``context`` of a ProcessWindowFunction."""

    def __init__(self, operator: KeyedWindowOperator) -> None:
        super().__init__(operator)
        self.current: Window = (0, 0)

    def window(self) -> TimeWindow:
        return user_window(self.current)

    def window_state(self) -> _States:
        """State of this key and window; clear it in ``clear``."""
        return _States(self._operator, windowed=True)

    def global_state(self) -> _States:
        """State of this key, over all windows."""
        return _States(self._operator, windowed=False)

    def output(self, tag: Any, value: Any) -> None:
        self._operator._emit.side_output(tag, value)


class TriggerContext(_Context):
    """``ctx`` of a trigger: timers and state of the key and window that it is called for. ms"""

    def get_partitioned_state(self, descriptor: Any) -> Any:
        """State of this key and window."""
        operator = self._operator
        return operator._backend.state(descriptor, scope=operator._scope, namespaced=True)

    def register_event_time_timer(self, time: int) -> None:
        """Registering twice fires once."""
        operator = self._operator
        entry = operator._scope.key
        if operator._sets_no_timers(entry[1]):
            return
        operator._backend.event_timers.register(
            self._event_us(entry[1], time), entry, operator._backend.journal
        )

    def delete_event_time_timer(self, time: int) -> None:
        operator = self._operator
        entry = operator._scope.key
        operator._backend.event_timers.delete(
            self._event_us(entry[1], time), entry, operator._backend.journal
        )

    def register_processing_time_timer(self, time: int) -> None:
        operator = self._operator
        entry = operator._scope.key
        if operator._sets_no_timers(entry[1]):
            return
        at = self._clock_ms(entry[1], time)
        operator._backend.processing_timers.register(at, entry, operator._backend.journal)
        operator.ctx.wake_at(at)

    def delete_processing_time_timer(self, time: int) -> None:
        operator = self._operator
        entry = operator._scope.key
        operator._backend.processing_timers.delete(
            self._clock_ms(entry[1], time), entry, operator._backend.journal
        )

    def _event_us(self, window: Window, time: int) -> int:
        """The window's last ms ends with its last µs, and so does that of its clean-up: what a trigger
        sets for them is one timer with ours."""
        if window[1] != GLOBAL_END:
            for own in (window[1] - LAST_US, self._operator._cleanup_time(window)):
                if time == own // _MS:
                    return own
        return to_us(time)

    def _clock_ms(self, window: Window, time: int) -> int:
        """A window by the clock is over when the clock shows its end."""
        over = not self._operator._spec.event_time and time == user_window(window).max_timestamp()
        return time + 1 if over else time


class OnMergeContext(TriggerContext):
    """``ctx`` of ``on_merge``. ``merged``: the (key, window)s that are part of the new one now."""

    def __init__(self, operator: KeyedWindowOperator, merged: list[tuple[Any, Window]]) -> None:
        super().__init__(operator)
        self._merged = merged

    def merge_partitioned_state(self, descriptor: Any) -> None:
        """Moves the state of the merged windows into the new one's. UnsupportedError for value and map
        state: nothing says how two of them become one."""
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
    """A keyed state store as window functions see it."""

    def __init__(self, operator: KeyedWindowOperator, *, windowed: bool) -> None:
        self._operator = operator
        self._windowed = windowed

    def get_state(self, descriptor: Any) -> Any:
        operator = self._operator
        if not self._windowed:
            return operator._backend.state(descriptor)
        return operator._backend.state(descriptor, scope=operator._scope, namespaced=True)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state
