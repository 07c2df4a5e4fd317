"""The join of two windowed inputs: rows with equal keys in equal windows, when the window closes."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import group_bounds, stable_argsort_by
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.operators.calc import compile_condition
from penstock.operators.emitting import batch_pieces, event_times, restored_watermark, watermark_state
from penstock.operators.joining import (
    bounded_slices,
    joined,
    matchable_rows,
    null_columns,
    take_all,
)
from penstock.operators.operator import MAX_WATERMARK, Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.waiting_order import WaitingOrder, hashed
from penstock.state.waiting_rows import WaitingRows, due_together
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowJoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

LEFT, RIGHT = 0, 1
Window = tuple[int, int]
_LONG = t.BigIntType(False)
_NONE = np.empty(0, np.int64)
#: The sort order by window end, window start and hash of the key.
_ORDER = (SortKey(0), SortKey(1), SortKey(2))


class WindowJoinOperator(Operator):
    """Keeps rows until the watermark passes the end of their window; then joins them key by key and frees them."""

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
            self.keep(
                WaitingRows(
                    ctx,
                    name,
                    schema,
                    keys,
                    self._order(side),
                    kind="window-join",
                    seen=partial(self._opened, side),
                )
            )
            for side, (name, schema, keys) in enumerate(
                zip(("left", "right"), self._schemas, self._keys_of, strict=True)
            )
        )
        #: The (start, end) of each window that has rows.
        self._open: set[Window] = set()
        self._watermark = restored_watermark(restored)
        for log in self._logs:
            log.restore(restored)
        ctx.metrics.gauge("numOpenWindows", lambda: len(self._open))

    def _order(self, side: int) -> WaitingOrder:
        start, end = self._windows_of[side]
        keys = self._keys_of[side]
        return WaitingOrder(
            lambda rows: [*(Column(_LONG, rows.columns[i].values) for i in (end, start)), hashed(rows, keys)],
            _ORDER,
            lambda rows: rows.columns[end].values,
        )

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
            self._opened(input_index, batch)
            self._logs[input_index].add(batch.with_kinds(None))
        return iter(())

    def _opened(self, side: int, batch: Batch) -> None:
        self._open.update(window for window, _ in self._by_window(side, batch))

    def _by_window(self, side: int, batch: Batch) -> Iterator[tuple[Window, np.ndarray | None]]:
        """(window, numbers of its rows; None: all rows), by end, then by start."""
        if not batch.num_rows:
            return
        starts, ends = (batch.columns[i].values for i in self._windows_of[side])
        if int(starts.min()) == int(starts.max()) and int(ends.min()) == int(ends.max()):
            yield (int(starts[0]), int(ends[0])), None
            return
        order = stable_argsort_by(ends, starts)
        s, e = starts[order], ends[order]
        bounds = group_bounds(np.cumsum(np.append(False, (s[1:] != s[:-1]) | (e[1:] != e[:-1]))))
        for low, high in itertools.pairwise(bounds.tolist()):
            yield (int(s[low]), int(e[low])), order[low:high]

    # -- firing ------------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        closed = {window for window in self._open if window[1] - 1 <= watermark}
        if not closed:
            return
        self._open -= closed
        for sides in due_together(self._logs, min(watermark, MAX_WATERMARK - 1) + 1):
            rows = [dict(self._by_window(side, batch)) for side, batch in enumerate(sides)]
            for window in sorted(rows[LEFT].keys() | rows[RIGHT].keys(), key=lambda w: (w[1], w[0])):
                left, right = (
                    _chosen(batch, rows[side].get(window, _NONE)) for side, batch in enumerate(sides)
                )
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

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))


def _chosen(batch: Batch, rows: np.ndarray | None) -> Batch:
    return batch if rows is None else batch.take(rows)
