"""Sorting and limiting: a bounded sort, a limit, and the event-time sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.runtime.kernels.keyed_state import keyed_block, restored_columns
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
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import LimitSpec, SortSpec, TemporalSortSpec
    from penstock.runtime.operator import KeyedBlock, OperatorContext, Output, RestoredState
    from penstock.types.logical import Schema


class SortOperator(Operator):
    """Keeps all rows (a retraction takes one away) and emits them in order at the end."""

    def __init__(self, spec: SortSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._batches = _restored_rows(self._schema, restored)
        self._retracted: list[Batch] = []

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        plain = batch.with_kinds(None)
        if signs is not None and (signs < 0).any():
            self._retracted.append(plain.filter(signs < 0))
            plain = plain.filter(signs > 0)
        if plain.num_rows:
            self._batches.append(plain)
        return iter(())

    def _standing(self) -> Batch:
        rows = Batch.concat(self._batches) if self._batches else Batch.empty(self._schema)
        if self._retracted:
            both = Batch.concat([rows, *self._retracted])
            signs = np.ones(both.num_rows, np.int8)
            signs[rows.num_rows :] = -1
            one = np.zeros(both.num_rows, np.int64)
            stands, unmatched = cancelled(Gathered(one, one, list(both.columns)), signs, None)
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
            rows = both.filter(stands)
        self._batches, self._retracted = [rows] if rows.num_rows else [], []
        return rows

    def finish(self) -> Iterator[Output]:
        rows = self._standing()
        order = sort_indices(rows.columns, self.spec.order) if rows.columns else np.arange(rows.num_rows)
        end = None if self.spec.limit is None else self.spec.offset + self.spec.limit
        for part in pieces(order[self.spec.offset : end]):
            out = rows.take(part)
            yield out.with_columns(self.ctx.output_schema, out.columns)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": _rows_block(self._standing(), self.ctx, "sort")})


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
        self._schema = ctx.input_schemas[0]
        self._batches = _restored_rows(self._schema, restored)
        self._watermark = restored_watermark(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        late = event_times(batch, self.spec.time, self.ctx) <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        if batch.num_rows:
            self._batches.append(batch)
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        if not self._batches:
            return
        rows = Batch.concat(self._batches)
        due = event_times(rows, self.spec.time, self.ctx) <= watermark
        rest = rows.filter(~due)
        self._batches = [rest] if rest.num_rows else []
        ready = rows.filter(due)
        order = sort_indices(ready.columns, self._order)
        if self.spec.time == RECORD_TIMES and ready.times is not None:
            order = order[np.argsort(ready.times[order], kind="stable")]
        for part in pieces(order):
            out = ready.take(part)
            yield out.with_columns(self.ctx.output_schema, out.columns)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        rows = Batch.concat(self._batches) if self._batches else Batch.empty(self._schema)
        return OperatorSnapshot(
            keyed={"rows": _rows_block(rows, self.ctx, "temporal-sort")},
            unions=watermark_state(self._watermark),
        )


def _rows_block(rows: Batch, ctx: OperatorContext, kind: str) -> KeyedBlock:
    """All rows under the one global key, in order."""
    names = [f"{i}.{name}" for i, name in enumerate(rows.schema.names)]
    return keyed_block(
        [], rows.columns, names, n=rows.num_rows, max_parallelism=ctx.max_parallelism, kind=kind
    )


def _restored_rows(schema: Schema, restored: RestoredState | None) -> list[Batch]:
    columns, n = restored_columns(restored.keyed.get("rows", []) if restored else [], schema.types)
    return [Batch(schema, columns, num_rows=n)] if n else []
