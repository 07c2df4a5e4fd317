"""The parts of a Python window: the call, and windows as users see them. ``triggers`` says when they emit.

``penstock.api`` exports these under Flink's names. Triggers have their names here, too, because the functions of
earlier savepoints name them so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.operators.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from penstock.operators.evictors import Evictor
    from penstock.types.logical import LogicalType

__all__ = [
    "GLOBAL_END",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "CountWindow",
    "EventTimeTrigger",
    "GlobalWindow",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "TimeWindow",
    "Trigger",
    "TriggerResult",
    "WindowCall",
]

#: End of a global window, µs.
GLOBAL_END = 2**63 - 1


class TimeWindow(NamedTuple):
    """A window [start, end) in ms."""

    start: int
    end: int

    def intersects(self, other: TimeWindow) -> bool:
        """Whether this window and ``other`` overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds this one and ``other``."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Where the window of ``window_size`` begins that ``timestamp`` falls into; all in ms.

        ``offset``: how far windows are shifted from multiples of ``window_size``.
        """
        return timestamp - (timestamp - offset) % window_size

    def max_timestamp(self) -> int:
        """The last event time in the window, ms."""
        return self.end - 1

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: Any) -> None:
        """Tell ``callback.merge(parts, whole)`` which of ``windows`` overlap or touch, and the window that covers these."""
        parts: list[TimeWindow] = []
        for window in sorted(windows):
            if parts and not parts[-1].intersects(window) and not _covering(parts).intersects(window):
                _tell(parts, callback)
                parts = []
            parts.append(window)
        _tell(parts, callback)


def _covering(parts: list[TimeWindow]) -> TimeWindow:
    return TimeWindow(min(w.start for w in parts), max(w.end for w in parts))


def _tell(parts: list[TimeWindow], callback: Any) -> None:
    if len(parts) > 1:
        callback.merge(parts, _covering(parts))


class GlobalWindow(TimeWindow):
    """The one window that contains all of time."""

    def __new__(cls, start: int = -(2**63), end: int = GLOBAL_END) -> Self:
        return tuple.__new__(cls, (start, end))

    @staticmethod
    def get() -> GlobalWindow:
        """The window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return self.end


class CountWindow(GlobalWindow):
    """The window of a number of elements; ``id``: its own number, from 0 for each key."""

    def __new__(cls, id: int, end: int = GLOBAL_END) -> Self:
        return tuple.__new__(cls, (id, end))

    @property
    def id(self) -> int:
        """The window's number."""
        return self.start


class SessionWindowTimeGapExtractor:
    """Says how long each record holds its session open: ``EventTimeSessionWindows.with_dynamic_gap``."""

    def extract(self, element: Any) -> int:
        """The gap behind ``element``, ms; above 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class WindowCall:
    """The entry of a window operator in the function table.

    ``function``: a reduce function, an AggregateFunction, or None (all elements are kept). ``window_function``:
    a ProcessWindowFunction that is called with the result, or None. ``state_type``: the type of the
    accumulator, or of an element if there is none. ``gap``: a function from a record
    to the gap of its session in ms, or None if all have one. ``evictor``: drops elements of a window, or None.
    ``assigner``: the program's own window assigner, or None.
    """

    function: Any
    window_function: Any
    state_type: LogicalType
    trigger: Trigger | None = None
    gap: Callable[[Any], int] | None = None
    evictor: Evictor | None = None
    assigner: Any = None
