"""Top-N: the first rows of each partition in an order, as an updating or a window result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import (
    changes,
    group_bounds,
    single_key_codes,
    sort_indices,
    stable_argsort,
)
from penstock.columnar.store import grown
from penstock.operators import top_rows
from penstock.operators.changes import DELETE, INSERT, change_batch, typed
from penstock.operators.emitting import (
    batch_pieces,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.open_windows import OpenWindows, WindowKeyOrder
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import ColdTier, Resident
from penstock.state.ranked_rows import Gathered, RankedRows, cancelled
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import TopNSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)
_MAX_CODE = 2**63 - 1


def TopNOperator(spec: TopNSpec) -> Operator:
    """The operator for ``spec`` (a class in all but its constructor)."""
    if spec.fixed_order and top_rows.fits(spec):
        return top_rows.TopRowsOperator(spec)
    return RankingOperator(spec)


class RankingOperator(Operator):
    """ROW_NUMBER, RANK or DENSE_RANK between ``first`` and ``last``.

    Without retractions only the rows within rank are kept. Where the rank is shown, or
    one row is asked for, the result is compared position by position; else as a set.
    Ties of ROW_NUMBER go to the row that came first.
    """

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec
        self._key_order = WindowKeyOrder(spec.partition, spec.window)
        self._partition = self._key_order.columns

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self._partition])
        evicts = self._key_order.can_evict(ctx, self._keys.types)
        self._rows = RankedRows(self._schema.types, ctx, evicts=evicts)
        self._table = self._rows.state_table(
            self.spec.partition, self._schema.names, "top-n", ctx.max_parallelism
        )
        # By partition slot: no later row can enter at or above this order code.
        self._bar = np.full(1024, _MAX_CODE, np.int64)
        self._windows = OpenWindows()
        self._watermark = restored_watermark(restored)
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        order = self.spec.order
        self._fixed_order = (
            len(order) == 1
            and self.spec.rank == "row_number"
            and not self.spec.retracts
            and Column.nulls(self._schema.types[order[0].index], 0).is_numpy
        )
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _nbytes(self) -> int:
        return self._rows.live_bytes + self._keys.live_bytes + 24 * len(self._keys)

    def _cold_tier(self) -> ColdTier:
        table = self._rows.movable(self._load)
        if self.spec.window is not None:
            return self._windows.tier(
                self.ctx, self._keys, table, self._key_order, drop=self._drop, nbytes=self._nbytes,
                stored_bounds=False,
            )  # fmt: skip
        if self._ttl.ttl_ms:
            of = self._rows.partition_slots
            table.times = lambda entries: self._ttl.times(of(entries))
            table.touched = lambda entries, times: self._ttl.came_back(of(entries), times)
        return ColdTier(self.ctx, self._keys, [table], drop=self._drop, nbytes=self._nbytes)

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        """``slots``: partition by partition, in their order."""
        self._bar = grown(self._bar, self._keys.high, _MAX_CODE)
        self._bar[slots] = _MAX_CODE
        rows, places = list(columns[:-1]), columns[-1].values
        entries = self._rows.add(slots, rows, places)
        self._open_windows(slots, rows)
        if self._fixed_order:
            self._raise_bars(Gathered(slots, entries, rows), np.arange(len(slots)), places)
        return entries

    def _drop(self, slots: np.ndarray) -> None:
        self._rows.remove(self._rows.of(slots))
        self._ttl.forget(slots)
        if self.spec.window is not None:
            self._windows.forget(slots)
        self._keys.free(slots)

    def _open_windows(self, slots: np.ndarray, rows: Sequence[Column]) -> None:
        if self.spec.window is not None:
            self._windows.opened(slots, rows[self.spec.window[1]].values, self._keys.high)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if self.spec.window is not None:
            late = event_times(batch, self.spec.window[1], self.ctx) - 1 <= self._watermark
            if late.any():
                self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
                batch = batch.filter(~late)
                if not batch.num_rows:
                    return
        slots, new = self._keys.upsert([batch.columns[i] for i in self._partition], batch.num_rows)
        new = self._tier.fetch(new)
        if len(new):
            self._bar = grown(self._bar, self._keys.high, _MAX_CODE)
            self._bar[new] = _MAX_CODE
        self._open_windows(slots, batch.columns)
        touched = slots
        if self._fixed_order:
            enters = self._codes(batch) < self._bar[slots]
            if not enters.all():
                batch, slots = batch.filter(enters), slots[enters]
        if batch.num_rows:
            yield from self._update(batch, slots)
        self._tier.used(touched)
        self._tier.make_room(len(new))

    def _codes(self, batch: Batch) -> np.ndarray:
        key = self.spec.order[0]
        return single_key_codes(batch.columns[key.index], key)

    def _update(self, batch: Batch, slots: np.ndarray) -> Iterator[Output]:
        touched = np.unique(slots)
        self._ttl.touch(touched, self._keys.high)
        rows = self._rows.gather(touched, slots, batch.columns)
        signs = np.ones(len(rows.entries), np.int8)
        given = batch.signs()
        before = None
        if given is not None and (given < 0).any():
            new_rows = np.flatnonzero(rows.entries < 0)
            signs[new_rows] = given[stable_argsort(slots)]
        old_ranks = self._old_ranks(rows)
        before = rows
        if (signs < 0).any():
            stands, unmatched = cancelled(rows, signs, self._identity())
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
        else:
            stands = np.ones(len(signs), np.bool_)
        standing = np.flatnonzero(stands)
        order = standing[self._sorted(rows.take(standing))]
        ranks, places = self._ranks(rows, order)
        keep = np.ones(len(order), np.bool_) if self.spec.retracts else ranks <= self.spec.last
        new_ranks = np.zeros(len(signs), np.int64)
        new_ranks[order] = ranks
        kept = order[keep]
        if self.spec.window is None:
            yield from self._emit(before, old_ranks, new_ranks)
        self._store(rows, kept, places[keep])
        if self._fixed_order:
            self._raise_bars(rows, kept, ranks[keep])
        if self.spec.retracts and self.spec.window is None:
            self._free_empty(touched, rows.partitions[kept])

    def _identity(self) -> tuple[int, ...] | None:
        return self.spec.unique_keys or None

    def _sorted(self, rows: Gathered) -> np.ndarray:
        return sort_indices(rows.columns, self.spec.order, first=rows.partitions)

    def _old_ranks(self, rows: Gathered) -> np.ndarray:
        """Rank of each stored row before this batch (0: a new row)."""
        stored = np.flatnonzero(rows.entries >= 0)
        out = np.zeros(len(rows.entries), np.int64)
        if len(stored):
            order = stored[stable_argsort(self._rows.place[rows.entries[stored]])]
            order = order[stable_argsort(rows.partitions[order])]
            out[order] = self._ranks(rows, order)[0]
        return out

    def _ranks(self, rows: Gathered, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rank, place) of rows in the given order; both from 1, per partition."""
        if not len(order):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        partitions = rows.partitions[order]
        bounds = group_bounds(partitions)
        starts = np.repeat(bounds[:-1], np.diff(bounds))
        places = np.arange(len(order)) - starts + 1
        if self.spec.rank == "row_number":
            return places, places
        differs = changes(rows.columns, self.spec.order, order)
        differs[bounds[:-1]] = True
        if self.spec.rank == "rank":
            leaders = np.where(differs, np.arange(len(order)), 0)
            return places[np.maximum.accumulate(leaders)], places
        dense = np.cumsum(differs)
        return dense - dense[starts] + 1, places

    def _store(self, rows: Gathered, kept: np.ndarray, places: np.ndarray) -> None:
        stays = np.zeros(len(rows.entries), np.bool_)
        stays[kept] = True
        self._rows.remove(rows.entries[(rows.entries >= 0) & ~stays])
        old = rows.entries[kept] >= 0
        self._rows.move(rows.entries[kept[old]], places[old])
        fresh = kept[~old]
        if len(fresh):
            columns = [c.take(fresh) for c in rows.columns]
            self._rows.add(rows.partitions[fresh], columns, places[~old])

    def _raise_bars(self, rows: Gathered, kept: np.ndarray, ranks: np.ndarray) -> None:
        """Partitions that are full: a later row must sort before their last one."""
        full = kept[ranks == self.spec.last]
        if len(full):
            columns = [c.take(full) for c in rows.columns]
            codes = self._codes(Batch(self._schema, columns, num_rows=len(full)))
            self._bar[rows.partitions[full]] = codes

    def _free_empty(self, touched: np.ndarray, still: np.ndarray) -> None:
        empty = np.setdiff1d(touched, still)
        if len(empty):
            self._ttl.forget(empty)
            self._keys.free(empty)

    # -- output ------------------------------------------------------------------------

    def _emit(self, rows: Gathered, old_ranks: np.ndarray, new_ranks: np.ndarray) -> Iterator[Batch]:
        spec = self.spec
        was = (old_ranks >= spec.first) & (old_ranks <= spec.last)
        now = (new_ranks >= spec.first) & (new_ranks <= spec.last)
        single = spec.first == spec.last == 1 and spec.rank == "row_number"
        if spec.rank == "row_number" and (spec.rank_column or single):
            yield from self._emit_positions(rows, old_ranks, new_ranks, was, now)
            return
        same = was & now & ((old_ranks == new_ranks) | np.bool_(not spec.rank_column))
        gone, come = np.flatnonzero(was & ~same), np.flatnonzero(now & ~same)
        if not len(gone) + len(come):
            return
        order = np.concatenate((gone, come))
        kinds = np.concatenate((np.full(len(gone), DELETE), np.full(len(come), INSERT)))
        ranks = np.concatenate((old_ranks[gone], new_ranks[come]))
        by_partition = stable_argsort(rows.partitions[order])
        order, kinds, ranks = order[by_partition], kinds[by_partition], ranks[by_partition]
        columns = self._with_rank([c.take(order) for c in rows.columns], ranks)
        batch = Batch(
            self.ctx.output_schema,
            typed(self.ctx.output_schema, columns),
            kinds=kinds if len(gone) else None,
            num_rows=len(order),
        )
        yield from batch_pieces(batch)

    def _emit_positions(
        self,
        rows: Gathered,
        old_ranks: np.ndarray,
        new_ranks: np.ndarray,
        was: np.ndarray,
        now: np.ndarray,
    ) -> Iterator[Batch]:
        """Compare the row at each (partition, rank) with the one that stood there."""
        width = self.spec.last + 1
        before, after = np.flatnonzero(was), np.flatnonzero(now)
        keys_before = rows.partitions[before] * width + old_ranks[before]
        keys_after = rows.partitions[after] * width + new_ranks[after]
        keys = np.union1d(keys_before, keys_after)
        old = np.full(len(keys), -1)
        new = np.full(len(keys), -1)
        old[np.searchsorted(keys, keys_before)] = before
        new[np.searchsorted(keys, keys_after)] = after
        moved = old != new
        keys, old, new = keys[moved], old[moved], new[moved]
        for part in pieces(np.arange(len(keys))):
            ranks = keys[part] % width
            out = change_batch(
                self.ctx.output_schema,
                self._with_rank([c.take_or_null(old[part]) for c in rows.columns], ranks),
                self._with_rank([c.take_or_null(new[part]) for c in rows.columns], ranks),
                old[part] >= 0,
                new[part] >= 0,
                emit_before=self.spec.emit_before,
            )
            if out is not None:
                yield out

    def _with_rank(self, columns: list[Column], ranks: np.ndarray) -> list[Column]:
        return [*columns, Column(_LONG, ranks)] if self.spec.rank_column else columns

    # -- windows -----------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        if self.spec.window is None or not self._windows.any_due(watermark):
            return
        due = self._windows.due(watermark, self._keys.high)
        for slots in pieces(due, self._tier.piece_keys):
            entries = self._rows.of(slots)
            yield from self._shown(self._rows.partition_of[entries], self._rows.rows.take(entries))
            self._rows.remove(entries)
        self._windows.forget(due)
        self._keys.free(due)
        for piece in self._windows.due_on_disk(watermark):
            [rows] = piece.tables
            yield from self._shown(np.repeat(np.arange(len(piece)), rows.counts), rows.columns[:-1])
        self._windows.passed(self._keys.high)

    def _shown(self, partitions: np.ndarray, columns: list[Column]) -> Iterator[Batch]:
        """Whole partitions, each in its order."""
        n, schema = len(partitions), self.ctx.output_schema
        ranks, _ = self._ranks(Gathered(partitions, partitions, columns), np.arange(n))
        shown = np.flatnonzero((ranks >= self.spec.first) & (ranks <= self.spec.last))
        for part in pieces(shown):
            out = self._with_rank([c.take(part) for c in columns], ranks[part])
            yield Batch(schema, typed(schema, out), num_rows=len(part))

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._drop(self._ttl.due(now_ms))
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        unions = watermark_state(self._watermark) if self.spec.window else {}
        return OperatorSnapshot(keyed={"rows": self._table.cut()}, unions=unions)

    def _restore(self, restored: RestoredState) -> None:
        k = len(self.spec.partition)
        types = [*(self._schema.types[i] for i in self.spec.partition), *self._schema.types, _LONG]
        for block in restored.keyed.get("rows", []):
            columns, n = restored_columns([block], types)
            if not n:
                continue
            rows = columns[k:-1]
            slots, new = self._keys.upsert([rows[i] for i in self._partition], n)
            self._tier.fetch(new)
            self._bar = grown(self._bar, self._keys.high, _MAX_CODE)
            self._rows.add(slots, rows, columns[-1].values)
            self._ttl.touch(np.unique(slots), self._keys.high)
            self._open_windows(slots, rows)
            if self._fixed_order:
                self._raise_bars(Gathered(slots, slots, rows), np.arange(n), columns[-1].values)
            self._tier.settle()
