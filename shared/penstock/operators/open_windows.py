"""Keys that each belong to one window, and go when it closes: of deduplication and Top-N.

In the index of keys the window's start and end stand first. So on disk the keys of a window
lie together: what it emits is read from there, a piece at a time, and given up as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import stable_argsort
from penstock.columnar.store import grown
from penstock.operators.operator import MAX_WATERMARK
from penstock.state.cold_tier import can_evict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.operators.operator import OperatorContext
    from penstock.state.cold_runs import RunPiece, RunTier
    from penstock.state.cold_tier import MovableTable
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

#: A window's start and end.
_BOUNDS = 2


class WindowKeyOrder:
    """Which columns make a key, of those of the input. ``keys``: by which the input is partitioned;
    ``window``: (start, end), None where there is none.

    ``columns``: as the index of keys has them. ``stored``: as they stand in a snapshot, the
    columns of ``keys`` first.
    """

    def __init__(self, keys: Sequence[int], window: tuple[int, int] | None) -> None:
        bounds = () if window is None else window
        self._windowed, self._keys = window is not None, len(keys)
        self.columns = (*bounds, *(i for i in keys if i not in bounds))
        self.stored = (*keys, *(i for i in bounds if i not in keys))
        self._place = [self.columns.index(i) for i in self.stored]

    def split(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        """Of the index's columns those of ``keys``, and the others of ``stored``."""
        stored = [columns[i] for i in self._place]
        return stored[: self._keys], stored[self._keys :]

    def of_stored(self, columns: Sequence[Column]) -> list[Column]:
        """The index's columns, of the stored ones."""
        return [columns[self.stored.index(i)] for i in self.columns]

    def can_evict(self, ctx: OperatorContext, types: Sequence[LogicalType]) -> bool:
        """``types``: of the index. A window without a key has few rows."""
        return can_evict(ctx, types[_BOUNDS:] if self._windowed else types)


class OpenWindows:
    """By key slot, when its window ends; of windows on disk their run says so."""

    def __init__(self) -> None:
        self._ends = np.full(1024, MAX_WATERMARK, np.int64)
        self._next_end = MAX_WATERMARK
        self._runs: RunTier | None = None

    def tier(
        self, ctx: OperatorContext, index: object, table: MovableTable, order: WindowKeyOrder, *,
        drop: Callable[[np.ndarray], None], nbytes: Callable[[], int], stored_bounds: bool,
    ) -> RunTier:  # fmt: skip
        """Where the keys go when memory is short. ``stored_bounds``: whether the window's bounds
        stand before a row in a snapshot."""
        # Here, not at the top: a slot without a limit never loads it.
        from penstock.state.cold_runs import RunTier

        def arrange(columns: list[Column]) -> tuple[list[Column], list[Column]]:
            keys, others = order.split(columns)
            return keys, others if stored_bounds else []

        self._runs = RunTier(ctx, index, [table], drop=drop, nbytes=nbytes, leading=_BOUNDS, arrange=arrange)
        return self._runs

    def opened(self, slots: np.ndarray, ends: np.ndarray, high: int) -> None:
        """``ends``: of each slot's window; ``high``: of the index."""
        self._ends = grown(self._ends, high, MAX_WATERMARK)
        self._ends[slots] = ends
        self._next_end = min(self._next_end, int(ends.min()))

    def any_due(self, watermark: int) -> bool:
        return self._next_end - 1 <= watermark

    def forget(self, slots: np.ndarray) -> None:
        """These are free, or lie on disk."""
        self._ends[slots] = MAX_WATERMARK

    def due(self, watermark: int, high: int) -> np.ndarray:
        """Slots of windows that the watermark passed, by their end."""
        ends = self._ends[:high]
        due = np.flatnonzero((ends - 1 <= watermark) & (ends != MAX_WATERMARK))
        return due[stable_argsort(ends[due])]

    def due_on_disk(self, watermark: int) -> Iterator[RunPiece]:
        """What lies on disk of such windows, the first to end first. It is given up."""
        for run in self._on_disk():
            if run[1] - 1 > watermark:
                return
            assert self._runs is not None
            yield from self._runs.pieces(run)
            self._runs.forget(run)

    def passed(self, high: int) -> None:
        """What was due is gone."""
        self._next_end = int(self._ends[:high].min(initial=MAX_WATERMARK))
        for _, end in self._on_disk()[:1]:
            self._next_end = min(self._next_end, end)

    def _on_disk(self) -> list[tuple[int, ...]]:
        return [] if self._runs is None else sorted(self._runs.runs(), key=lambda run: run[1])
