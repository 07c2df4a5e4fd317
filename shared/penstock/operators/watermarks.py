"""Watermarks: merged over inputs, made per split, and read from columns.

All values are int64 µs. ``MIN_WATERMARK`` means "no watermark yet".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.jobgraph.specs.parts import FOR_EVER_US
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.types.batch import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobgraph.specs import WatermarkSpec
    from penstock.types.batch import Batch
    from penstock.types.column import Column


class WatermarkValve:
    """The watermark of n inputs: the lowest of those that count.

    Idle and ended inputs do not count. An input that was idle counts again when its watermark has reached the
    output's: until then only its own rows are late, and other inputs are not held back. When all are idle, the
    output rises to the highest watermark that they reached, but not to the end of time while one of them has
    not ended.
    """

    __slots__ = ("_changed_idle", "_counts", "_ended", "_idle", "_risen", "_values", "idle", "watermark")

    def __init__(self, n: int) -> None:
        self._values = [MIN_WATERMARK] * n
        self._idle = [False] * n
        self._ended = [False] * n
        self._counts = [True] * n
        self._risen = False
        self._changed_idle = False
        self.watermark = MIN_WATERMARK
        self.idle = False

    def advance(self, index: int, value: int) -> None:
        """Input ``index`` has the watermark ``value`` (µs); a lower value than before is ignored."""
        if value <= self._values[index]:
            return
        self._values[index] = value
        if not self._idle[index] and value >= self.watermark:
            self._counts[index] = True
        self._update()

    def set_idle(self, index: int, idle: bool) -> None:
        """Input ``index`` becomes idle or active."""
        if self._idle[index] == idle:
            return
        self._idle[index] = idle
        self._counts[index] = not idle and self._values[index] >= self.watermark
        self._update()

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
        """(watermark, idle) of one input."""
        return self._values[index], self._idle[index]

    def take_changes(self) -> tuple[int | None, bool | None]:
        """(the watermark if it rose, the idleness if it changed) since the last call; None means no change."""
        risen = self.watermark if self._risen else None
        idle = self.idle if self._changed_idle else None
        self._risen = self._changed_idle = False
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
        idle = not active and not all(self._ended)
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
        if idle != self.idle:
            self.idle = idle
            self._changed_idle = not self._changed_idle


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
    """

    def __init__(self, idle_timeout_ms: int) -> None:
        self._idle_timeout_ms = idle_timeout_ms
        self._value: dict[str, int] = {}
        self._last_row_ms: dict[str, int] = {}
        self._idle: set[str] = set()
        self._highest = MIN_WATERMARK
        self._any = False
        self.watermark = MIN_WATERMARK

    def add(self, split: str, now_ms: int) -> None:
        """A split is assigned to the reader at ``now_ms``."""
        self._any = True
        self._value.setdefault(split, MIN_WATERMARK)
        self._last_row_ms[split] = now_ms

    def rows(self, split: str, highest: int | None, now_ms: int) -> None:
        """A split gave rows that allow the watermark ``highest`` (µs; None: no event time)."""
        self._last_row_ms[split] = now_ms
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

    def evaluate(self, now_ms: int, caught_up: Callable[[str], bool]) -> tuple[int, bool]:
        """(watermark in µs, whether idle) of the reader at ``now_ms``."""
        if self._idle_timeout_ms:
            for split, last in self._last_row_ms.items():
                if split not in self._idle and now_ms - last >= self._idle_timeout_ms and caught_up(split):
                    self._idle.add(split)
        counting = [v for split, v in self._value.items() if split not in self._idle]
        if counting:
            self.watermark = max(self.watermark, min(counting))
        elif self._value:
            self.watermark = max(self.watermark, self._highest)
        # When all splits are finished the reader is about to end. It is not idle: otherwise event time would
        # advance before the rows that its last watermark releases are emitted.
        over = not self._value and self._any and not self._idle_timeout_ms
        return self.watermark, not counting and not over

    def next_idle_ms(self) -> int | None:
        """The time (ms) at which the next split could become idle; None if none can."""
        if not self._idle_timeout_ms:
            return None
        times = [t for s, t in self._last_row_ms.items() if s not in self._idle]
        return min(times) + self._idle_timeout_ms if times else None

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
