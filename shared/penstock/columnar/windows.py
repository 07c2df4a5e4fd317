"""Pane arithmetic of TUMBLE, HOP and CUMULATE windows. All times are int64 µs.

A *pane* is the longest slice of time that each window contains wholly or not at all. Rows are aggregated per
pane; the result of a window is the merge of its panes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from penstock.jobgraph.specs import WindowSpec

#: Flink's row time of a window result: its end minus one millisecond.
ROWTIME_STEP_US = 1_000


class Panes:
    """The panes of a window specification. ``length_us`` is the length of a pane.

    Raises:
        UnsupportedError: the kind is not tumble, hop or cumulate.
        SpecError: a size or slide is not positive, or a cumulating window's size no multiple of its step.
    """

    def __init__(self, spec: WindowSpec) -> None:
        if spec.kind not in ("tumble", "hop", "cumulate"):
            raise UnsupportedError(
                "this window has no panes", expected="tumble, hop or cumulate", got=spec.kind
            )
        slide = spec.size_us if spec.kind == "tumble" else spec.slide_us
        if spec.size_us <= 0 or slide <= 0:
            raise SpecError(
                "a window needs a positive size and slide",
                expected="size_us > 0 and slide_us > 0",
                got=f"size_us = {spec.size_us}, slide_us = {slide}",
                where=f"{spec.kind} window",
            )
        if spec.kind == "cumulate" and spec.size_us % slide:
            raise SpecError(
                "a cumulating window's maximum size must be a multiple of its step",
                expected="size_us % slide_us = 0",
                got=f"size_us = {spec.size_us}, slide_us = {slide}",
            )
        self.cumulate = spec.kind == "cumulate"
        self.size_us = spec.size_us
        self.slide_us = slide
        self.length_us = slide if self.cumulate else math.gcd(spec.size_us, slide)
        self.offset_us = spec.offset_us % self.length_us
        self._start_offset_us = spec.offset_us % (spec.size_us if self.cumulate else slide)

    def pane_of(self, times: np.ndarray) -> np.ndarray:
        """The start of the pane that contains each time."""
        return times - (times - self.offset_us) % self.length_us

    def last_end_of(self, panes: Any) -> Any:
        """The end of the last window that contains each pane; ``panes`` is an array or a scalar.

        An end at or before the pane's start means that no window contains the pane, which happens if the
        slide is longer than the size.
        """
        step = self.size_us if self.cumulate else self.slide_us
        return panes - (panes - self._start_offset_us) % step + self.size_us

    def ends_between(self, pane: int, after: int, to: int) -> list[int]:
        """The ends e of windows that contain the pane, with after < e <= to, ascending."""
        last = int(self.last_end_of(np.int64(pane)))
        floor = max(pane, after)
        if self.cumulate:
            floor = max(floor, pane + self.length_us - 1)
        top = last if to >= last else last - -(-(last - to) // self.slide_us) * self.slide_us
        if top <= floor:
            return []
        first = top - (top - floor - 1) // self.slide_us * self.slide_us
        return list(range(first, top + 1, self.slide_us))

    def first_end_after(self, pane: int, after: int) -> int | None:
        """The first end above ``after`` of a window that contains the pane; None if there is none."""
        last = int(self.last_end_of(np.int64(pane)))
        floor = max(pane, after)
        if self.cumulate:
            floor = max(floor, pane + self.length_us - 1)
        if last <= floor:
            return None
        return last - (last - floor - 1) // self.slide_us * self.slide_us

    def start_of(self, end: int) -> int:
        """The start of the window that ends at ``end``."""
        if not self.cumulate:
            return end - self.size_us
        return end - 1 - (end - 1 - self._start_offset_us) % self.size_us

    def expand(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row numbers, window starts, window ends): one element for each window of each time.

        The windows of a row are adjacent, by ascending end.
        """
        panes = self.pane_of(times)
        last = self.last_end_of(panes)
        if self.cumulate:
            first = panes + self.length_us
            counts = (last - first) // self.slide_us + 1
        else:
            counts = np.maximum((last - panes - 1) // self.slide_us + 1, 0)
            first = last - (counts - 1) * self.slide_us
        rows = np.repeat(np.arange(len(times)), counts)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        ends = first[rows] + at * self.slide_us
        starts = (last - self.size_us)[rows] if self.cumulate else ends - self.size_us
        return rows, starts, ends
