"""Event time on the wall clock of a time zone, for windows over TIMESTAMP_LTZ outside UTC.

Operators downstream use this local time: the appended column is the rows' event time, and watermarks are local.
When the clock is set back an hour repeats; both count as one hour, whose watermark waits for the second of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.functions.zones import local_us
from penstock.operators.changes import typed
from penstock.operators.emitting import event_times
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import LocalTimeSpec
    from penstock.operators.operator import Output
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)
_QUARTER_US = 900_000_000
#: No clock is set back by more than this many quarters of an hour.
_QUARTERS = 12


class LocalTimeOperator(Operator):
    """Appends the local time of each row (int64 µs) and converts watermarks to local time."""

    def __init__(self, spec: LocalTimeSpec) -> None:
        self.spec = spec

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        times = event_times(batch, self.spec.time, self.ctx)
        local = np.asarray(local_us(times, self.spec.zone), np.int64)
        schema = self.ctx.output_schema
        yield batch.with_columns(schema, typed(schema, [*batch.columns, Column(_LONG, local)]))

    def output_watermark(self, watermark: int) -> int:
        return local_watermark(watermark, self.spec.zone)


def local_watermark(watermark: int, zone: str) -> int:
    """The highest local time (µs) that no row after ``watermark`` (µs UTC) can have in the time zone ``zone``."""
    if watermark in (MIN_WATERMARK, MAX_WATERMARK):
        return watermark
    next_us = watermark + 1
    first = -(-next_us // _QUARTER_US) * _QUARTER_US
    # The next moment, and the quarters of an hour after it, at which the clock may be set back.
    moments = np.concatenate(([next_us], first + _QUARTER_US * np.arange(_QUARTERS + 1)))
    return int(np.asarray(local_us(moments, zone)).min()) - 1
