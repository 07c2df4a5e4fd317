"""Top-N: the first rows of each partition in an order, as an updating or a window result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
from penstock.operators.operator import Operator
from penstock.state.key_space import KeySpace
from penstock.state.ranked_rows import Gathered, RankedRows, cancelled
from penstock.state.window_keys import WindowKeySpace
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import TopNSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.state.touched import Touched
    from penstock.types.logical import Schema

_LONG = t.BigIntType(False)
_MAX_CODE = 2**63 - 1


def make_top_n(spec: TopNSpec) -> Operator:
    """The operator of a ``TopNSpec``: ``TopRowsOperator`` if it can run the spec, else ``RankingOperator``."""
    if spec.fixed_order and top_rows.fits(spec):
        return top_rows.TopRowsOperator(spec)
    return RankingOperator(spec)


class RankingOperator(Operator):
    """Emits the rows whose ROW_NUMBER, RANK or DENSE_RANK is between ``first`` and ``last``.

    Without retractions only the rows within rank are kept. If the output has the rank or one row per partition,
    the result is compared position by position, else as a set. Rows that tie for ROW_NUMBER are ordered by
    arrival.
    """

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._schema = schema
        order = spec.order
        self._fixed_order = (
            len(order) == 1
            and spec.rank == "row_number"
            and not spec.retracts
            and Column.nulls(schema.types[order[0].index], 0).is_numpy
        )
        self._windows: WindowKeySpace | None = None
        if spec.window is None:
            self._partition: tuple[int, ...] = spec.partition
            types = [schema.types[i] for i in spec.partition]
            self._keys = self.keep(KeySpace(ctx, types, kind="top-n", ttl_ms=spec.ttl_ms))
        else:
            self._keys = self._windows = self.keep(
                WindowKeySpace(
                    ctx, schema.types, spec.partition, spec.window, kind="top-n", stored_bounds=False
                )
            )  # fmt: skip
            self._partition = self._windows.columns
        self._rows = _Rankings(self._keys, schema, spec, self._partition, fixed_order=self._fixed_order)
        self._watermark = restored_watermark(restored)
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if self.spec.window is not None:
            late = event_times(batch, self.spec.window[1], self.ctx) - 1 <= self._watermark
            if late.any():
                self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
                batch = batch.filter(~late)
                if not batch.num_rows:
                    return
        out: Iterator[Output] = iter(())
        with self._keys.touch([batch.columns[i] for i in self._partition], batch.num_rows) as keys:
            slots = keys.slots
            if self._fixed_order:
                enters = self._rows.enter(batch.columns, slots)
                if not enters.all():
                    batch, slots = batch.filter(enters), slots[enters]
            keys.written = np.unique(slots)
            if batch.num_rows:
                out = self._update(keys, batch, slots)
        yield from out

    def _update(self, keys: Touched, batch: Batch, slots: np.ndarray) -> Iterator[Output]:
        """Merge a batch with the rows of its partitions and emit the changes."""
        assert keys.written is not None
        rows = self._rows.gather(keys.written, slots, batch.columns)
        signs = np.ones(len(rows.entries), np.int8)
        given = batch.signs()
        if given is not None and (given < 0).any():
            new_rows = np.flatnonzero(rows.entries < 0)
            signs[new_rows] = given[stable_argsort(slots)]
        old_ranks = self._old_ranks(rows)
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
        self._store(rows, kept, places[keep])
        if self._fixed_order:
            self._rows.raise_bars(rows, kept, ranks[keep])
        if self.spec.window is not None:
            return iter(())
        if self.spec.retracts:
            keys.free(np.setdiff1d(keys.written, rows.partitions[kept]))
        return self._emit(rows, old_ranks, new_ranks)

    def _identity(self) -> tuple[int, ...] | None:
        return self.spec.unique_keys or None

    def _sorted(self, rows: Gathered) -> np.ndarray:
        return sort_indices(rows.columns, self.spec.order, first=rows.partitions)

    def _old_ranks(self, rows: Gathered) -> np.ndarray:
        """The rank of each stored row before this batch; 0 for a new row."""
        stored = np.flatnonzero(rows.entries >= 0)
        out = np.zeros(len(rows.entries), np.int64)
        if len(stored):
            order = stored[stable_argsort(self._rows.place[rows.entries[stored]])]
            order = order[stable_argsort(rows.partitions[order])]
            out[order] = self._ranks(rows, order)[0]
        return out

    def _ranks(self, rows: Gathered, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rank, position) of the rows in the given order, both from 1 within their partition."""
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
        """The changes of the row at each (partition, rank)."""
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
        windows = self._windows
        if windows is None or not windows.any_due(watermark):
            return
        due = windows.due(watermark)
        for slots in pieces(due, windows.tier.piece_keys):
            _, entries = self._rows.rows_of(slots)
            yield from self._shown(self._rows.partition_of[entries], self._rows.rows.take(entries))
        windows.free(due)
        for piece in windows.due_on_disk(watermark):
            [rows] = piece.tables
            yield from self._shown(np.repeat(np.arange(len(piece)), rows.counts), rows.columns[:-1])
        windows.passed()

    def _shown(self, partitions: np.ndarray, columns: list[Column]) -> Iterator[Batch]:
        """The output of whole partitions whose rows are in order."""
        n, schema = len(partitions), self.ctx.output_schema
        ranks, _ = self._ranks(Gathered(partitions, partitions, columns), np.arange(n))
        shown = np.flatnonzero((ranks >= self.spec.first) & (ranks <= self.spec.last))
        for part in pieces(shown):
            out = self._with_rank([c.take(part) for c in columns], ranks[part])
            yield Batch(schema, typed(schema, out), num_rows=len(part))

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark) if self.spec.window else None)


class _Rankings(RankedRows):
    """The rows of all partitions. If the order is one fixed-width column, also the bar of each partition: the
    order code at or above which no later row can be among the first."""

    def __init__(
        self, space: KeySpace, schema: Schema, spec: TopNSpec, partition: Sequence[int], *, fixed_order: bool
    ) -> None:
        super().__init__(space, "rows", schema, spec.partition, partition)
        self._last, self._order, self._fixed_order = spec.last, spec.order[0], fixed_order
        self._bar = np.full(1024, _MAX_CODE, np.int64)

    def make(self, keys: np.ndarray) -> None:
        self._bar = grown(self._bar, self.space.high, _MAX_CODE)
        self._bar[keys] = _MAX_CODE

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        entries = super().load(keys, columns)
        if self._fixed_order:
            rows = Gathered(keys, entries, columns[:-1])
            self.raise_bars(rows, np.arange(len(keys)), columns[-1].values)
        return entries

    def enter(self, columns: Sequence[Column], partitions: np.ndarray) -> np.ndarray:
        """Mask of the rows that may be among the first of their partitions."""
        return self._codes(columns) < self._bar[partitions]

    def raise_bars(self, rows: Gathered, kept: np.ndarray, ranks: np.ndarray) -> None:
        """Set the bars of full partitions: a later row must sort before their last row."""
        full = kept[ranks == self._last]
        if len(full):
            self._bar[rows.partitions[full]] = self._codes([c.take(full) for c in rows.columns])

    def _codes(self, columns: Sequence[Column]) -> np.ndarray:
        return single_key_codes(columns[self._order.index], self._order)
