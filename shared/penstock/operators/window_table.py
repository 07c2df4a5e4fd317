"""A window table function whose rows are not aggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.windows import ROWTIME_STEP_US, Panes
from penstock.operators.changes import typed
from penstock.operators.emitting import event_times, pieces
from penstock.operators.operator import Operator
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowTableSpec
    from penstock.operators.operator import Output
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)


class WindowTableOperator(Operator):
    """Emits each row once per window that contains it, with window_start, window_end and window_time."""

    def __init__(self, spec: WindowTableSpec) -> None:
        self.spec = spec
        self._panes = Panes(spec.window)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        time = self.spec.window.time
        if time is None:
            times = np.full(batch.num_rows, self.ctx.now_ms() * 1000, np.int64)
        else:
            times = event_times(batch, time, self.ctx)
        rows, starts, ends = self._panes.expand(times)
        for part in pieces(np.arange(len(rows))):
            taken = batch.take(rows[part])
            bounds = (starts[part], ends[part], ends[part] - ROWTIME_STEP_US)
            columns = [*taken.columns, *(Column(_LONG, b) for b in bounds)]
            yield taken.with_columns(self.ctx.output_schema, typed(self.ctx.output_schema, columns))


def make_window_table(spec: WindowTableSpec) -> Operator:
    """The operator of a ``WindowTableSpec``: ``SessionTableOperator`` for sessions, else ``WindowTableOperator``."""
    if spec.window.kind == "session":
        from penstock.operators.session_table import SessionTableOperator

        return SessionTableOperator(spec)
    return WindowTableOperator(spec)
