"""The join of two windowed inputs: equal keys in equal windows, when the window closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnsupportedError
from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.multimap import MultiMap
from penstock.runtime.kernels.sorting import group_bounds, stable_argsort
from penstock.runtime.operator import Operator, OperatorSnapshot
from penstock.runtime.operators.calc import compile_condition
from penstock.runtime.operators.emitting import batch_pieces, event_times, restored_watermark, watermark_state
from penstock.runtime.operators.joining import (
    bounded_slices,
    joined,
    matchable_rows,
    null_columns,
    take_all,
)
from penstock.runtime.state.row_log import RowLog
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowJoinSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState
    from penstock.runtime.state.row_log import Part

LEFT, RIGHT = 0, 1
Window = tuple[int, int]


class WindowJoinOperator(Operator):
    """Rows wait, batch by batch, under their window (start, end); when the watermark passes
    its end, its rows are joined at once and dropped."""

    def __init__(self, spec: WindowJoinSpec) -> None:
        self.spec = spec
        self._keys_of = (spec.left_keys, spec.right_keys)
        self._windows_of = (spec.left_window, spec.right_window)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._pair_schema = t.Schema((*left.fields, *right.fields))
        self._condition = compile_condition(self.spec.condition, ctx)
        self._logs = tuple(
            RowLog(ctx, name, schema, keys, kind="window-join")
            for name, schema, keys in zip(("left", "right"), self._schemas, self._keys_of, strict=True)
        )
        self._open: dict[Window, tuple[list[Part], list[Part]]] = {}
        self._watermark = restored_watermark(restored)
        if restored is not None:
            for side, log in enumerate(self._logs):
                waiting = RowLog(ctx, log.name, log.schema, self._keys_of[side], kind="window-join")
                waiting.restore(restored)
                waiting.close()  # counted below
                if len(waiting):
                    self._keep(side, waiting.rows())
        ctx.metrics.gauge("numOpenWindows", lambda: len(self._open))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if batch.kinds is not None and batch.kinds.any():
            raise UnsupportedError(
                "a window join needs append-only inputs",
                expected="rows of kind +I",
                got="an updating input",
                where=self.ctx.name,
                remedy="use a regular join",
            )
        late = event_times(batch, self._windows_of[input_index][1], self.ctx) - 1 <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        if batch.num_rows:
            self._keep(input_index, batch.with_kinds(None))
        return iter(())

    def _keep(self, side: int, batch: Batch) -> None:
        start, end = self._windows_of[side]
        starts, ends = batch.columns[start].values, batch.columns[end].values
        order = stable_argsort(starts)
        order = order[stable_argsort(ends[order])]
        s, e = starts[order], ends[order]
        ids = np.cumsum(np.concatenate(([False], (s[1:] != s[:-1]) | (e[1:] != e[:-1]))))
        bounds = group_bounds(ids)
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = np.sort(order[low:high])
            waiting = self._open.setdefault((int(s[low]), int(e[low])), ([], []))
            kept = batch if len(rows) == batch.num_rows else batch.take(rows)
            waiting[side].append(self._logs[side].add(kept))

    # -- firing ------------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        for window in sorted((w for w in self._open if w[1] - 1 <= watermark), key=lambda w: (w[1], w[0])):
            sides = self._open.pop(window)
            left, right = (
                Batch.concat([p.batch for p in parts]) if parts else Batch.empty(self._schemas[side])
                for side, parts in enumerate(sides)
            )
            for log, parts in zip(self._logs, sides, strict=True):
                log.drop(parts)
            for out in self._join(left, right):
                yield from batch_pieces(out)

    def _join(self, left: Batch, right: Batch) -> Iterator[Batch]:
        index = KeyIndex([self._schemas[LEFT].types[i].with_nullable(True) for i in self.spec.left_keys])
        right_slots, _ = index.upsert([right.columns[i] for i in self.spec.right_keys], right.num_rows)
        left_slots = index.lookup([left.columns[i] for i in self.spec.left_keys], left.num_rows)
        for batch, keys, slots in (
            (left, self.spec.left_keys, left_slots),
            (right, self.spec.right_keys, right_slots),
        ):
            usable = matchable_rows(batch, keys, ())
            if usable is not None:
                slots[~usable] = -1
        stored = np.flatnonzero(right_slots >= 0)
        table = MultiMap()
        table.add(right_slots[stored], stored)
        met_left = np.zeros(left.num_rows, np.bool_)
        met_right = np.zeros(right.num_rows, np.bool_)
        emits = self.spec.kind not in ("semi", "anti")
        found = table.find(left_slots)
        for part in bounded_slices(found.counts):
            rows, entries = found.pairs(part)
            rows = rows + part.start
            if self._condition is not None and len(rows):
                pair = [*take_all(left.columns, rows), *take_all(right.columns, entries)]
                mask = self._condition(Batch(self._pair_schema, pair, num_rows=len(rows)))
                rows, entries = rows[mask], entries[mask]
            met_left[rows] = True
            met_right[entries] = True
            if emits and len(rows):
                yield joined(
                    self.ctx.output_schema, take_all(left.columns, rows), take_all(right.columns, entries)
                )
        kind = self.spec.kind
        if not emits:
            chosen = left.filter(met_left if kind == "semi" else ~met_left)
            if chosen.num_rows:
                yield joined(self.ctx.output_schema, chosen.columns, ())
        if kind in ("left", "full"):
            alone = left.filter(~met_left)
            if alone.num_rows:
                padding = null_columns(self._schemas[RIGHT], alone.num_rows)
                yield joined(self.ctx.output_schema, alone.columns, padding)
        if kind in ("right", "full"):
            alone = right.filter(~met_right)
            if alone.num_rows:
                padding = null_columns(self._schemas[LEFT], alone.num_rows)
                yield joined(self.ctx.output_schema, padding, alone.columns)

    def close(self) -> None:
        for log in getattr(self, "_logs", ()):
            log.close()

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        keyed = {log.name: log.cut() for log in self._logs}
        return OperatorSnapshot(keyed=keyed, unions=watermark_state(self._watermark))
