"""SESSION table function: rows with the bounds of their session. Each row waits until its session has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import stable_argsort_by
from penstock.columnar.windows import ROWTIME_STEP_US
from penstock.errors import UnsupportedError
from penstock.operators.changes import typed
from penstock.operators.emitting import event_times, pieces, restored_watermark, watermark_state
from penstock.operators.operator import MAX_WATERMARK, Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowTableSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)
#: Waiting rows need no order, because they are taken by session.
_AS_THEY_CAME = WaitingOrder(lambda rows: (), ())


class SessionTableOperator(Operator):
    """Appends the bounds of each row's session when the session has ended.

    A session of a key is a run of rows in which neighbours are at most the gap apart. It ends when the
    watermark (or the clock) is later than its last row by the gap.
    """

    def __init__(self, spec: WindowTableSpec) -> None:
        self.spec = spec
        self._gap_us = spec.window.gap_us

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        #: The waiting rows, with their time for the session in ``times``.
        self._rows = self.keep(
            WaitingRows(
                ctx, "rows", self._schema, self.spec.keys, _AS_THEY_CAME, kind="session-table", spills=False,
                seen=self._seen,
            )
        )  # fmt: skip
        self._watermark = restored_watermark(restored)
        #: A lower bound (µs) of the end of all sessions.
        self._next_end = MAX_WATERMARK
        self._rows.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if batch.kinds is not None and batch.kinds.any():
            raise UnsupportedError(
                "a SESSION table function over rows that are updated",
                expected="rows of kind +I",
                where=self.ctx.name,
                remedy="aggregate right above TABLE(SESSION(…))",
            )
        time = self.spec.window.time
        if time is None:
            times = np.full(batch.num_rows, self.ctx.now_ms() * 1000, np.int64)
        else:
            times = event_times(batch, time, self.ctx)
            late = self._late(batch, times)
            if late.any():
                self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
                batch, times = batch.filter(~late), times[~late]
        if batch.num_rows:
            rows = batch.with_times(times)
            self._rows.add(rows)
            self._seen(rows)
        return iter(())

    def _seen(self, rows: Batch) -> None:
        assert rows.times is not None
        self._next_end = min(self._next_end, int(rows.times.min()) + self._gap_us)
        if self.spec.window.time is None:
            self.ctx.wake_at(-(-self._next_end // 1000))

    def _late(self, batch: Batch, times: np.ndarray) -> np.ndarray:
        """Mask of the rows whose own session has ended already and that no open session takes in."""
        late = times + self._gap_us - 1 <= self._watermark
        if not late.any() or not len(self._rows):
            return late
        waiting = self._rows.in_memory()
        assert waiting.times is not None
        keys = self._new_index()
        slots, _ = keys.upsert([waiting.columns[k] for k in self.spec.keys], waiting.num_rows)
        found = keys.lookup([batch.columns[k] for k in self.spec.keys], batch.num_rows)
        for row in np.flatnonzero(late & (found >= 0)).tolist():
            near = np.abs(waiting.times[slots == found[row]] - times[row]) <= self._gap_us
            late[row] = not near.any()
        return late

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._watermark = max(self._watermark, watermark)
        if self.spec.window.time is not None or watermark == MAX_WATERMARK:
            yield from self._ended(watermark)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self.spec.window.time is None:
            yield from self._ended(now_ms * 1000 - 1)
            if len(self._rows):
                self.ctx.wake_at(-(-self._next_end // 1000))

    def _ended(self, until: int) -> Iterator[Output]:
        if not len(self._rows) or self._next_end - 1 > until:
            return
        rows = self._rows.in_memory()
        starts, ends = self._sessions(rows)
        due = ends - 1 <= until
        self._next_end = int(ends[~due].min(initial=MAX_WATERMARK))
        self._rows.take_out(due)
        out, starts, ends = rows.filter(due), starts[due], ends[due]
        assert out.times is not None
        schema = self.ctx.output_schema
        for part in pieces(stable_argsort_by(ends, out.times)):
            taken = out.take(part).with_times(None)
            bounds = (starts[part], ends[part], ends[part] - ROWTIME_STEP_US)
            yield taken.with_columns(
                schema, typed(schema, [*taken.columns, *(Column(_LONG, b) for b in bounds)])
            )

    def _sessions(self, rows: Batch) -> tuple[np.ndarray, np.ndarray]:
        """(start, end) of each row's session, int64 µs."""
        assert rows.times is not None
        slots, _ = self._new_index().upsert([rows.columns[k] for k in self.spec.keys], rows.num_rows)
        order = stable_argsort_by(slots, rows.times)
        times, of = rows.times[order], slots[order]
        opens = np.ones(len(order), np.bool_)
        opens[1:] = (of[1:] != of[:-1]) | (times[1:] - times[:-1] > self._gap_us)
        first = np.flatnonzero(opens)
        session = np.cumsum(opens) - 1
        last = np.append(first[1:], len(order)) - 1
        starts, ends = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        starts[order] = times[first][session]
        ends[order] = times[last][session] + self._gap_us
        return starts, ends

    def _new_index(self) -> KeyIndex:
        return KeyIndex([self._schema.types[k].with_nullable(True) for k in self.spec.keys])

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))
