"""Window assigners: those that a program derives, and the base of the built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import UnsupportedError
from penstock.jobgraph.loading import LoadedLater
from penstock.jobgraph.specs import WindowSpec
from penstock.operators.window_assigning import AssignBy, assigner
from penstock.operators.window_contexts import user_window
from penstock.operators.window_functions import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from penstock.operators.window_functions import Trigger


class WindowAssigner:
    """Puts records into windows. The classes of this module make the usual ones; a program derives its own.

    An own assigner defines ``assign_windows`` and, if its windows are by processing time, ``is_event_time``; one whose
    windows merge is a ``MergingWindowAssigner``. ``WindowAssigner[tuple, TimeWindow]`` is the same class.
    """

    #: Kind and sizes of the windows, without the time column.
    spec: WindowSpec = WindowSpec(kind="own")
    #: A record → the gap of its session in ms; None: ``spec`` says it.
    gap: Any = None
    WindowAssignerContext: Any = LoadedLater("penstock.operators.own_windows:WindowAssignerContext")

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        return cls

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Iterable[Any]:
        """The windows of ``element``: ``TimeWindow``s, ``CountWindow``s or the ``GlobalWindow``.

        ``timestamp``: its event time, or the clock's, ms; ``context``: a ``WindowAssignerContext``.
        """
        raise NotImplementedError

    def get_default_trigger(self, env: Any = None) -> Trigger:
        """The trigger of windows for which the program names none. ``env`` is not used."""
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def get_window_serializer(self) -> Any:
        """Not used: windows are kept as two numbers."""

    def is_event_time(self) -> bool:
        """Whether the windows are by event time."""
        return True

    @property
    def event_time(self) -> bool:
        """``is_event_time()``."""
        return self.is_event_time()

    @property
    def merging(self) -> bool:
        """Whether windows become one."""
        return self.spec.kind == "session"

    @property
    def own(self) -> bool:
        """Whether the program defines the windows."""
        return self.spec.kind == "own"


class MergingWindowAssigner(WindowAssigner):
    """An assigner of a program whose windows merge, as sessions do."""

    MergeCallback: Any = LoadedLater("penstock.operators.own_windows:MergeCallback")

    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        """Say which of ``windows`` become one, each time that a record brings a window.

        ``windows``: the open windows of the key and the new one; ``callback.merge(parts, whole)`` names the windows that
        become one. ``TimeWindow.merge_windows(windows, callback)`` merges those that overlap or touch.
        """
        raise NotImplementedError

    @property
    def merging(self) -> bool:
        return True


class SpecAssigner(WindowAssigner):
    """A built-in assigner.

    ``spec``: kind and sizes of the windows, without the time column; ``event_time``: True for windows by
    event time, False for windows by processing time; ``gap``: a record → the gap of its session in ms, or None.
    """

    def __init__(self, spec: WindowSpec, event_time: bool = True, gap: Any = None) -> None:
        self.spec = spec
        self.gap = gap
        self._event_time = event_time

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpecAssigner):
            return NotImplemented
        return (self.spec, self._event_time, self.gap) == (other.spec, other._event_time, other.gap)

    def __hash__(self) -> int:
        return hash((self.spec, self._event_time))

    def is_event_time(self) -> bool:
        return self._event_time

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Iterable[Any]:
        """The windows of ``element``, as the operator assigns them.

        Raises:
            UnsupportedError: The windows count records, which only the operator knows.
        """
        if self.spec.kind == "count":
            raise UnsupportedError(
                "assign_windows of a count window", expected="a window by time", remedy="use count_window"
            )
        time_ms = timestamp if self._event_time else context.get_current_processing_time()
        by = AssignBy(lambda key: 0, self.gap)
        found = assigner(self.spec, np.array([time_ms * 1_000], np.int64), [element], by)(0, None)
        return [user_window(w) for w in found]

    def get_default_trigger(self, env: Any = None) -> Trigger:
        match self.spec.kind:
            case "global":
                return NeverTrigger()
            case "count":
                return PurgingTrigger.of(CountTrigger.of(self.spec.count))
        return super().get_default_trigger(env)

    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        """Of session ``windows``: says ``callback.merge(parts, whole)`` for those that overlap or touch.

        Raises:
            UnsupportedError: The windows do not merge.
        """
        if not self.merging:
            raise UnsupportedError("merge_windows of windows that do not merge", expected="session windows")
        TimeWindow.merge_windows(windows, callback)
