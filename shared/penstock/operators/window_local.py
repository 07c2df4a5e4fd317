"""The local phase of a two-phase window aggregation: partial results per key and pane before the exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import group_rows
from penstock.columnar.windows import Panes
from penstock.errors import UnsupportedError
from penstock.operators.changes import typed
from penstock.operators.emitting import (
    clamp_watermark,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.joining import take_all
from penstock.operators.operator import MIN_WATERMARK, Operator, SideBatch
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.aggregates import AggregateSet
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)


class LocalWindowAggregateOperator(Operator):
    """Aggregates each batch by key and pane and emits it at once; it has no keyed state.

    Output: keys, pane end (BIGINT µs), accumulator columns. To keep cells between batches would save little,
    because batches are large under load and event time advances. Its watermark is kept, to recognise late rows.
    """

    def __init__(self, spec: WindowAggregateSpec) -> None:
        self.spec = spec
        self._panes = Panes(spec.window)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        if spec.window.time is None or spec.windowed_input is not None:
            raise UnsupportedError(
                "a local window aggregation needs an event-time window of its own",
                expected="window.time set and no windowed_input",
                got=f"time = {spec.window.time}, windowed_input = {spec.windowed_input}",
                where=ctx.name,
                remedy="plan this aggregation in a single phase",
            )
        self._key_types = [schema.types[i] for i in spec.keys]
        self._aggregates = AggregateSet(spec.aggregates, schema.types, function=ctx.function)
        if not self._aggregates.columnar:
            raise UnsupportedError(
                "these aggregates cannot be split in a local and a global phase",
                expected="aggregates for which functions.accumulators.accumulator_types is not None",
                got=", ".join(c.function for c in spec.aggregates),
                where=ctx.name,
                remedy="plan this aggregation in a single phase",
            )
        self._watermark = restored_watermark(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        time = self.spec.window.time
        assert time is not None
        panes = self._panes.pane_of(event_times(batch, time, self.ctx))
        late = self._late_rows(panes)
        if late is not None:
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            if self.spec.late_tag is not None:
                yield SideBatch(self.spec.late_tag, batch.filter(late))
            kept = np.flatnonzero(~late)
            if not len(kept):
                return
            batch, panes = batch.take(kept), panes[kept]
        self.ctx.metrics.inc("numRecordsAccepted", batch.num_rows)
        keys = [batch.columns[i] for i in self.spec.keys]
        cells, rows = self._cells(keys, panes)
        self._aggregates.reset(np.arange(len(rows)), len(rows))
        self._aggregates.add(cells, batch.columns, batch.signs())
        ends = Column(_LONG, panes + self._panes.length_us)
        schema = self.ctx.output_schema
        for part in pieces(np.arange(len(rows))):
            chosen = rows[part]
            columns = [*take_all(keys, chosen), ends.take(chosen), *self._aggregates.partials(part)]
            yield Batch(schema, typed(schema, columns), num_rows=len(part))

    def _cells(self, keys: list[Column], panes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cell of each row, one row of each cell)."""
        first = int(panes.min())
        if first == int(panes.max()):
            return group_rows(keys, len(panes))
        return group_rows([*keys, Column(_LONG, (panes - first) // self._panes.length_us)], len(panes))

    def _late_rows(self, panes: np.ndarray) -> np.ndarray | None:
        if self._watermark == MIN_WATERMARK:
            limit = MIN_WATERMARK
        else:
            limit = clamp_watermark(self._watermark + 1 - self.spec.allowed_lateness_us)
        first = panes.min()
        if int(self._panes.last_end_of(first)) > limit and self._panes.slide_us <= self._panes.size_us:
            return None
        ends = self._panes.last_end_of(panes)
        late = (ends <= limit) | (ends <= panes)
        return late if late.any() else None

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._watermark = max(self._watermark, watermark)
        return iter(())

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(unions=watermark_state(self._watermark))
