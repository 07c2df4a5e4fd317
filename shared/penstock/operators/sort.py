"""Sorting and limiting: a bounded sort, a limit, and the event-time sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.columnar.sorting import sort_indices
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.operators.emitting import (
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.ranked_rows import Gathered, cancelled
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows
from penstock.types import logical as t
from penstock.types.batch import RowKind
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import LimitSpec, SortSpec, TemporalSortSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch


_LONG = t.BigIntType(False)


class SortOperator(Operator):
    """Keeps all rows of a bounded input (a retraction removes one) and emits them in order at the end."""

    def __init__(self, spec: SortSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._log = self.keep(self._rows_of(ctx))
        self._log.restore(restored)
        self._retracted = False

    def _rows_of(self, ctx: OperatorContext) -> WaitingRows:
        return _log(ctx, "sort", WaitingOrder(lambda rows: rows.columns, self.spec.order))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        plain = batch.with_kinds(None)
        if signs is not None and (signs < 0).any():
            back = plain.filter(signs < 0)
            self._log.add(back.with_kinds(np.full(back.num_rows, RowKind.DELETE, np.uint8)))
            self._retracted = True
            plain = plain.filter(signs > 0)
        self._log.add(plain)
        return iter(())

    def _cancel(self) -> None:
        """Free retracted rows in memory. A retraction of a row on disk waits until that row is read."""
        if not self._retracted:
            return
        self._retracted = False
        rows = self._log.in_memory()
        stands, unmatched = _standing(rows)
        if self._log.on_disk:
            stands |= _standing(rows, of=-1)[0]
        else:
            self._count(unmatched)
        self._log.take_out(~stands)

    def _count(self, unmatched: int) -> None:
        if unmatched:
            self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)

    def finish(self) -> Iterator[Output]:
        seen, end = 0, None if self.spec.limit is None else self.spec.offset + self.spec.limit
        for rows in self._log.due(whole=self._log.mixed):
            if rows.kinds is not None:
                stands, unmatched = _standing(rows)
                self._count(unmatched)
                rows = rows.with_kinds(None).filter(stands)
            order = (
                sort_indices(rows.columns, self.spec.order) if self.spec.order else np.arange(rows.num_rows)
            )
            low, seen = max(self.spec.offset - seen, 0), seen + len(order)
            high = len(order) if end is None else max(end - (seen - len(order)), 0)
            for part in pieces(order[low:high]):
                out = rows.take(part)
                yield out.with_columns(self.ctx.output_schema, out.columns)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self._cancel()
        return self._cut()


def _standing(rows: Batch, of: int = 1) -> tuple[np.ndarray, int]:
    """(mask of the rows that no retraction removed, number of retractions that met no row).

    ``of`` = -1 gives the mask of the retractions that removed no row.
    """
    signs = rows.signs()
    if signs is None:
        return np.full(rows.num_rows, of > 0), 0
    one = np.zeros(rows.num_rows, np.int64)
    return cancelled(Gathered(one, one, list(rows.columns)), signs * of, None)


class LimitOperator(Operator):
    """Emits the rows from ``offset`` to ``offset + limit`` in order of arrival. The input must be append-only."""

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
    """Emits rows in event-time order (then by ``order``) when the watermark passes them. Late rows are dropped
    and counted."""

    def __init__(self, spec: TemporalSortSpec) -> None:
        self.spec = spec
        #: The sort order over the time, followed by the columns.
        self._order = (SortKey(0), *(msgspec.structs.replace(k, index=k.index + 1) for k in spec.order))

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        order = WaitingOrder(self._ordered_by, self._order, self._times)
        self._log = self.keep(_log(ctx, "temporal-sort", order))
        self._log.restore(restored)
        self._watermark = restored_watermark(restored)

    def _times(self, rows: Batch) -> np.ndarray:
        return event_times(rows, self.spec.time, self.ctx)

    def _ordered_by(self, rows: Batch) -> list[Column]:
        return [Column(_LONG, self._times(rows)), *rows.columns]

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        late = self._times(batch) <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        self._log.add(batch)
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        for ready in self._log.due(watermark, whole=False):
            for part in pieces(sort_indices(self._ordered_by(ready), self._order)):
                out = ready.take(part)
                yield out.with_columns(self.ctx.output_schema, out.columns)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))


def _log(ctx: OperatorContext, kind: str, order: WaitingOrder) -> WaitingRows:
    """Rows that wait under the one global key."""
    schema = ctx.input_schemas[0]
    return WaitingRows(ctx, "rows", schema, (), order, kind=kind, spills=bool(schema.fields))
