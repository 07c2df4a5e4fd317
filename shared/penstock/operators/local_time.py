"""Event time on the wall clock of a time zone, for windows over TIMESTAMP_LTZ outside UTC.

Behind it everything lives on that clock: the appended column is the rows' event time and
watermarks are local. Where the clock is set back, the hour that comes twice is one: its
watermark waits for the second time round.
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
    """The highest local time that no row after ``watermark`` can have any more."""
    if watermark in (MIN_WATERMARK, MAX_WATERMARK):
        return watermark
    next_us = watermark + 1
    first = -(-next_us // _QUARTER_US) * _QUARTER_US
    # The next moment, and those at which the clock may be set back.
    moments = np.concatenate(([next_us], first + _QUARTER_US * np.arange(_QUARTERS + 1)))
    return int(np.asarray(local_us(moments, zone)).min()) - 1
