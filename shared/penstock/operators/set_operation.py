"""INTERSECT and EXCEPT, with and without ALL, of two changelogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import grown
from penstock.operators.changes import DELETE, INSERT, typed
from penstock.operators.emitting import pieces
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
from penstock.state.tables import StateTable
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import SetOperationSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)


class SetOperationOperator(Operator):
    """Counts each distinct row on both sides; a batch emits how its result count changed."""

    def __init__(self, spec: SetOperationSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._types = ctx.output_schema.types
        self._index = KeyIndex([x.with_nullable(True) for x in self._types])
        self._counts = [np.zeros(1024, np.int64), np.zeros(1024, np.int64)]
        evicts = can_evict(ctx, self._types)
        self._changes = make_changes(ctx, evicts=evicts)
        names = [f"{i}.{name}" for i, name in enumerate(ctx.output_schema.names)]
        self._table = StateTable(
            "rows", self._read, names=[*names, "left", "right"], kind="set-operation",
            max_parallelism=ctx.max_parallelism, changes=self._changes,
        )  # fmt: skip
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        types = [*self._types, _LONG, _LONG]
        for block in () if restored is None else restored.keyed.get("rows", ()):
            columns, n = restored_columns([block], types)
            if n:
                slots, _ = self._index.upsert(columns[:-2], n)
                self._load(slots, columns[-2:])
                self._tier.settle()
        ctx.metrics.gauge("numRowsInState", lambda: len(self._index))

    def _nbytes(self) -> int:
        return self._index.live_bytes + 28 * len(self._index)

    def _cold_tier(self) -> ColdTier:
        table = MovableTable(
            self._changes, [_LONG, _LONG], one_row_each, read=lambda slots: self._read(slots)[1],
            load=self._load,
        )  # fmt: skip
        return ColdTier(self.ctx, self._index, [table], drop=self._index.free, nbytes=self._nbytes)

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._grow()
        self._changes.write(slots)
        for counts, column in zip(self._counts, columns, strict=True):
            counts[slots] = column.values
        return slots

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def _grow(self) -> None:
        self._counts = [grown(c, self._index.high) for c in self._counts]

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        slots, new = self._index.upsert(batch.columns, batch.num_rows)
        new = self._tier.fetch(new)
        self._grow()
        self._changes.write(slots)
        for counts in self._counts:
            counts[new] = 0
        touched = distinct(slots)
        before = self._result(touched)
        signs = batch.signs()
        np.add.at(self._counts[input_index], slots, 1 if signs is None else signs.astype(np.int64))
        negative = touched[self._counts[input_index][touched] < 0]
        if len(negative):
            unmatched = int(-self._counts[input_index][negative].sum())
            self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
            self._counts[input_index][negative] = 0
        delta = self._result(touched) - before
        rows = np.repeat(touched, np.abs(delta))
        kinds = np.repeat(np.where(delta < 0, DELETE, INSERT), np.abs(delta))
        schema = self.ctx.output_schema
        for part in pieces(np.arange(len(rows))):
            columns = typed(schema, self._index.keys(rows[part]))
            some = kinds[part]
            yield Batch(schema, columns, kinds=some if some.any() else None, num_rows=len(part))
        gone = touched[(self._counts[0][touched] == 0) & (self._counts[1][touched] == 0)]
        self._changes.free(gone)
        self._index.free(gone)
        self._tier.used(touched)
        self._tier.make_room(len(new))

    def _result(self, slots: np.ndarray) -> np.ndarray:
        """How often each row stands in the result."""
        left, right = (c[slots] for c in self._counts)
        if self.spec.kind == "intersect":
            return np.minimum(left, right) if self.spec.all else ((left > 0) & (right > 0)).astype(np.int64)
        if self.spec.all:
            return np.maximum(left - right, 0)
        return ((left > 0) & (right == 0)).astype(np.int64)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": self._table.cut()})

    def _read(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self._index.keys(slots), [Column(_LONG, c[slots]) for c in self._counts]
