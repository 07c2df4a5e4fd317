"""The local phase of a two-phase window aggregation: partial cells before the exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnsupportedError
from penstock.runtime.kernels.aggregates import AggregateSet
from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.windows import Panes
from penstock.runtime.operator import MIN_WATERMARK, Operator, OperatorSnapshot, SideBatch
from penstock.runtime.operators.emitting import (
    clamp_watermark,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState

_LONG = t.BigIntType(False)
#: Cells that force a flush: about a megabyte of partials.
_FLUSH_CELLS = 32_768


class LocalWindowAggregateOperator(Operator):
    """Output: keys, pane end (BIGINT µs), accumulator columns. Flushes at every watermark
    and barrier and when it holds many cells, so it has no keyed state; its event time is
    kept for the lateness test."""

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
        self._clear()

    def _clear(self) -> None:
        self._index = KeyIndex([*self._key_types, _LONG])

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
        slots, new = self._index.upsert([*keys, Column(_LONG, panes)], batch.num_rows)
        if len(new):
            self._aggregates.reset(new, self._index.high)
        self._aggregates.add(slots, batch.columns, batch.signs())
        if len(self._index) >= _FLUSH_CELLS:
            yield from self._flush()

    def _late_rows(self, panes: np.ndarray) -> np.ndarray | None:
        if self._watermark == MIN_WATERMARK:
            limit = MIN_WATERMARK
        else:
            limit = clamp_watermark(self._watermark + 1 - self.spec.allowed_lateness_us)
        ends = self._panes.last_end_of(panes)
        late = (ends <= limit) | (ends <= panes)
        return late if late.any() else None

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._watermark = max(self._watermark, watermark)
        yield from self._flush()

    def on_idle(self) -> Iterator[Output]:
        yield from self._flush()

    def prepare_checkpoint(self, checkpoint_id: int) -> Iterator[Output]:
        yield from self._flush()

    def finish(self) -> Iterator[Output]:
        yield from self._flush()

    def _flush(self) -> Iterator[Output]:
        slots = self._index.live_slots()
        if not len(slots):
            return
        schema = self.ctx.output_schema
        for part in pieces(slots):
            *keys, panes = self._index.keys(part)
            ends = Column(_LONG, panes.values + self._panes.length_us)
            columns = [*keys, ends, *self._aggregates.partials(part)]
            columns = [
                c if c.type == f.type else c.cast_type(f.type)
                for c, f in zip(columns, schema.fields, strict=True)
            ]
            yield Batch(schema, columns, num_rows=len(part))
        self._clear()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(unions=watermark_state(self._watermark))
