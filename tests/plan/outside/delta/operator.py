"""A delta at run time: the number of each key's last row is all its state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import stable_argsort
from penstock.operators.operator import MIN_WATERMARK, Operator, OperatorContext, Output
from penstock.snapshots.contract import RestoredState
from penstock.state.cells import NumberCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import CellTable
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import BigIntType

if TYPE_CHECKING:
    from tests.plan.outside.delta.spec import DeltaSpec

_NUMBER = BigIntType(False)
_NONE = MIN_WATERMARK


class DeltaOperator(Operator):
    """Appends the difference to the key's row before."""

    def __init__(self, spec: DeltaSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, types = self.spec, ctx.input_schemas[0].types
        self._keys = self.keep(KeySpace(ctx, [types[k] for k in spec.keys], kind="delta", ttl_ms=spec.ttl_ms))
        self._last = NumberCells("last", _NUMBER, _NONE)
        self._table = CellTable(self._keys, "last", [self._last])
        self._keys.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        values = np.asarray(batch.columns[self.spec.value].values).astype(np.int64)
        with self._keys.touch([batch.columns[k] for k in self.spec.keys], batch.num_rows) as keys:
            order = stable_argsort(keys.slots)
            slots, came = keys.slots[order], values[order]
            first = np.ones(len(slots), np.bool_)
            first[1:] = slots[1:] != slots[:-1]
            before = np.empty(len(slots), np.int64)
            before[1:] = came[:-1]
            before[first] = self._last.values[slots[first]]
            known = np.empty(len(slots), np.bool_)
            difference = np.empty(len(slots), np.int64)
            known[order] = before != _NONE
            difference[order] = came - before
            last = np.append(np.flatnonzero(first)[1:] - 1, len(slots) - 1)
            self._table.put(slots[last], [Column(_NUMBER, came[last])])
        column = Column.of(
            BigIntType(), [d if k else None for d, k in zip(difference.tolist(), known, strict=True)]
        )
        yield Batch(self.ctx.output_schema, [*batch.columns, column], times=batch.times)
