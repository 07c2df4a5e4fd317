"""Drops rows that are below the maximum of their window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import group_rows
from penstock.columnar.sorting import order_codes
from penstock.columnar.windows import Panes
from penstock.operators.emitting import event_times
from penstock.operators.operator import MIN_WATERMARK, Operator
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowMaximumSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)
#: The most windows whose maximum is remembered. With more of them a row is compared only within its batch.
_REMEMBERED = 4096


class WindowMaximumOperator(Operator):
    """Drops rows before a join of rows with their window's maximum, and before that maximum.

    A row below an earlier one of its window affects neither. The remembered maxima only let the operator drop
    more rows, so they are no state: they are empty after a restore. Rows without a value, late rows, and rows
    exactly at a window's start (which a BETWEEN also counts to the window before) always pass.
    """

    def __init__(self, spec: WindowMaximumSpec) -> None:
        self.spec = spec
        self._panes = None if spec.window is None else Panes(spec.window)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._best: dict[int, int] = {}  # window end (µs) → greatest order code
        self._watermark = MIN_WATERMARK

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        times = event_times(batch, self.spec.time, self.ctx)
        ends = times if self._panes is None else self._panes.pane_of(times) + self._panes.length_us
        column = batch.columns[self.spec.value]
        codes = order_codes(column)
        low, high = int(ends.min()), int(ends.max())
        if low == high:
            valued = codes if column.valid is None else codes[column.valid]
            keep = codes >= (self._raise(low, int(valued.max())) if len(valued) else 0)
        else:
            keep = self._beaten_by_none(Column(_LONG, ends), codes, column.valid)
        if self._watermark > MIN_WATERMARK and low - 1 <= self._watermark:
            keep |= ends - 1 <= self._watermark
        if column.valid is not None:
            keep |= ~column.valid
        if self._panes is not None:
            keep |= ends - times == self._panes.length_us
        if keep.any():
            yield batch.filter(keep)

    def _beaten_by_none(self, ends: Column, codes: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
        groups, rows = group_rows([ends], len(codes))
        best = np.full(len(rows), np.iinfo(np.int64).min)
        if valid is None:
            np.maximum.at(best, groups, codes)
        else:
            np.maximum.at(best, groups[valid], codes[valid])
        windows = ends.values[rows]
        if len(rows) <= _REMEMBERED:
            pairs = zip(windows.tolist(), best.tolist(), strict=True)
            best = np.array([self._raise(end, code) for end, code in pairs], np.int64)
        return codes >= best[groups]

    def _raise(self, end: int, code: int) -> int:
        """The greatest code of the window so far, ``code`` included."""
        if end - 1 <= self._watermark:
            return np.iinfo(np.int64).min
        known = self._best.get(end)
        if known is not None and known >= code:
            return known
        if known is not None or len(self._best) < _REMEMBERED:
            self._best[end] = code
        return code

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._watermark = max(self._watermark, watermark)
        for end in [e for e in self._best if e - 1 <= watermark]:
            del self._best[end]
        return iter(())
