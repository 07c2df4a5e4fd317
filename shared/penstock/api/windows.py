"""The built-in window assigners, under Flink's names. Sizes are ``Time``s (or ms, or timedeltas)."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.api.common import duration_us
from penstock.api.window_assigner import MergingWindowAssigner, SpecAssigner, WindowAssigner
from penstock.errors import SpecError
from penstock.jobgraph.specs import WindowSpec

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "CumulativeEventTimeWindows",
    "EventTimeSessionWindows",
    "GlobalWindows",
    "MergingWindowAssigner",
    "ProcessingTimeSessionWindows",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

_S = TypeVar("_S", bound=SpecAssigner)


def _tumble(cls: type[_S], size: Any, offset: Any, event_time: bool) -> _S:
    size_us = _positive(size, "size of a tumbling window")
    spec = WindowSpec(kind="tumble", size_us=size_us, offset_us=duration_us(offset, "offset"))
    return cls(spec, event_time)


def _slide(cls: type[_S], size: Any, slide: Any, offset: Any, event_time: bool) -> _S:
    spec = WindowSpec(
        kind="hop",
        size_us=_positive(size, "size of a sliding window"),
        slide_us=_positive(slide, "slide of a sliding window"),
        offset_us=duration_us(offset, "offset"),
    )
    return cls(spec, event_time)


def _dynamic(cls: type[_S], session_gap: Any, event_time: bool) -> _S:
    gap = getattr(session_gap, "extract", session_gap)
    if not callable(gap):
        raise SpecError(
            "no gap of a session", expected="a SessionWindowTimeGapExtractor", got=repr(session_gap)
        )
    return cls(WindowSpec(kind="session"), event_time, gap)


def count_windows(size: int, slide: int) -> SpecAssigner:
    """Windows of ``size`` records of a key, one of which begins every ``slide`` records.

    Raises:
        SpecError: A number is below 1.
    """
    for what, number in (("size", size), ("slide", slide)):
        if number < 1:
            raise SpecError(f"the {what} of a count window is not positive", expected=">= 1", got=str(number))
    return SpecAssigner(WindowSpec(kind="count", count=size, count_slide=slide), False)


class CumulativeEventTimeWindows(SpecAssigner):
    """Windows that start at the same time and whose ends lie one step apart, by event time: SQL's
    CUMULATE."""

    @staticmethod
    def of(max_size: Any, step: Any, offset: Any = 0) -> CumulativeEventTimeWindows:
        """Windows of ``step``, 2 · ``step`` … up to ``max_size``, then the next start; shifted by ``offset``.

        Raises:
            SpecError: ``max_size`` is no multiple of ``step``.
        """
        size_us = _positive(max_size, "size of a cumulative window")
        step_us = _positive(step, "step of a cumulative window")
        if size_us % step_us:
            raise SpecError(
                "the size of cumulative windows is no multiple of their step",
                expected="a multiple of the step",
                got=f"{max_size!r} and {step!r}",
            )
        spec = WindowSpec(
            kind="cumulate", size_us=size_us, slide_us=step_us, offset_us=duration_us(offset, "offset")
        )
        return CumulativeEventTimeWindows(spec, True)


def _positive(value: Any, what: str) -> int:
    us = duration_us(value, what)
    if us <= 0:
        raise SpecError(f"{what} is not positive", expected="> 0", got=repr(value))
    return us


class TumblingEventTimeWindows(SpecAssigner):
    """Windows of one size, one after another, by event time."""

    @staticmethod
    def of(size: Any, offset: Any = 0) -> TumblingEventTimeWindows:
        """Windows of ``size`` that start at multiples of ``size`` since the epoch, shifted by ``offset``."""
        return _tumble(TumblingEventTimeWindows, size, offset, True)


class TumblingProcessingTimeWindows(SpecAssigner):
    """Windows of one size, one after another, by processing time."""

    @staticmethod
    def of(size: Any, offset: Any = 0) -> TumblingProcessingTimeWindows:
        """Windows of ``size`` that start at multiples of ``size`` since the epoch, shifted by ``offset``."""
        return _tumble(TumblingProcessingTimeWindows, size, offset, False)


class SlidingEventTimeWindows(SpecAssigner):
    """Windows of one size that overlap, by event time."""

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = 0) -> SlidingEventTimeWindows:
        """Windows of ``size``, one of which starts every ``slide``, shifted by ``offset``."""
        return _slide(SlidingEventTimeWindows, size, slide, offset, True)


class SlidingProcessingTimeWindows(SpecAssigner):
    """Windows of one size that overlap, by processing time."""

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = 0) -> SlidingProcessingTimeWindows:
        """Windows of ``size``, one of which starts every ``slide``, shifted by ``offset``."""
        return _slide(SlidingProcessingTimeWindows, size, slide, offset, False)


class EventTimeSessionWindows(SpecAssigner):
    """Windows of a key that end after a gap without records, by event time."""

    @staticmethod
    def with_gap(size: Any) -> EventTimeSessionWindows:
        """Records of a key belong to one window if less than ``size`` lies between them."""
        return EventTimeSessionWindows(
            WindowSpec(kind="session", gap_us=_positive(size, "gap of a session")), True
        )

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> EventTimeSessionWindows:
        """Each record holds its session open as long as ``extractor`` says.

        Args:
            extractor: A ``SessionWindowTimeGapExtractor``, or a callable of a record, that gives ms.
        """
        return _dynamic(EventTimeSessionWindows, extractor, True)


class ProcessingTimeSessionWindows(SpecAssigner):
    """Windows of a key that end after a gap without records, by processing time."""

    @staticmethod
    def with_gap(size: Any) -> ProcessingTimeSessionWindows:
        """Records of a key belong to one window if less than ``size`` lies between them."""
        return ProcessingTimeSessionWindows(
            WindowSpec(kind="session", gap_us=_positive(size, "gap of a session")), False
        )

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> ProcessingTimeSessionWindows:
        """Each record holds its session open as long as ``extractor`` says.

        Args:
            extractor: A ``SessionWindowTimeGapExtractor``, or a callable of a record, that gives ms.
        """
        return _dynamic(ProcessingTimeSessionWindows, extractor, False)


class GlobalWindows(SpecAssigner):
    """One window for all records of a key. It never fires by itself: it needs a trigger."""

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner."""
        return GlobalWindows(WindowSpec(kind="global"), True)


class CountTumblingWindowAssigner(SpecAssigner):
    """Windows of ``window_size`` records of a key, one after another: ``count_window(size)``."""

    def __init__(self, window_size: int) -> None:
        made = count_windows(window_size, window_size)
        super().__init__(made.spec, made.event_time)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Windows of ``window_size`` records."""
        return CountTumblingWindowAssigner(window_size)


class CountSlidingWindowAssigner(SpecAssigner):
    """Windows of ``window_size`` records of a key, one of which begins every ``window_slide`` records."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        made = count_windows(window_size, window_slide)
        super().__init__(made.spec, made.event_time)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Windows of ``window_size`` records, one of which begins every ``window_slide``."""
        return CountSlidingWindowAssigner(window_size, window_slide)
