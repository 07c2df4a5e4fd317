"""Aggregation per key and window.

``WindowAggregateOperator(spec)`` picks the operator: panes (here), the local phase of two
(``window_local``), or sessions (``session_aggregate``).

Rows are aggregated into *cells*, one per key and pane, whose accumulators are arrays; a
window is merged from its panes' cells when the watermark passes its end, and a pane is
dropped once no window will need it. Cells beyond the memory's limit lie on disk
(``window_pieces`` merges windows of which some do).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import group_bounds, stable_argsort
from penstock.columnar.store import grown
from penstock.columnar.windows import Panes
from penstock.operators.emitting import (
    clamp_watermark,
    event_times,
    restored_watermark,
    watermark_state,
)
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, SideBatch
from penstock.operators.window_firing import WindowFiring
from penstock.operators.window_panes import (
    PANE_BYTES,
    CellKeys,
    Pane,
    counted,
    key_of,
    packed,
    pane_of,
    run_of,
)
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.aggregates import AggregateSet
from penstock.state.cold_tier import (
    MovableTable,
    Resident,
    can_evict,
    make_changes,
    movable_entries,
    one_row_each,
)
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.operators.window_pieces import WindowPieces
    from penstock.snapshots.contract import RestoredState
    from penstock.state.cold_runs import RunTier

_LONG = t.BigIntType(False)


def WindowAggregateOperator(spec: WindowAggregateSpec) -> Operator:
    """The operator for ``spec`` (a class in all but its constructor)."""
    if spec.window.kind == "session" and spec.windowed_input is None:
        from penstock.operators.session_aggregate import SessionAggregateOperator

        return SessionAggregateOperator(spec)
    if spec.phase == "local":
        from penstock.operators.window_local import LocalWindowAggregateOperator

        return LocalWindowAggregateOperator(spec)
    return PaneAggregateOperator(spec)


class PaneAggregateOperator(Operator):
    """Phases ``single`` and ``global``; windows of panes, or windows the input carries."""

    def __init__(self, spec: WindowAggregateSpec) -> None:
        self.spec = spec
        self._windowed = spec.windowed_input
        self._panes = None if self._windowed else Panes(spec.window)
        self._processing_time = spec.window.time is None and not self._windowed and spec.phase == "single"

    # -- life --------------------------------------------------------------------------

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._key_types = [schema.types[i] for i in spec.keys]
        self._keys = KeyIndex(self._key_types)
        self._cells_of_key = np.zeros(1024, np.int64)
        self._pane_index = KeyIndex([_LONG, _LONG] if self._windowed else [_LONG])
        self._live: dict[int, Pane] = {}
        self._cells = KeyIndex([_LONG])
        self._aggregates = AggregateSet(
            spec.aggregates,
            self._aggregate_input_types(schema),
            retracts=spec.retracts,
            function=ctx.function,
        )
        window_names = ["window_start", "window_end"] if self._windowed else ["pane_start"]
        evicts = can_evict(ctx, self._key_types)
        self._tables = self._aggregates.state_tables(
            ctx, head=self._head, names=[*(f"key{i}" for i in range(len(spec.keys))), *window_names],
            kind="window-aggregate", make_changes=partial(make_changes, ctx, evicts=evicts),
        )  # fmt: skip
        self._changes = self._tables[0].changes
        self._watermark = restored_watermark(restored)
        self._next_end = MAX_WATERMARK
        self._runs = self._cold_tier() if evicts else None
        self._tier = self._runs or Resident(ctx, self._nbytes)
        self._firing = WindowFiring(
            spec, ctx.output_schema, keys=self._keys, cells=self._cells, aggregates=self._aggregates,
            tier=self._tier, spilled=self._pieces() if evicts else None,
        )  # fmt: skip
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numKeysInState", lambda: len(self._keys))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _cold_tier(self) -> RunTier:
        # Here, not at the top: a slot without a limit never loads it.
        from penstock.state.cold_runs import RunTier

        cells = MovableTable(
            self._changes, self._aggregates.partial_types, one_row_each,
            read=self._aggregates.partials, load=self._load_cells,
        )  # fmt: skip
        return RunTier(
            self.ctx, CellKeys(self._cells, self._pane_index, self._keys),
            [cells, *(movable_entries(table) for table in self._aggregates.tables())],
            drop=self._evicted, nbytes=self._nbytes, leading=len(self._pane_index.types),
        )  # fmt: skip

    def _pieces(self) -> WindowPieces:
        from penstock.operators.window_pieces import WindowPieces

        assert self._runs is not None
        return WindowPieces(self._runs, self._aggregates, self._keys_of)

    def _nbytes(self) -> int:
        cells = len(self._cells)
        state = self._aggregates.live_bytes(cells) + 20 * cells
        keys = self._keys.live_bytes + 8 * len(self._keys)
        return keys + self._cells.live_bytes + state + PANE_BYTES * len(self._live)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def _aggregate_input_types(self, schema: t.Schema) -> list[t.LogicalType]:
        if self.spec.phase != "global":
            return schema.types
        # A global phase sees accumulators; a call's argument types are not in its schema,
        # so the plan gives them.
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
        if self.spec.phase != "global":  # the rows themselves, not partial results of them
            self.ctx.metrics.inc("numRecordsAccepted", batch.num_rows)
        keys = [batch.columns[i] for i in self.spec.keys]
        slots, key_slots, pane_ids, fresh = self._cell_slots(keys, panes, ends)
        if self.spec.phase == "global":
            self._aggregates.merge(slots, batch.columns[len(self.spec.keys) + 1 :])
        else:
            self._aggregates.add(slots, batch.columns, batch.signs())
        if self.spec.allowed_lateness_us:
            yield from self._fire_again(key_slots, pane_ids)
        self._tier.used(slots)
        self._tier.make_room(fresh)

    def _assign(self, batch: Batch) -> tuple[np.ndarray, np.ndarray | None]:
        """(pane starts, None), or (window starts, window ends) of windowed input."""
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
        """True where every window of the row has closed (or it has none); None = nowhere."""
        if self._processing_time:
            return None
        # Closed: end - 1 + lateness <= watermark.
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

    def _cell_slots(
        self, keys: Sequence[Column], panes: np.ndarray, ends: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """(cell, key slot, pane id) of each row, and how many cells are new to the memory; new
        ones are made ready, those on disk have come back."""
        n = len(panes)
        key_slots, _ = self._keys.upsert(keys, n)
        self._cells_of_key = grown(self._cells_of_key, self._keys.high)
        if ends is None:
            pane_ids, new_panes = self._pane_index.upsert_ints(panes)
        else:
            pane_ids, new_panes = self._pane_index.upsert([Column(_LONG, panes), Column(_LONG, ends)], n)
        if len(new_panes):
            self._add_panes(new_panes)
        cells, new = self._cells.upsert_ints(packed(key_slots, pane_ids))
        fresh = len(new)
        if fresh:
            self._enlist(new)
            new = self._tier.fetch(new)
        self._changes.write(cells)
        if len(new):
            self._aggregates.reset(new, self._cells.high)
        return cells, key_slots, pane_ids, fresh

    def _enlist(self, new: np.ndarray) -> None:
        """Cells into their panes, and counted with their keys."""
        found = self._cells.ints(new)
        np.add.at(self._cells_of_key, key_of(found), 1)
        of = pane_of(found)
        order = stable_argsort(of)
        bounds = group_bounds(of[order])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            chosen = order[low:high]
            self._live[int(of[chosen[0]])].add(new[chosen])

    def _add_panes(self, ids: np.ndarray) -> None:
        columns = [c.values.tolist() for c in self._pane_index.keys(ids)]
        for i, pane_id in enumerate(ids.tolist()):
            start = columns[0][i]
            if self._panes is None:
                end = columns[1][i]
                pane = Pane(pane_id, start, end, end)
                first: int | None = end
            else:
                last_end = int(self._panes.last_end_of(np.int64(start)))
                pane = Pane(pane_id, start, start + self._panes.length_us, last_end)
                first = self._panes.first_end_after(start, self._fired_to())
            self._live[pane_id] = pane
            if first is not None and first < self._next_end:
                self._next_end = first
                if self._processing_time:
                    self.ctx.wake_at(-(-first // 1000))

    # -- firing ------------------------------------------------------------------------

    def _fired_to(self) -> int:
        """Windows that end at or before this have fired."""
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
        yield from self._firing.fire(self._live.values(), self._windows_to_fire(before, limit))
        self._watermark = watermark
        self._purge()
        self._next_end = self._find_next_end()
        if self._processing_time and self._next_end < MAX_WATERMARK:
            self.ctx.wake_at(-(-self._next_end // 1000))

    def _windows_to_fire(self, after: int, to: int) -> list[tuple[int, int]]:
        """(end, start) of non-empty windows with after < end <= to, ascending."""
        if self._panes is None:
            return sorted({(p.end, p.start) for p in self._live.values() if after < p.end <= to})
        ends: set[int] = set()
        for pane in self._live.values():
            ends.update(self._panes.ends_between(pane.start, after, to))
        return [(end, self._panes.start_of(end)) for end in sorted(ends)]

    def _find_next_end(self) -> int:
        after = self._fired_to()
        if self._panes is None:
            return min((p.end for p in self._live.values() if p.end > after), default=MAX_WATERMARK)
        firsts = (self._panes.first_end_after(p.start, after) for p in self._live.values())
        return min((f for f in firsts if f is not None), default=MAX_WATERMARK)

    def _fire_again(self, key_slots: np.ndarray, pane_ids: np.ndarray) -> Iterator[Output]:
        """Late but allowed rows: emit their keys' already fired windows anew."""
        touched: dict[tuple[int, int], list[np.ndarray]] = {}
        fired = self._fired_to()
        for pane_id in distinct(pane_ids).tolist():
            pane = self._live[pane_id]
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
            yield from self._firing.fire(self._live.values(), [(end, start)], keys)

    def _purge(self) -> None:
        """Drop panes that no window will need again, and keys without a pane. While a cut is
        being copied they wait: it would have to copy all their cells first, at once."""
        if self._changes.copying:
            return
        lateness = self.spec.allowed_lateness_us
        limit = clamp_watermark(self._watermark + 1 - lateness)
        if self._watermark == MAX_WATERMARK:
            limit = MAX_WATERMARK
        gone = [i for i, p in self._live.items() if p.last_end <= limit]
        if not gone:
            return
        for pane_id in gone:
            pane = self._live.pop(pane_id)
            cells = pane.cells(self._cells)
            key_slots = key_of(self._cells.ints(cells))
            self._changes.free(cells)
            self._aggregates.release(cells)
            self._cells.free(cells)
            # A pane has each key once, so plain fancy indexing counts right.
            self._cells_of_key[key_slots] -= 1
            self._keys.free(key_slots[self._cells_of_key[key_slots] == 0])
            if self._runs is not None:
                self._runs.forget(run_of(pane, self._panes is None))
        self._pane_index.free(np.array(gone, np.int64))

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        keyed = {table.name: table.cut() for table in self._tables}
        return OperatorSnapshot(keyed=keyed, unions=watermark_state(self._watermark))

    def _head(self, cells: np.ndarray) -> tuple[list[Column], list[Column]]:
        found = self._cells.ints(cells)
        return self._keys.keys(key_of(found)), self._pane_index.keys(pane_of(found))

    def _keys_of(self, cells: np.ndarray) -> list[Column]:
        return self._keys.keys(key_of(self._cells.ints(cells)))

    def _load_cells(self, cells: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._changes.write(cells)
        self._aggregates.reset(cells, self._cells.high)
        self._aggregates.merge(cells, columns)
        return cells

    def _evicted(self, cells: np.ndarray) -> None:
        """These lie on disk: give up what the memory has of them."""
        found = self._cells.ints(cells)
        key_slots = key_of(found)
        self._aggregates.release(cells)
        self._cells.free(cells)
        np.subtract.at(self._cells_of_key, key_slots, 1)
        self._keys.free(distinct(key_slots[self._cells_of_key[key_slots] == 0]))
        for pane_id, n in counted(pane_of(found)):
            self._live[pane_id].left(n, self._cells)

    def _restore(self, restored: RestoredState) -> None:
        window_types = self._pane_index.types
        k, w = len(self._key_types), len(window_types)
        for name, types, put in self._aggregates.state_loaders():
            batches = restored.keyed.get(name, [])
            # Block by block, so that no more than one is in memory beside what may be there;
            # entries that are put into order all together.
            for part in [batches] if self._aggregates.is_ordered(name) else ([b] for b in batches):
                columns, n = restored_columns(part, [*self._key_types, *window_types, *types])
                if not n:
                    continue
                ends = columns[k + 1].values if self._windowed else None
                slots, _, _, _ = self._cell_slots(columns[:k], columns[k].values, ends)
                put(slots, columns[k + w :])
                self._tier.settle()
