"""Evictors: which elements of a Python window are dropped before, or after, its function sees them.

``penstock.api`` exports these under Flink's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from penstock.operators.window_functions import TimeWindow


@dataclass(frozen=True, slots=True)
class TimestampedValue:
    """An element of a window: its ``value`` and its ``timestamp`` in ms."""

    value: Any
    timestamp: int

    def get_value(self) -> Any:
        """The element."""
        return self.value

    def get_timestamp(self) -> int:
        """Its event time, or in a window by processing time the time at which it came; ms."""
        return self.timestamp


class Evictor:
    """Drops elements of a window. All elements of such a window are kept until it fires or they are dropped.

    Each method gets ``elements``, the list of the window's ``TimestampedValue``s in the order in which they came, and
    removes elements from it (``del elements[:2]``, ``elements[:] = …``). ``evictor_context`` gives the watermark and the
    time of the clock, in ms. ``Evictor[tuple, TimeWindow]`` is the same class.
    """

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        return cls

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: TimeWindow, evictor_context: Any
    ) -> None:
        """Called before the window's function. ``size``: the number of ``elements``; ``window``, ``evictor_context``: see ``Evictor``."""

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: TimeWindow, evictor_context: Any
    ) -> None:
        """Called after the window's function. ``size``: the number of ``elements``; ``window``, ``evictor_context``: see ``Evictor``."""


class _BeforeOrAfter(Evictor):
    """An evictor that evicts either before or after the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: TimeWindow, evictor_context: Any
    ) -> None:
        if not self.do_evict_after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: TimeWindow, evictor_context: Any
    ) -> None:
        if self.do_evict_after:
            self._evict(elements)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        raise NotImplementedError


class CountEvictor(_BeforeOrAfter):
    """Keeps the last ``max_count`` elements. ``do_evict_after``: drops the others after the function has seen them.

    Raises:
        SpecError: ``max_count`` is negative.
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise SpecError("the number of a count evictor is negative", expected=">= 0", got=str(max_count))
        self.max_count = max_count

    @classmethod
    def of(cls, max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keeps the last ``max_count`` elements. ``do_evict_after``: drops the others after the function has seen them."""
        return cls(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_BeforeOrAfter):
    """Keeps the elements of the last ``window_size_ms`` before the newest one.

    ``do_evict_after``: drops the others after the function has seen them.
    """

    def __init__(self, window_size_ms: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size_ms = window_size_ms

    @classmethod
    def of(cls, window_size: Any, do_evict_after: bool = False) -> TimeEvictor:
        """Keeps elements newer than the newest one minus ``window_size``.

        Args:
            window_size: A ``Time``, or whole milliseconds.
            do_evict_after: Drops the others after the function has seen them.

        Raises:
            SpecError: The size is not above 0.
        """
        size_ms = int(getattr(window_size, "to_milliseconds", lambda: window_size)())
        if size_ms <= 0:
            raise SpecError(
                "the size of a time evictor is not positive", expected="> 0", got=repr(window_size)
            )
        return cls(size_ms, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        newest = max((e.timestamp for e in elements), default=0)
        elements[:] = [e for e in elements if e.timestamp > newest - self.window_size_ms]


class DeltaEvictor(_BeforeOrAfter):
    """Keeps the elements whose distance from the last one, by ``delta_function``, is below ``threshold``.

    ``do_evict_after``: drops the others after the function has seen them.
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = getattr(delta_function, "get_delta", delta_function)

    @classmethod
    def of(
        cls, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> DeltaEvictor:
        """Keeps elements for which ``delta_function(element, last)`` is below ``threshold``.

        Args:
            threshold: The distance from which on elements are dropped.
            delta_function: A callable, or an object with ``get_delta``, of an element and the last one.
            do_evict_after: Drops them after the function has seen them.
        """
        return cls(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [e for e in elements if self.delta_function(e.value, last) < self.threshold]
