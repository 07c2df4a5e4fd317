"""OVER aggregates: each row with aggregates over the rows before it in its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.accumulators import CellAccumulator
from penstock.columnar.frames import running
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import (
    group_bounds,
    position_in_group,
    sort_indices,
    stable_argsort,
)
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.operators.changes import typed
from penstock.operators.emitting import (
    batch_pieces,
    event_times,
    restored_watermark,
    watermark_state,
    with_last,
)
from penstock.operators.operator import MAX_WATERMARK, Operator
from penstock.operators.over_frames import BoundedFrames, first_peers, last_peers
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.aggregates import AggregateSet
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import aggregate_cells
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobgraph.specs import OverSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)
_BOOL = t.BooleanType(False)


class OverOperator(Operator):
    """Computes OVER aggregates; it emits each row with its results appended.

    Ordered by event time, rows are emitted when the watermark passes them, and late rows are dropped. Without
    an order they are emitted as they arrive. With another order they are emitted at the end of a bounded input.
    An unbounded frame keeps running accumulators per partition; a bounded frame keeps the rows that later
    frames contain.
    """

    def __init__(self, spec: OverSpec) -> None:
        self.spec = spec
        self._bounded = spec.preceding is not None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        types = self._schema.types
        order = self.spec.order
        self._timed = (
            bool(order) and isinstance(types[order[0].index], t.TIMESTAMPS) and not order[0].descending
        )
        if self.spec.frame == "range" and self._bounded and not self._timed:
            raise UnsupportedError(
                "a RANGE frame of a given length needs an ascending event-time order",
                expected="ORDER BY a TIMESTAMP column",
                got="another order",
                where=ctx.name,
                remedy="use ROWS, or order by the table's row time",
            )
        self._keys = self.keep(
            KeySpace(
                ctx, [types[i] for i in self.spec.partition], kind="over", counted=self._bounded,
                ttl_ms=0 if self._bounded else self.spec.ttl_ms,
            )
        )  # fmt: skip
        self._state = AggregateSet(self.spec.aggregates, types, function=ctx.function)
        # A bounded frame keeps rows and no accumulators.
        self._cells = None if self._bounded else aggregate_cells(self._keys, self._state)
        self._frames = BoundedFrames(self.spec, ctx, self._keys) if self._bounded else None
        self._pending = self.keep(
            WaitingRows(ctx, "pending", self._schema, self.spec.partition, self._waiting_order(), kind="over")
        )
        self._watermark = restored_watermark(restored)
        #: The event time (µs) before which no later row lies; its frames reach back from there.
        self._looked_back = self._watermark
        if restored is not None:
            self._restore(restored)

    def _waiting_order(self) -> WaitingOrder:
        if not self._timed:
            return WaitingOrder(lambda rows: rows.columns, self.spec.order)
        time = self.spec.order[0].index
        return WaitingOrder(
            lambda rows: (rows.columns[time],), (SortKey(0),), lambda rows: rows.columns[time].values
        )

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        if signs is not None and (signs < 0).any():
            raise UnsupportedError(
                "an OVER aggregate needs an append-only input",
                expected="rows of kind +I",
                got="−U or −D",
                where=self.ctx.name,
            )
        batch = batch.with_kinds(None)
        if self._timed:
            late = event_times(batch, self.spec.order[0].index, self.ctx) <= self._watermark
            if late.any():
                self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
                batch = batch.filter(~late)
        if not batch.num_rows:
            return
        if self.spec.order:
            self._pending.add(batch)
        else:
            yield from self._emit(batch)

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        if not (self._timed or watermark == MAX_WATERMARK):
            return
        if not len(self._pending):
            self._looked_back = watermark
            self._expire()
            return
        ready = self._pending.due(watermark if self._timed else None)
        for rows, last in with_last(ready):
            # The rows that frames of a later piece contain are kept.
            self._looked_back = watermark
            if self._timed and not last:
                self._looked_back = int(rows.columns[self.spec.order[0].index].values.max())
            yield from self._emit(rows)

    def _emit(self, rows: Batch) -> Iterator[Batch]:
        done = [self._results(rows, part) for part in self._by_key(rows)]
        order = np.concatenate([places for places, _, _ in done])
        rows = Batch.concat([part for _, part, _ in done]) if len(done) > 1 else done[0][1]
        results = [Column.concat(parts) for parts in zip(*(results for _, _, results in done), strict=True)]
        if self.spec.order:  # the output of all partitions together follows the order
            back = sort_indices(rows.columns, self.spec.order)
        else:
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
        rows, results = rows.take(back), [c.take(back) for c in results]
        schema = self.ctx.output_schema
        out = rows.with_columns(schema, typed(schema, [*rows.columns, *results]))
        yield from batch_pieces(out)
        self._expire()

    def _by_key(self, rows: Batch) -> list[np.ndarray | None]:
        """The rows in groups whose partitions fit into memory together (None: all rows)."""
        if not (self._bounded and self._keys.evicts):
            return [None]
        keys = KeyIndex(self._keys.index.types)
        slots, _ = keys.upsert([rows.columns[i] for i in self.spec.partition], rows.num_rows)
        most = self._keys.tier.piece_keys
        if keys.high <= most:
            return [None]
        order = stable_argsort(slots)
        cuts = np.searchsorted(slots[order], np.arange(most, keys.high, most))
        return list(np.split(order, cuts))

    def _results(self, rows: Batch, part: np.ndarray | None) -> tuple[np.ndarray, Batch, list[Column]]:
        """(numbers of the rows, the rows sorted by partition and order, result columns) of a part of the rows."""
        if part is not None:
            rows = rows.take(part)
        columns = [rows.columns[i] for i in self.spec.partition]
        with (self._keys if self._cells is None else self._cells).touch(columns, rows.num_rows) as keys:
            order = sort_indices(rows.columns, self.spec.order, first=keys.slots)
            rows, slots = rows.take(order), keys.slots[order]
            if self._frames is None:
                results = self._running(rows, slots)
            else:
                results = self._frames.results(rows, slots, self._looked_back)
        return order if part is None else part[order], rows, results

    def _expire(self) -> None:
        """Free rows that no later frame contains, and a bounded part of those on disk."""
        until = None if self._frames is None else self._frames.expire(self._looked_back)
        if until is None:
            return
        at_end = self._looked_back == MAX_WATERMARK
        while not self._keys.tier.expire(until):
            if not at_end:
                self.ctx.wake_at(self.ctx.now_ms() + 1)
                return

    # -- unbounded frames ----------------------------------------------------------------

    def _running(self, rows: Batch, slots: np.ndarray) -> list[Column]:
        """Results of unbounded frames for rows sorted by partition and order; adds the rows to the state."""
        if not all(isinstance(a, CellAccumulator) for a in self._state.accumulators):
            return self._step_by_step(rows, slots)
        n = len(slots)
        scratch = self._state.fresh()
        scratch.reset(np.arange(n), n)
        scratch.add(np.arange(n), rows.columns, None)
        bounds = group_bounds(slots)
        first, last = bounds[:-1], bounds[1:] - 1
        scratch.absorb(first, self._state, slots[first])
        for accumulator in scratch.accumulators:
            assert isinstance(accumulator, CellAccumulator)
            for i, ufunc in enumerate(accumulator.combine):
                cell = accumulator.cells[i][:n]
                accumulator.cells[i][:n] = running(ufunc, cell, slots, int(np.diff(bounds).max()))
        self._state.reset(slots[first], self._keys.high)
        self._state.absorb(slots[last], scratch, last)
        return self._read(scratch.results, rows, slots)

    def _read(
        self, results: Callable[[np.ndarray], list[Column]], rows: Batch, slots: np.ndarray
    ) -> list[Column]:
        """Each aggregate's running value at the last row of each row's frame."""
        frame = last_peers(self.spec, rows.columns, slots)
        wanted = self.spec.read_at
        if not wanted or set(wanted) == {"frame"}:
            return results(frame)
        rows_at = {
            "frame": frame,
            "row": np.arange(len(slots)),
            "first-peer": first_peers(self.spec, rows.columns, slots),
        }
        read = {name: results(rows_at[name]) for name in set(wanted)}
        return [read[name][i] for i, name in enumerate(wanted)]

    def _step_by_step(self, rows: Batch, slots: np.ndarray) -> list[Column]:
        """Process one row of every partition at a time, for aggregates that cannot be scanned."""
        position = position_in_group(slots)
        by_step = stable_argsort(position)
        bounds = group_bounds(position[by_step])
        parts: list[list[Column]] = []
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            chosen = by_step[low:high]
            self._state.add(slots[chosen], [c.take(chosen) for c in rows.columns], None)
            parts.append(self._state.results(slots[chosen]))
        back = np.empty(len(slots), np.int64)
        back[by_step] = np.arange(len(slots))
        whole = [Column.concat([p[i] for p in parts]) for i in range(len(parts[0]))]
        return self._read(lambda at: [c.take(back[at]) for c in whole], rows, slots)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._frames is not None:
            self._expire()
            return iter(())
        self._keys.expire(now_ms)
        return iter(())

    # -- state ---------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))

    def _restore(self, restored: RestoredState) -> None:
        self._pending.restore(restored)
        self._keys.restore(restored)
        # Snapshots of version 1 have rows and accumulators in one state.
        k, types = len(self.spec.partition), [*self._keys.index.types, *self._schema.types, _BOOL]
        columns, n = restored_columns(restored.keyed.get("rows", []), types)
        if not n:
            return
        rows, past = Batch(self._schema, columns[k:-1], num_rows=n), columns[-1].values
        if self._frames is not None and past.any():
            history, seen = self._frames.rows, rows.filter(past)
            keys = [seen.columns[i] for i in self.spec.partition]
            places = Column(_LONG, history.next_places(seen.num_rows))
            self._keys.put_back(history, keys, [*seen.columns, places], seen.num_rows)
        self._pending.add(rows.filter(~past))
