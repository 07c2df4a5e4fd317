"""The windows of a Python window operator that merge: sessions, and those of a program's own merging assigner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.operators.window_contexts import LAST_US, OnMergeContext, Window, cleanup_time, user_window
from penstock.state.descriptors import ValueStateDescriptor
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.operators.keyed_window import KeyedWindowOperator

_MS = 1_000


class MergingWindows:
    """The open windows of each key: a list in its state.

    ``operator``: whose windows they are; ``merged``: (known windows, new one) → (those that become one with it, that one).
    """

    def __init__(
        self,
        operator: KeyedWindowOperator,
        merged: Callable[[list[Window], Window], tuple[list[Window], Window]],
    ) -> None:
        self._operator = operator
        self._merged = merged
        pairs = t.ArrayType(t.ArrayType(t.BigIntType()))
        self._open = operator._backend.state(ValueStateDescriptor("session-windows", pairs))

    def merge(self, key: Any, new: Window) -> Window | None:
        """Merge ``new`` with the windows that it belongs to; return the merged window, or None if it is late."""
        op = self._operator
        op._backend.scope.key = key
        known: list[Window] = [tuple(w) for w in self._open.value() or ()]
        touched, merged = self._merged(known, new)
        if op._is_late(merged):
            return None
        if touched == [merged]:
            return merged
        op._scope.key = (key, merged)
        if touched and op._trigger is not None:
            # This must happen before the old windows are cleared: their state moves into the merged window.
            op._trigger.on_merge(user_window(merged), OnMergeContext(op, [(key, w) for w in touched]))
        contents = []
        for window in touched:
            op._scope.key = (key, window)
            contents.append(op._contents.take())
            self._forget_timers(key, window)
            if op._trigger is not None:
                op._trigger.clear(user_window(window), op._trigger_context)
        op._scope.key = (key, merged)
        op._contents.merge([c for c in contents if c is not None])
        kept = [w for w in known if w not in touched]
        op._backend.scope.key = key
        self._open.update([list(w) for w in [*kept, merged]])
        return merged

    def is_merged_away(self, key: Any, window: Window) -> bool:
        """Whether the window of a timer is part of a longer one by now; a trigger may have left the timer."""
        self._operator._backend.scope.key = key
        return list(window) not in map(list, self._open.value() or ())

    def over(self, key: Any, window: Window) -> None:
        """The window has ended."""
        self._operator._backend.scope.key = key
        left = [w for w in self._open.value() or () if tuple(w) != window]
        self._open.update(left or None)

    def _forget_timers(self, key: Any, window: Window) -> None:
        """Delete the timers of a window's end and of its clean-up. A trigger deletes the timers that it has set."""
        backend, entry = self._operator._backend, (key, window)
        end = window[1] - LAST_US
        backend.event_timers.delete(end, entry, backend.journal)
        backend.event_timers.delete(cleanup_time(self._operator._spec, window), entry, backend.journal)
        backend.processing_timers.delete(-(-window[1] // _MS), entry, backend.journal)
