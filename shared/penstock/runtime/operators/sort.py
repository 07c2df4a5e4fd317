"""Sorting and limiting: a bounded sort, a limit, and the event-time sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.runtime.kernels.ranked_rows import Gathered, cancelled
from penstock.runtime.kernels.sorting import sort_indices
from penstock.runtime.operator import Operator, OperatorSnapshot
from penstock.runtime.operators.emitting import (
    RECORD_TIMES,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.runtime.state.row_log import RowLog
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import LimitSpec, SortSpec, TemporalSortSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState


class SortOperator(Operator):
    """Keeps all rows (a retraction takes one away) and emits them in order at the end."""

    def __init__(self, spec: SortSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._log = _log(ctx, "sort", restored)
        self._retracted: list[Batch] = []

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        plain = batch.with_kinds(None)
        if signs is not None and (signs < 0).any():
            self._retracted.append(plain.filter(signs < 0))
            plain = plain.filter(signs > 0)
        if plain.num_rows:
            self._log.add(plain)
        return iter(())

    def _standing(self) -> Batch:
        rows = self._log.rows()
        if self._retracted:
            both = Batch.concat([rows, *self._retracted])
            signs = np.ones(both.num_rows, np.int8)
            signs[rows.num_rows :] = -1
            one = np.zeros(both.num_rows, np.int64)
            stands, unmatched = cancelled(Gathered(one, one, list(both.columns)), signs, None)
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
            self._log.take_out(~stands[: rows.num_rows])
            self._retracted = []
        return self._log.rows()

    def finish(self) -> Iterator[Output]:
        rows = self._standing()
        order = sort_indices(rows.columns, self.spec.order) if rows.columns else np.arange(rows.num_rows)
        end = None if self.spec.limit is None else self.spec.offset + self.spec.limit
        for part in pieces(order[self.spec.offset : end]):
            out = rows.take(part)
            yield out.with_columns(self.ctx.output_schema, out.columns)

    def close(self) -> None:
        if hasattr(self, "_log"):
            self._log.close()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self._standing()
        return OperatorSnapshot(keyed={"rows": self._log.cut()})


class LimitOperator(Operator):
    """Rows ``offset`` to ``offset + limit`` in order of arrival, of an append-only input."""

    def __init__(self, spec: LimitSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        counts = restored.lists.get("seen", []) if restored else []
        self._seen = sum(int.from_bytes(c, "little") for c in counts)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        if signs is not None and (signs < 0).any():
            raise UnsupportedError(
                "LIMIT over an updating input needs an order",
                expected="an append-only input, or ORDER BY before LIMIT",
                got="−U or −D",
                where=self.ctx.name,
                remedy="add ORDER BY",
            )
        low = min(max(self.spec.offset - self._seen, 0), batch.num_rows)
        high = min(max(self.spec.offset + self.spec.limit - self._seen, 0), batch.num_rows)
        self._seen += batch.num_rows
        if high > low:
            out = batch.slice(low, high - low)
            yield out.with_columns(self.ctx.output_schema, out.columns)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(lists={"seen": [self._seen.to_bytes(8, "little")]})


class TemporalSortOperator(Operator):
    """Rows in event-time order (then by ``order``), released by the watermark. Late rows
    are dropped and counted."""

    def __init__(self, spec: TemporalSortSpec) -> None:
        self.spec = spec
        self._order = spec.order if spec.time == RECORD_TIMES else (SortKey(spec.time), *spec.order)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._log = _log(ctx, "temporal-sort", restored)
        self._watermark = restored_watermark(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        late = event_times(batch, self.spec.time, self.ctx) <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        if batch.num_rows:
            self._log.add(batch)
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        if not len(self._log):
            return
        ready = self._log.take_out(event_times(self._log.rows(), self.spec.time, self.ctx) <= watermark)
        order = sort_indices(ready.columns, self._order)
        if self.spec.time == RECORD_TIMES and ready.times is not None:
            order = order[np.argsort(ready.times[order], kind="stable")]
        for part in pieces(order):
            out = ready.take(part)
            yield out.with_columns(self.ctx.output_schema, out.columns)

    def close(self) -> None:
        if hasattr(self, "_log"):
            self._log.close()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": self._log.cut()}, unions=watermark_state(self._watermark))


def _log(ctx: OperatorContext, kind: str, restored: RestoredState | None) -> RowLog:
    """All rows under the one global key, in order."""
    log = RowLog(ctx, "rows", ctx.input_schemas[0], (), kind=kind)
    if restored is not None:
        log.restore(restored)
    return log
