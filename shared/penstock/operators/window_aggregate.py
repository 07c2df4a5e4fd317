"""Aggregation per key and window.

``make_window_aggregate(spec)`` chooses the operator: panes (here), the local phase of two (``window_local``),
or sessions (``session_aggregate``).

Rows are aggregated into *cells*, one per key and pane; a cell's accumulators are elements of arrays. A window
is merged from the cells of its panes when the watermark passes its end. A pane is freed when no window needs it
any more. Cells above the memory limit are on disk; ``window_pieces`` merges windows with such cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.windows import Panes
from penstock.operators.emitting import (
    clamp_watermark,
    event_times,
    restored_watermark,
    watermark_state,
)
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, SideBatch
from penstock.operators.window_firing import WindowFiring
from penstock.state.aggregates import AggregateSet
from penstock.state.pane_space import Pane, PaneSpace
from penstock.state.slot_table import aggregate_cells
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.operators.window_pieces import WindowPieces
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)


def make_window_aggregate(spec: WindowAggregateSpec) -> Operator:
    """The operator of a ``WindowAggregateSpec``: of panes, of sessions, or the local phase."""
    if spec.window.kind == "session" and spec.windowed_input is None:
        from penstock.operators.session_aggregate import SessionAggregateOperator

        return SessionAggregateOperator(spec)
    if spec.phase == "local":
        from penstock.operators.window_local import LocalWindowAggregateOperator

        return LocalWindowAggregateOperator(spec)
    return PaneAggregateOperator(spec)


class PaneAggregateOperator(Operator):
    """The phases ``single`` and ``global``, for windows of panes or for windows whose bounds are columns of the
    input."""

    def __init__(self, spec: WindowAggregateSpec) -> None:
        self.spec = spec
        self._windowed = spec.windowed_input
        self._panes = None if self._windowed else Panes(spec.window)
        self._processing_time = spec.window.time is None and not self._windowed and spec.phase == "single"

    # -- life --------------------------------------------------------------------------

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._keys = self.keep(
            PaneSpace(
                ctx, [schema.types[i] for i in spec.keys], kind="window-aggregate",
                pane_names=["window_start", "window_end"] if self._windowed else ["pane_start"],
                make_pane=self._make_pane,
            )
        )  # fmt: skip
        self._aggregates = AggregateSet(
            spec.aggregates,
            self._aggregate_input_types(schema),
            retracts=spec.retracts,
            function=ctx.function,
        )
        self._cells = aggregate_cells(self._keys, self._aggregates)
        self._watermark = restored_watermark(restored)
        self._next_end = MAX_WATERMARK
        self._firing = WindowFiring(
            spec, ctx.output_schema, space=self._keys, aggregates=self._aggregates, spilled=self._pieces()
        )
        self._keys.restore(restored)

    def _pieces(self) -> WindowPieces | None:
        if self._keys.runs is None:
            return None
        from penstock.operators.window_pieces import WindowPieces

        return WindowPieces(self._keys.runs, self._aggregates, self._keys.keys)

    def _aggregate_input_types(self, schema: t.Schema) -> list[t.LogicalType]:
        if self.spec.phase != "global":
            return schema.types
        # The input of a global phase has accumulators and not the arguments, so the plan gives their types.
        return list(self.spec.local_types)

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        panes, ends = self._assign(batch)
        late = self._late_rows(panes, ends)
        if late is not None:
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            if self.spec.late_tag is not None:
                yield SideBatch(self.spec.late_tag, batch.filter(late))
            kept = np.flatnonzero(~late)
            if not len(kept):
                return
            batch, panes = batch.take(kept), panes[kept]
            ends = None if ends is None else ends[kept]
        if self.spec.phase != "global":  # the input has rows, not partial results
            self.ctx.metrics.inc("numRecordsAccepted", batch.num_rows)
        again: list[Batch] = []
        with self._cells.touch(self._cell_columns(batch, panes, ends), batch.num_rows) as cells:
            if self.spec.phase == "global":
                self._aggregates.merge(cells.slots, batch.columns[len(self.spec.keys) + 1 :])
            else:
                self._aggregates.add(cells.slots, batch.columns, batch.signs())
            if self.spec.allowed_lateness_us:
                again = list(self._fire_again(*self._keys.keys_and_panes(cells.slots)))
        yield from again

    def _cell_columns(self, batch: Batch, panes: np.ndarray, ends: np.ndarray | None) -> list[Column]:
        columns = [*(batch.columns[i] for i in self.spec.keys), Column(_LONG, panes)]
        return columns if ends is None else [*columns, Column(_LONG, ends)]

    def _assign(self, batch: Batch) -> tuple[np.ndarray, np.ndarray | None]:
        """(pane starts, None), or (window starts, window ends) if the input has window columns; int64 µs."""
        if self._windowed:
            start, end = self._windowed
            return event_times(batch, start, self.ctx), event_times(batch, end, self.ctx)
        assert self._panes is not None
        if self.spec.phase == "global":
            return batch.columns[len(self.spec.keys)].values - self._panes.length_us, None
        if self._processing_time:
            now_us = np.full(batch.num_rows, self.ctx.now_ms() * 1000, np.int64)
            return self._panes.pane_of(now_us), None
        time = self.spec.window.time
        assert time is not None
        return self._panes.pane_of(event_times(batch, time, self.ctx)), None

    def _late_rows(self, panes: np.ndarray, ends: np.ndarray | None) -> np.ndarray | None:
        """Mask of the rows whose windows have all closed, or that have none; None if there is no such row."""
        if self._processing_time:
            return None
        # A window is closed if end - 1 + lateness <= watermark.
        limit = clamp_watermark(self._watermark + 1 - self.spec.allowed_lateness_us)
        if self._watermark == MIN_WATERMARK:
            limit = MIN_WATERMARK
        if ends is None:
            assert self._panes is not None
            if (
                int(self._panes.last_end_of(panes.min())) > limit
                and self._panes.slide_us <= self._panes.size_us
            ):
                return None
            ends = self._panes.last_end_of(panes)
            late = (ends <= limit) | (ends <= panes)
        else:
            late = ends <= limit
        return late if late.any() else None

    def _make_pane(self, pane_id: int, run: tuple[int, ...]) -> Pane:
        start = run[0]
        if self._panes is None:
            first: int | None = run[1]
            pane = Pane(pane_id, run, end=run[1], last_end=run[1])
        else:
            last_end = int(self._panes.last_end_of(np.int64(start)))
            pane = Pane(pane_id, run, end=start + self._panes.length_us, last_end=last_end)
            first = self._panes.first_end_after(start, self._fired_to())
        if first is not None and first < self._next_end:
            self._next_end = first
            if self._processing_time:
                self.ctx.wake_at(-(-first // 1000))
        return pane

    # -- firing ------------------------------------------------------------------------

    def _fired_to(self) -> int:
        """Windows with an end (µs) up to the result have fired."""
        return self._watermark + 1 if self._watermark < MAX_WATERMARK else MAX_WATERMARK

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if not self._processing_time:
            yield from self._advance(watermark)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._processing_time:
            yield from self._advance(now_ms * 1000 - 1)

    def finish(self) -> Iterator[Output]:
        yield from self._advance(MAX_WATERMARK)

    def _advance(self, watermark: int) -> Iterator[Output]:
        before = self._fired_to()
        if watermark <= self._watermark:
            return
        if self._next_end - 1 > watermark:
            self._watermark = watermark
            self._purge()
            return
        limit = min(watermark + 1, MAX_WATERMARK)
        yield from self._firing.fire(self._keys.live.values(), self._windows_to_fire(before, limit))
        self._watermark = watermark
        self._purge()
        self._next_end = self._find_next_end()
        if self._processing_time and self._next_end < MAX_WATERMARK:
            self.ctx.wake_at(-(-self._next_end // 1000))

    def _windows_to_fire(self, after: int, to: int) -> list[tuple[int, int]]:
        """(end, start) of non-empty windows with after < end <= to, ascending."""
        if self._panes is None:
            return sorted({(p.end, p.start) for p in self._keys.live.values() if after < p.end <= to})
        ends: set[int] = set()
        for pane in self._keys.live.values():
            ends.update(self._panes.ends_between(pane.start, after, to))
        return [(end, self._panes.start_of(end)) for end in sorted(ends)]

    def _find_next_end(self) -> int:
        after = self._fired_to()
        if self._panes is None:
            return min((p.end for p in self._keys.live.values() if p.end > after), default=MAX_WATERMARK)
        firsts = (self._panes.first_end_after(p.start, after) for p in self._keys.live.values())
        return min((f for f in firsts if f is not None), default=MAX_WATERMARK)

    def _fire_again(self, key_slots: np.ndarray, pane_ids: np.ndarray) -> Iterator[Batch]:
        """Emit the windows that late but allowed rows have changed and that had fired, for the rows' keys."""
        touched: dict[tuple[int, int], list[np.ndarray]] = {}
        fired = self._fired_to()
        for pane_id in distinct(pane_ids).tolist():
            pane = self._keys.live[pane_id]
            if pane.end > fired:
                continue
            keys = key_slots[pane_ids == pane_id]
            if self._panes is None:
                windows = [(pane.end, pane.start)]
            else:
                ends = self._panes.ends_between(pane.start, fired - self.spec.allowed_lateness_us, fired)
                windows = [(end, self._panes.start_of(end)) for end in ends]
            for window in windows:
                touched.setdefault(window, []).append(keys)
        for (end, start), keys_of in sorted(touched.items()):
            keys = distinct(np.concatenate(keys_of))
            yield from self._firing.fire(self._keys.live.values(), [(end, start)], keys)

    def _purge(self) -> None:
        """Free panes that no window needs, and keys without a pane.

        This waits while a snapshot is being copied, which would otherwise have to copy all these cells at once.
        """
        if self._keys.copying:
            return
        lateness = self.spec.allowed_lateness_us
        limit = clamp_watermark(self._watermark + 1 - lateness)
        if self._watermark == MAX_WATERMARK:
            limit = MAX_WATERMARK
        gone = [pane for pane in self._keys.live.values() if pane.last_end <= limit]
        if gone:
            self._keys.drop_panes(gone)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))
