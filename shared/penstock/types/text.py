"""Text of values whose Python form differs from what SQL shows: FLOAT and intervals."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from penstock.types import logical as t

_MS = dt.timedelta(milliseconds=1)


def shortest_float(value: float) -> float:
    """The float64 with the fewest digits that identify this FLOAT: 320.1, not 320.1000061035156."""
    return float(str(np.float32(value)))


def interval_text(value: Any, type_: t.LogicalType | None) -> str | None:
    """``+1 02:03:04.005`` or ``+1-02``, as Flink shows intervals; None for a value of another type."""
    if isinstance(value, dt.timedelta):
        sign, ms = ("-", -value // _MS) if value < dt.timedelta(0) else ("+", value // _MS)
        seconds, ms = divmod(ms, 1000)
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        days, hour = divmod(hours, 24)
        return f"{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{ms:03d}"
    if isinstance(type_, t.YearMonthIntervalType) and isinstance(value, int):
        years, months = divmod(abs(value), 12)
        return f"{'-' if value < 0 else '+'}{years}-{months:02d}"
    return None
