"""A debounce at run time: the time of each key's last row is all its state."""

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
    from tests.plan.outside.debounce.spec import DebounceSpec

_TIME = BigIntType(False)
_NEVER = MIN_WATERMARK


class DebounceOperator(Operator):
    """Gives the rows that come ``quiet_us`` after their key's row before, or later."""

    def __init__(self, spec: DebounceSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, types = self.spec, ctx.input_schemas[0].types
        self._keys = self.keep(
            KeySpace(ctx, [types[k] for k in spec.keys], kind="debounce", ttl_ms=spec.ttl_ms)
        )
        self._last = NumberCells("last", _TIME, _NEVER)
        self._table = CellTable(self._keys, "last", [self._last])
        self._keys.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        times = np.asarray(batch.columns[self.spec.time].values).astype(np.int64)
        with self._keys.touch([batch.columns[k] for k in self.spec.keys], batch.num_rows) as keys:
            order = stable_argsort(keys.slots)
            slots, came = keys.slots[order], times[order]
            first = np.ones(len(slots), np.bool_)
            first[1:] = slots[1:] != slots[:-1]
            before = np.empty(len(slots), np.int64)
            before[1:] = came[:-1]
            before[first] = self._last.values[slots[first]]
            passes = np.zeros(len(slots), np.bool_)
            passes[order] = (before == _NEVER) | (came - before >= self.spec.quiet_us)
            last = np.append(np.flatnonzero(first)[1:] - 1, len(slots) - 1)
            self._table.put(slots[last], [Column(_TIME, came[last])])
        if passes.any():
            yield batch.filter(passes)
