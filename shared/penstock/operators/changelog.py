"""Changelog normalisers: an upsert stream made full, and a keyed sink's order restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import group_bounds, last_of_each, position_in_group, stable_argsort
from penstock.columnar.store import make_store
from penstock.operators.changes import change_batch
from penstock.operators.emitting import batch_pieces
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import (
    ColdTier,
    MovableTable,
    Resident,
    can_evict,
    make_changes,
    one_row_each,
)
from penstock.state.ranked_rows import RankedRows, cancelled
from penstock.state.tables import StateTable
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import MaterializeSpec, NormalizeSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)


class NormalizeOperator(Operator):
    """Upsert changelog (+I, +U, −D by key) → full changelog with −U.

    A −D of an unknown key is dropped; one whose other columns are missing takes them from
    the stored row.
    """

    def __init__(self, spec: NormalizeSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self.spec.keys])
        self._stores = [make_store(x) for x in self._schema.types]
        evicts = can_evict(ctx, self._keys.types)
        self._changes = make_changes(ctx, evicts=evicts)
        names = [*(f"key{i}" for i in range(len(self.spec.keys)))]
        names += [f"{i}.{name}" for i, name in enumerate(self._schema.names)]
        self._table = StateTable(
            "rows", self._read, names=names, kind="normalize", max_parallelism=ctx.max_parallelism,
            changes=self._changes,
        )  # fmt: skip
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        k, types = len(self.spec.keys), [*self._key_types(), *self._schema.types]
        for block in () if restored is None else restored.keyed.get("rows", ()):
            columns, n = restored_columns([block], types)
            if n:
                slots, _ = self._keys.upsert(columns[:k], n)
                self._put(slots, columns[k:])
                self._ttl.touch(slots, self._keys.high)
                self._tier.settle()
        ctx.metrics.gauge("numKeysInState", lambda: len(self._keys))

    def _nbytes(self) -> int:
        each = 20.0 + sum(s.row_bytes for s in self._stores)
        return self._keys.live_bytes + int(each * len(self._keys))

    def _cold_tier(self) -> ColdTier:
        table = MovableTable(
            self._changes, self._schema.types, one_row_each, read=lambda slots: self._read(slots)[1],
            load=self._put,
        )  # fmt: skip
        if self._ttl.ttl_ms:
            table.times, table.touched = self._ttl.times, self._ttl.came_back
        return ColdTier(self.ctx, self._keys, [table], drop=self._drop, nbytes=self._nbytes)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def _key_types(self) -> list[t.LogicalType]:
        return [self._schema.types[i] for i in self.spec.keys]

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        slots, new = self._keys.upsert([batch.columns[i] for i in self.spec.keys], batch.num_rows)
        new = self._tier.fetch(new)
        rows = last_of_each(slots)
        targets = slots[rows]
        fresh = np.zeros(self._keys.high, np.bool_)
        fresh[new] = True
        signs = batch.signs()
        had = ~fresh[targets]
        has = np.ones(len(rows), np.bool_) if signs is None else signs[rows] > 0
        self._put(np.empty(0, np.int64), [Column.nulls(x, 0) for x in self._schema.types])
        old = [store.take(targets) for store in self._stores]
        come = [c.take(rows) for c in batch.columns]
        out = change_batch(self.ctx.output_schema, old, come, had, has, emit_before=True)
        self._put(targets[has], [c.filter(has) for c in come])
        self._ttl.touch(targets, self._keys.high)
        self._free(targets[~has])
        if out is not None:
            yield from batch_pieces(out)
        self._tier.used(targets)
        self._tier.make_room(len(new))

    def _put(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._changes.write(slots)
        for store, column in zip(self._stores, columns, strict=True):
            store.put(slots, column, self._keys.high)
        return slots

    def _free(self, slots: np.ndarray) -> None:
        self._changes.free(slots)
        self._drop(slots)

    def _drop(self, slots: np.ndarray) -> None:
        for store in self._stores:
            store.clear(slots)
        self._ttl.forget(slots)
        self._keys.free(slots)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._free(self._ttl.due(now_ms))
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": self._table.cut()})

    def _read(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self._keys.keys(slots), [store.take(slots) for store in self._stores]


class MaterializeOperator(Operator):
    """The upsert materialiser: all standing rows of a key in order of arrival; the last one
    is the key's value. Emits +I, +U, −D by key, so that a late −U of an older row cannot
    delete a newer one in the sink."""

    def __init__(self, spec: MaterializeSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self.spec.keys])
        evicts = can_evict(ctx, self._keys.types)
        self._rows = RankedRows(self._schema.types, ctx, evicts=evicts)
        self._table = self._rows.state_table(
            self.spec.keys, self._schema.names, "materialize", ctx.max_parallelism
        )
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        k = len(self.spec.keys)
        types = [*(self._schema.types[i] for i in self.spec.keys), *self._schema.types, _LONG]
        for block in () if restored is None else restored.keyed.get("rows", ()):
            columns, n = restored_columns([block], types)
            if n:
                slots, new = self._keys.upsert(columns[:k], n)
                self._tier.fetch(new)
                self._rows.add(slots, columns[k:-1], columns[-1].values)
                self._ttl.touch(slots, self._keys.high)
                self._tier.settle()
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))

    def _nbytes(self) -> int:
        return self._rows.live_bytes + self._keys.live_bytes + 8 * len(self._keys)

    def _cold_tier(self) -> ColdTier:
        table = self._rows.movable(
            lambda slots, columns: self._rows.add(slots, columns[:-1], columns[-1].values)
        )
        if self._ttl.ttl_ms:
            of = self._rows.partition_slots
            table.times = lambda entries: self._ttl.times(of(entries))
            table.touched = lambda entries, times: self._ttl.came_back(of(entries), times)
        return ColdTier(self.ctx, self._keys, [table], drop=self._drop, nbytes=self._nbytes)

    def _drop(self, slots: np.ndarray) -> None:
        self._rows.remove(self._rows.of(slots))
        self._ttl.forget(slots)
        self._keys.free(slots)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        slots, new_keys = self._keys.upsert([batch.columns[i] for i in self.spec.keys], batch.num_rows)
        new_keys = self._tier.fetch(new_keys)
        touched = distinct(slots)
        self._ttl.touch(touched, self._keys.high)
        rows = self._rows.gather(touched, slots, batch.columns)
        signs = np.ones(len(rows.entries), np.int8)
        given = batch.signs()
        if given is not None:
            signs[rows.entries < 0] = given[stable_argsort(slots)]
        stands, unmatched = cancelled(rows, signs, None, newest_first=True)
        if unmatched:
            self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
        old = self._last(rows.partitions, rows.entries >= 0, touched)
        new = self._last(rows.partitions, stands, touched)
        out = change_batch(
            self.ctx.output_schema,
            [c.take_or_null(old) for c in rows.columns],
            [c.take_or_null(new) for c in rows.columns],
            old >= 0,
            new >= 0,
            emit_before=False,
        )
        kept = np.flatnonzero(stands)
        places = position_in_group(rows.partitions[kept])
        self._rows.remove(rows.entries[(rows.entries >= 0) & ~stands])
        stored = rows.entries[kept] >= 0
        self._rows.move(rows.entries[kept[stored]], places[stored])
        fresh = kept[~stored]
        self._rows.add(rows.partitions[fresh], [c.take(fresh) for c in rows.columns], places[~stored])
        empty = touched[new < 0]
        self._ttl.forget(empty)
        self._keys.free(empty)
        if out is not None:
            yield from batch_pieces(out)
        self._tier.used(touched)
        self._tier.make_room(len(new_keys))

    def _last(self, partitions: np.ndarray, mask: np.ndarray, touched: np.ndarray) -> np.ndarray:
        """Last row of each touched partition among the masked ones, -1 where there is none."""
        rows = np.flatnonzero(mask)
        out = np.full(len(touched), -1)
        if len(rows):
            last = rows[group_bounds(partitions[rows])[1:] - 1]
            out[np.searchsorted(touched, partitions[last])] = last
        return out

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._drop(self._ttl.due(now_ms))
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": self._table.cut()})
