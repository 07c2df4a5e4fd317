"""INTERSECT and EXCEPT, with and without ALL, of two changelogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.operators.changes import DELETE, INSERT, typed
from penstock.operators.emitting import pieces
from penstock.operators.operator import Operator
from penstock.state.cells import NumberCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import CellTable
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import SetOperationSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)


class SetOperationOperator(Operator):
    """Counts each distinct row of both inputs; emits the changes of the number of copies in the result."""

    def __init__(self, spec: SetOperationSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        schema = ctx.output_schema
        self._keys = self.keep(
            KeySpace(
                ctx, [x.with_nullable(True) for x in schema.types], kind="set-operation",
                names=[f"{i}.{name}" for i, name in enumerate(schema.names)],
            )
        )  # fmt: skip
        self._counts = (NumberCells("left", _LONG), NumberCells("right", _LONG))
        self._rows = CellTable(self._keys, "rows", self._counts)
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        out = list[Batch]()
        with self._rows.compare(batch.columns, batch.num_rows) as rows:
            touched, counts = rows.touched, self._counts[input_index].values
            before = self._result(touched)
            signs = batch.signs()
            np.add.at(counts, rows.slots, 1 if signs is None else signs.astype(np.int64))
            negative = touched[counts[touched] < 0]
            if len(negative):
                self.ctx.metrics.inc("numUnmatchedRetractions", int(-counts[negative].sum()))
                counts[negative] = 0
            out = self._changes(touched, self._result(touched) - before)
            left, right = (c.values[touched] for c in self._counts)
            rows.free(touched[(left == 0) & (right == 0)])
        yield from out

    def _changes(self, slots: np.ndarray, delta: np.ndarray) -> list[Batch]:
        """The changelog of rows whose number of copies in the result changed by ``delta``."""
        rows = np.repeat(slots, np.abs(delta))
        kinds = np.repeat(np.where(delta < 0, DELETE, INSERT), np.abs(delta))
        schema, out = self.ctx.output_schema, []
        for part in pieces(np.arange(len(rows))):
            columns = typed(schema, self._keys.keys(rows[part]))
            some = kinds[part]
            out.append(Batch(schema, columns, kinds=some if some.any() else None, num_rows=len(part)))
        return out

    def _result(self, slots: np.ndarray) -> np.ndarray:
        """The number of copies (int64) of each row in the result."""
        left, right = (c.values[slots] for c in self._counts)
        if self.spec.kind == "intersect":
            return np.minimum(left, right) if self.spec.all else ((left > 0) & (right > 0)).astype(np.int64)
        if self.spec.all:
            return np.maximum(left - right, 0)
        return ((left > 0) & (right == 0)).astype(np.int64)
