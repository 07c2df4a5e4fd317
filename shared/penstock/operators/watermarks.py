"""Watermarks: merged over inputs, made per split, and read from columns.

All values are int64 µs. ``MIN_WATERMARK`` means "no watermark yet".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.jobgraph.specs.parts import FOR_EVER_US
from penstock.operators.idleness import Idleness
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.types.batch import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobgraph.specs import WatermarkSpec
    from penstock.types.batch import Batch
    from penstock.types.column import Column


class WatermarkValve:
    """The watermark of n inputs: the lowest of those that count.

    Idle and ended inputs do not count, quiet ones only if ``waits_for_quiet``. An input that was idle counts
    again when its watermark has reached the output's: until then only its own rows are late, and other inputs
    are not held back. When all are idle, the output rises to the highest watermark that they reached, but not to
    the end of time while one of them has not ended.
    """

    __slots__ = ("_counts", "_ended", "_idle", "_risen", "_told", "_values", "_waits", "idle", "watermark")

    def __init__(self, n: int, *, waits_for_quiet: bool = False) -> None:
        self._waits = waits_for_quiet
        self._values = [MIN_WATERMARK] * n
        self._idle = [Idleness.ACTIVE] * n
        self._ended = [False] * n
        self._counts = [True] * n
        self._risen = False
        self.watermark = MIN_WATERMARK
        self.idle = self._told = Idleness.ACTIVE

    def advance(self, index: int, value: int) -> None:
        """Input ``index`` has the watermark ``value`` (µs); a lower value than before is ignored."""
        if value <= self._values[index]:
            return
        self._values[index] = value
        if self._waits_for(index) and value >= self.watermark:
            self._counts[index] = True
        self._update()

    def set_idle(self, index: int, idle: Idleness) -> None:
        """Input ``index`` becomes idle, quiet or active."""
        if self._idle[index] == idle:
            return
        self._idle[index] = idle
        self._counts[index] = self._waits_for(index) and self._values[index] >= self.watermark
        self._update()

    def _waits_for(self, index: int) -> bool:
        idle = self._idle[index]
        return not idle or (idle is Idleness.QUIET and self._waits)

    def end(self, index: int) -> None:
        """Input ``index`` has ended."""
        self._ended[index] = True
        self._counts[index] = False
        self._update()

    def preset(self, value: int) -> None:
        """Start from a restored watermark (µs): no input is below it."""
        self._values = [max(v, value) for v in self._values]
        self.watermark = max(self.watermark, value)

    def position(self, index: int) -> tuple[int, bool]:
        """(watermark, whether idle or quiet) of one input."""
        return self._values[index], bool(self._idle[index])

    def take_changes(self) -> tuple[int | None, Idleness | None]:
        """(the watermark if it rose, the idleness if it changed) since the last call; None means no change."""
        risen = self.watermark if self._risen else None
        idle = None if self.idle is self._told else self.idle
        self._risen, self._told = False, self.idle
        return risen, idle

    def holder(self) -> int | None:
        """The index of the input with the lowest watermark; None if fewer than two inputs count."""
        counting = [i for i, counts in enumerate(self._counts) if counts]
        if len(counting) < 2:
            return None
        return min(counting, key=self._values.__getitem__)

    def _update(self) -> None:
        counting = [v for v, counts in zip(self._values, self._counts, strict=True) if counts]
        active = any(not i and not e for i, e in zip(self._idle, self._ended, strict=True))
        self.idle = Idleness.ACTIVE if active or all(self._ended) else self._kind()
        lowest = self.watermark
        if counting and min(counting) < MAX_WATERMARK:
            lowest = min(counting)
        elif counting or not active:
            # An input that ends sends the last watermark first. That says nothing about idle inputs, which
            # may continue.
            left = [v for v, e in zip(self._values, self._ended, strict=True) if not e and v < MAX_WATERMARK]
            lowest = max(left or self._values, default=MIN_WATERMARK)
        if lowest > self.watermark:
            self.watermark = lowest
            self._risen = True

    def _kind(self) -> Idleness:
        """How the inputs that have not ended are idle: quiet if one of them is."""
        return max(i for i, e in zip(self._idle, self._ended, strict=True) if not e)


class EventTimes:
    """Reads the event times that a ``WatermarkSpec`` names from batches."""

    def __init__(self, spec: WatermarkSpec, compile_expr: Callable[..., Callable[[Batch], Column]]) -> None:
        self._rowtime = spec.rowtime
        self._delay_us = spec.delay_us
        self._expr = None if spec.expr is None else compile_expr(spec.expr)

    def highest(self, batch: Batch) -> int | None:
        """The highest watermark (µs) that the batch allows; None if all its times are NULL, or there are no watermarks."""
        return self._of(batch, np.max)

    def lowest(self, batch: Batch) -> int | None:
        """The highest watermark (µs) before the batch that makes none of its rows late; None if all its times
        are NULL."""
        return self._of(batch, np.min)

    def _of(self, batch: Batch, pick: Callable[[np.ndarray], np.int64]) -> int | None:
        if self._delay_us >= FOR_EVER_US:
            return None
        if self._expr is not None:
            column = self._expr(batch)
            found = _picked(column.values, column.valid, pick)
            return None if found is None else found - 1
        if self._rowtime is None:
            known = None if batch.times is None else batch.times != NO_TIME
            found = None if batch.times is None else _picked(batch.times, known, pick)
        else:
            column = batch.columns[self._rowtime]
            found = _picked(column.values, column.valid, pick)
        return None if found is None else found - self._delay_us - 1


def _picked(
    values: np.ndarray, valid: np.ndarray | None, pick: Callable[[np.ndarray], np.int64]
) -> int | None:
    if valid is not None:
        values = values[valid]
    return int(pick(values)) if len(values) else None


class SplitWatermarks:
    """Watermarks and idleness of one reader's splits.

    A split counts from the moment it is added, so that the reader's watermark waits for the split's first row.
    It no longer counts when it is finished or idle: caught up and without a row for ``idle_timeout_ms`` (0:
    never idle). Time in which the reader was not polled (back-pressure) does not count towards the time-out.
    If no split counts, the watermark is the highest that any of them reached.

    A reader without a split may get one whose rows are older than those of other sources. So it is idle only
    after the time-out, or while it has never had one although other readers of the source have.
    """

    def __init__(self, idle_timeout_ms: int) -> None:
        self._idle_timeout_ms = idle_timeout_ms
        self._value: dict[str, int] = {}
        self._last_row_ms: dict[str, int] = {}
        self._idle: set[str] = set()
        self._highest = MIN_WATERMARK
        self._any = self._elsewhere = False
        #: The time (ms) of the last row or assignment; None before the first look.
        self._since_ms: int | None = None
        self.watermark = MIN_WATERMARK

    def others_have_splits(self) -> None:
        """Another reader of the source has a split."""
        self._elsewhere = True

    def add(self, split: str, now_ms: int) -> None:
        """A split is assigned to the reader at ``now_ms``."""
        self._any = True
        self._value.setdefault(split, MIN_WATERMARK)
        self._last_row_ms[split] = self._since_ms = now_ms

    def rows(self, split: str, highest: int | None, now_ms: int) -> None:
        """A split gave rows that allow the watermark ``highest`` (µs; None: no event time)."""
        self._last_row_ms[split] = self._since_ms = now_ms
        self._idle.discard(split)
        if highest is not None and highest > self._value.get(split, MIN_WATERMARK):
            self._value[split] = highest
            self._highest = max(self._highest, highest)

    def finished(self, split: str) -> None:
        """A split has been read to its end."""
        self._value.pop(split, None)
        self._last_row_ms.pop(split, None)
        self._idle.discard(split)

    def not_asked(self, for_ms: int) -> None:
        """The reader was not polled for ``for_ms`` milliseconds."""
        for split in self._last_row_ms:
            self._last_row_ms[split] += for_ms
        if self._since_ms is not None:
            self._since_ms += for_ms

    def evaluate(self, now_ms: int, caught_up: Callable[[str], bool]) -> tuple[int, bool]:
        """(watermark in µs, whether idle) of the reader at ``now_ms``."""
        if self._idle_timeout_ms:
            for split, last in self._last_row_ms.items():
                if split not in self._idle and now_ms - last >= self._idle_timeout_ms and caught_up(split):
                    self._idle.add(split)
        counting = [v for split, v in self._value.items() if split not in self._idle]
        self.watermark = max(self.watermark, min(counting) if counting else self._highest)
        return self.watermark, not counting and (bool(self._value) or self._idle_without_splits(now_ms))

    def _idle_without_splits(self, now_ms: int) -> bool:
        if self._since_ms is None:
            self._since_ms = now_ms
        if not self._any and self._elsewhere:
            return True
        return 0 < self._idle_timeout_ms <= now_ms - self._since_ms

    def holder(self) -> str | None:
        """The split with the lowest watermark among those that count; None if none counts."""
        counting = [s for s in self._value if s not in self._idle]
        return min(counting, key=self._value.__getitem__, default=None)

    @property
    def newest_us(self) -> int | None:
        """The highest watermark (µs) that any split reached; None if there is none."""
        return None if self._highest == MIN_WATERMARK else self._highest

    def values(self) -> dict[str, int]:
        """Split -> watermark (µs), for checkpoints."""
        return {s: v for s, v in self._value.items() if v > MIN_WATERMARK}


__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "EventTimes",
    "SplitWatermarks",
    "WatermarkValve",
]
