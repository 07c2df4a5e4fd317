"""Parts that the specs of several operators share."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.functions.expr import Expr

#: A value of ``WindowSpec.time``: the records' own event times.
RECORD_TIME = -1
#: A delay longer than all of time: there is no watermark until the last one.
FOR_EVER_US = 2**62


class WatermarkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a source makes watermarks, for each split.

    ``rowtime``: index of the event-time column in the source's output; None: the records' own event times.
    The watermark is max(event time) − ``delay_us`` − 1 µs; with ``FOR_EVER_US`` there is none before the end. ``expr``: any other watermark expression; the
    watermark is then its highest value so far − 1 µs. ``idle_timeout_ms``: a split without rows for this
    long is idle. ``idle_source``: with the last split the source is idle too, and operators with other inputs go on
    without it; otherwise they wait for it. ``interval_ms``: the least time between two watermarks.
    """

    rowtime: int | None = None
    delay_us: int = 0
    expr: Expr | None = None
    idle_timeout_ms: int = 5_000
    interval_ms: int = 200
    idle_source: bool = False


class WindowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A window assigner. A window is [start, end); all times are in µs, and panes have the length gcd(size,
    slide).

    ``time``: index of the time column; -1: the records' own event times (``Batch.times``); None:
    processing time.
    """

    #: ``own``: windows of an assigner that the program defines; it is part of the function.
    kind: Literal["tumble", "hop", "cumulate", "session", "global", "count", "own"]
    time: int | None = None
    size_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    gap_us: int = 0
    #: Whether the window columns are TIMESTAMP_LTZ.
    ltz: bool = False
    #: Of windows of a number of rows: how many, and how many rows lie between the starts of two.
    count: int = 0
    count_slide: int = 0

    def order(self) -> str | int | None:
        """The column with the event time; ``"time"``: the records' own event times; None: processing time."""
        return "time" if self.time == RECORD_TIME else self.time


class SortKey(msgspec.Struct, frozen=True):
    """One column of an order, with its direction and the place of NULLs."""

    index: int
    descending: bool = False
    nulls_first: bool = True
