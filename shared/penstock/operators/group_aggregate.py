"""Unwindowed aggregation: one updating row per key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct_slots, group_rows
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import grown
from penstock.errors import InternalError, UnsupportedError
from penstock.operators.changes import TimeToLive, change_batch, typed
from penstock.operators.emitting import pieces
from penstock.operators.joining import take_all
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.snapshots.reading import row_count
from penstock.state.aggregates import AggregateSet
from penstock.state.cold_tier import (
    ColdTier,
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

    import pyarrow as pa

    from penstock.jobgraph.specs import GroupAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)


def GroupAggregateOperator(spec: GroupAggregateSpec) -> Operator:
    """The operator for ``spec`` (a class in all but its constructor)."""
    return LocalGroupAggregateOperator(spec) if spec.phase == "local" else KeyedAggregateOperator(spec)


class KeyedAggregateOperator(Operator):
    """Phases ``single`` and ``global``.

    A batch changes each of its keys once: what is emitted is the difference between the
    key's row before and after the batch. When the input retracts, a key whose rows are all
    gone is deleted (−D) and its state freed.
    """

    def __init__(self, spec: GroupAggregateSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._key_types = [schema.types[i] for i in spec.keys]
        self._keys = KeyIndex(self._key_types)
        self._rows = np.zeros(1024, np.int64)  # by slot: input rows that stand (retracts only)
        types = list(spec.local_types) if spec.phase == "global" else schema.types
        self._aggregates = AggregateSet(spec.aggregates, types, retracts=spec.retracts, function=ctx.function)
        self._ttl = TimeToLive(spec.ttl_ms, ctx)
        # A bounded input's results come at its end, from all keys at once: they stay.
        evicts = can_evict(ctx, self._key_types) and not spec.bounded_final
        self._tables = self._aggregates.state_tables(
            ctx, head=self._head, names=[f"key{i}" for i in range(len(spec.keys))],
            kind="group-aggregate", cells=self._row_counts, cell_names=["rows"],
            make_changes=partial(make_changes, ctx, evicts=evicts),
        )  # fmt: skip
        self._changes = self._tables[0].changes
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numKeysInState", lambda: len(self._keys))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _cold_tier(self) -> ColdTier:
        cells = MovableTable(
            self._changes, [_LONG, *self._aggregates.partial_types], one_row_each,
            read=lambda slots: [*self._row_counts(slots), *self._aggregates.partials(slots)],
            load=self._load_cells,
        )  # fmt: skip
        if self._ttl.ttl_ms:
            cells.times, cells.touched = self._ttl.times, self._ttl.came_back
        tables = [cells, *(movable_entries(table) for table in self._aggregates.tables())]
        return ColdTier(self.ctx, self._keys, tables, drop=self._drop, nbytes=self._nbytes)

    def _nbytes(self) -> int:
        keys = len(self._keys)
        return self._keys.live_bytes + self._aggregates.live_bytes(keys) + 24 * keys

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        spec = self.spec
        signs = self._signs(batch)
        slots, new = self._keys.upsert([batch.columns[i] for i in spec.keys], batch.num_rows)
        new = self._tier.fetch(new)
        touched = distinct_slots(slots, self._keys.high)
        had = self._changes.holds(touched)
        self._changes.write(touched)
        self._prepare(new)
        old = None if spec.bounded_final else self._aggregates.results(touched)
        if spec.phase == "global":
            at = len(spec.keys)
            width = len(self._aggregates.partial_types)
            self._aggregates.merge(slots, batch.columns[at : at + width])
            if spec.retracts:
                np.add.at(self._rows, slots, batch.columns[at + width].values)
        else:
            self._aggregates.add(slots, batch.columns, signs)
            if spec.retracts:
                np.add.at(self._rows, slots, 1 if signs is None else signs.astype(np.int64))
        has = self._rows[touched] > 0 if spec.retracts else np.ones(len(touched), np.bool_)
        self._ttl.touch(touched, self._keys.high)
        if old is not None:
            for part in pieces(np.arange(len(touched))):
                whole = len(part) == len(touched)
                out = change_batch(
                    self.ctx.output_schema,
                    self._row(touched[part], old if whole else [c.take(part) for c in old]),
                    self._row(touched[part], self._aggregates.results(touched[part])),
                    had[part],
                    has[part],
                    emit_before=spec.emit_before,
                )
                if out is not None:
                    yield out
        if not has.all():
            unmatched = int((~has & ~had).sum())
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
            self._free(touched[~has])
        self._tier.used(touched)
        self._tier.make_room(len(new))

    def _signs(self, batch: Batch) -> np.ndarray | None:
        signs = batch.signs()
        if signs is None or (signs > 0).all():
            return None
        if not self.spec.retracts:
            raise InternalError(
                "a retraction reached an aggregation that was planned for an append-only input",
                expected="rows of kind +I or +U",
                got="−U or −D",
                where=self.ctx.name,
                remedy="this is a fault of the planner: report the query",
            )
        return signs

    def _prepare(self, new: np.ndarray) -> None:
        if len(new):
            self._aggregates.reset(new, self._keys.high)
            self._rows = grown(self._rows, self._keys.high)
            self._rows[new] = 0

    def _row(self, slots: np.ndarray, results: list[Column]) -> list[Column]:
        return [*self._keys.keys(slots), *results]

    def _free(self, slots: np.ndarray) -> None:
        self._changes.free(slots)
        self._drop(slots)

    def _drop(self, slots: np.ndarray) -> None:
        self._aggregates.release(slots)
        self._ttl.forget(slots)
        self._keys.free(slots)

    def _load_cells(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._changes.write(slots)
        self._prepare(slots)
        self._rows[slots] = columns[0].values
        self._aggregates.merge(slots, columns[1:])
        return slots

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._free(self._ttl.due(now_ms))
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    def finish(self) -> Iterator[Output]:
        if not self.spec.bounded_final:
            return
        if not self.spec.keys and not len(self._keys):
            # SQL's aggregate of nothing is one row. Only one subtask owns the global key.
            if self.ctx.key_groups[0] > 0 or self.ctx.key_groups[1] < 0:
                return
            new = self._keys.upsert([], 1)[1]
            self._changes.write(new)
            self._prepare(new)
        slots = self._keys.live_slots()
        for part in pieces(slots):
            columns = typed(self.ctx.output_schema, self._row(part, self._aggregates.results(part)))
            yield Batch(self.ctx.output_schema, columns, num_rows=len(part))

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={table.name: table.cut() for table in self._tables})

    def _head(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self._keys.keys(slots), []

    def _row_counts(self, slots: np.ndarray) -> list[Column]:
        return [Column(_LONG, self._rows[slots])]

    def _restore(self, restored: RestoredState) -> None:
        k = len(self._key_types)
        for name, types, put in self._aggregates.state_loaders():
            first = name == "cells"
            all_types = [*self._key_types, *([_LONG] if first else []), *types]
            batches = restored.keyed.get(name, [])
            if first and not isinstance(self._tier, ColdTier):
                self._restore_cells(batches, all_types)
                continue
            # Block by block, so that what is touched at once fits into the processor's cache;
            # entries that are put into order all together.
            for part in [batches] if self._aggregates.is_ordered(name) else ([b] for b in batches):
                columns, n = restored_columns(part, all_types)
                if not n:
                    continue
                slots, new = self._keys.upsert(columns[:k], n)
                new = self._tier.fetch(new)
                self._changes.write(slots)
                self._prepare(new)
                if first:
                    self._rows[slots] = columns[k].values
                    self._ttl.touch(slots, self._keys.high)
                put(slots, columns[k + first :])
                self._tier.settle()

    def _restore_cells(self, batches: Sequence[pa.RecordBatch], types: Sequence[t.LogicalType]) -> None:
        """Every key has one row: nothing is looked up or merged."""
        k = len(self._key_types)
        self._keys.reserve(row_count(batches))
        for batch in batches:
            columns, n = restored_columns([batch], types)
            if not n:
                continue
            at = self._keys.extend(columns[:k], n)
            slots = np.arange(at.start, at.stop)
            self._changes.write(slots)
            self._rows = grown(self._rows, at.stop)
            self._rows[at] = columns[k].values
            self._aggregates.load(at, columns[k + 1 :])
            self._ttl.touch(slots, at.stop)


class LocalGroupAggregateOperator(Operator):
    """Phase ``local``: each batch becomes partial accumulators per key; nothing is kept.

    Output: keys, accumulator columns, and where the input retracts a BIGINT with the net
    number of rows.
    """

    def __init__(self, spec: GroupAggregateSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        schema = ctx.input_schemas[0]
        self._key_types = [schema.types[i] for i in self.spec.keys]
        self._aggregates = AggregateSet(
            self.spec.aggregates, schema.types, retracts=self.spec.retracts, function=ctx.function
        )
        if not self._aggregates.columnar:
            raise UnsupportedError(
                "these aggregates cannot be split in a local and a global phase",
                expected="aggregates for which functions.accumulators.accumulator_types is not None",
                got=", ".join(c.function for c in self.spec.aggregates),
                where=ctx.name,
                remedy="plan this aggregation in a single phase",
            )

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        keys = [batch.columns[i] for i in self.spec.keys]
        slots, rows = group_rows(keys, batch.num_rows)
        out = np.arange(len(rows))
        self._aggregates.reset(out, len(rows))
        signs = batch.signs()
        self._aggregates.add(slots, batch.columns, signs)
        columns = [*take_all(keys, rows), *self._aggregates.partials(out)]
        if self.spec.retracts:
            weights = None if signs is None else signs.astype(np.float64)
            counts = np.bincount(slots, weights, minlength=len(rows)).astype(np.int64)
            columns.append(Column(_LONG, counts))
        columns = typed(self.ctx.output_schema, columns)
        yield Batch(self.ctx.output_schema, columns, num_rows=len(rows))
