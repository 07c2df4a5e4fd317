"""Parts that specs of several operators have."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.functions.expr import Expr

#: ``WindowSpec.time``: the records' own event times.
RECORD_TIME = -1


class WatermarkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a source makes watermarks, per split.

    ``rowtime``: index of the event-time column in the source's output, or None when the
    records' ``times`` are meant. watermark = max(event time) − ``delay_us`` − 1 µs.
    ``expr``: a watermark expression other than ``column − constant``; then the watermark
    is its highest value so far − 1 µs.
    """

    rowtime: int | None = None
    delay_us: int = 0
    expr: Expr | None = None
    idle_timeout_ms: int = 5_000
    interval_ms: int = 200


class WindowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A window assigner. Times in µs; window [start, end); slide divides nothing: panes
    are gcd(size, slide). ``time``: index of the time column; -1 = the records' own event
    times (``Batch.times``); None = processing time."""

    kind: Literal["tumble", "hop", "cumulate", "session", "global"]
    time: int | None = None
    size_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    gap_us: int = 0
    #: True for TIMESTAMP_LTZ window columns.
    ltz: bool = False

    def order(self) -> str | int | None:
        """The column by which rows are in event time; ``time``: the records' own; None: by none."""
        return "time" if self.time == RECORD_TIME else self.time


class SortKey(msgspec.Struct, frozen=True):
    index: int
    descending: bool = False
    nulls_first: bool = True
