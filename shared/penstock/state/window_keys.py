"""Keys that each belong to one window, and go when it closes.

In the index of keys the window's start and end stand first. So on disk the keys of a window
lie together: what it emits is read from there, a piece at a time, and given up as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown
from penstock.columnar.sorting import stable_argsort
from penstock.state.cold_tier import Resident
from penstock.state.key_space import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.state.cold_runs import RunPiece, RunTier
    from penstock.state.context import StateContext
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

#: A window's start and end.
_BOUNDS = 2
_NEVER = 2**63 - 1


class WindowKeySpace(KeySpace):
    """``types``: of the input's columns. ``keys``: those of them by which it is partitioned;
    ``window``: (start, end). ``stored_bounds``: whether the window's bounds stand before a row in
    a snapshot, where they are no keys.

    ``columns``: of the input, in the order of the index.
    """

    def __init__(
        self,
        ctx: StateContext,
        types: Sequence[LogicalType],
        keys: Sequence[int],
        window: tuple[int, int],
        *,
        kind: str,
        stored_bounds: bool,
    ) -> None:
        self.columns = (*window, *(i for i in keys if i not in window))
        #: As they stand in a snapshot: the columns of ``keys`` first.
        stored = (*keys, *(i for i in window if i not in keys))
        self._keys = len(keys)
        self._kept = len(stored) if stored_bounds else self._keys
        self._place = [self.columns.index(i) for i in stored]
        self._back = [stored.index(i) for i in self.columns]
        self._runs: RunTier | None = None
        # By key slot: when its window ends; of windows on disk their run says so.
        self._ends = np.full(1024, _NEVER, np.int64)
        self._next_end = _NEVER
        super().__init__(
            ctx, [types[i] for i in self.columns], kind=kind, names=[f"key{i}" for i in range(self._kept)],
        )  # fmt: skip

    def _canonical(self, types: Sequence[LogicalType]) -> Sequence[LogicalType]:
        return types[_BOUNDS:]  # a window without a key has few rows

    def _make_tier(self) -> Resident:
        if not self.evicts:
            return Resident(self.ctx, self.live_bytes)
        # Here, not at the top: a slot without a limit never loads it.
        from penstock.state.cold_runs import RunTier

        self._runs = RunTier(
            self.ctx, self.index, self.tables, drop=self.evicted, nbytes=self.live_bytes, leading=_BOUNDS,
            arrange=self._arranged,
        )  # fmt: skip
        return self._runs

    def _made(self, slots: np.ndarray) -> None:
        if len(slots):
            ends = self.index.keys(slots)[1].values
            self._ends = grown(self._ends, self.high, _NEVER)
            self._ends[slots] = ends
            self._next_end = min(self._next_end, int(ends.min()))

    def free(self, slots: np.ndarray) -> None:
        self._ends[slots] = _NEVER
        super().free(slots)

    # -- windows that close --------------------------------------------------------------

    def any_due(self, watermark: int) -> bool:
        """Whether the watermark has passed a window."""
        return self._next_end - 1 <= watermark

    def due(self, watermark: int) -> np.ndarray:
        """Slots of windows that the watermark passed, by their end."""
        ends = self._ends[: self.high]
        due = np.flatnonzero((ends - 1 <= watermark) & (ends != _NEVER))
        return due[stable_argsort(ends[due])]

    def due_on_disk(self, watermark: int) -> Iterator[RunPiece]:
        """What lies on disk of such windows, the first to end first. It is given up."""
        for run in self._on_disk():
            if run[1] - 1 > watermark:
                return
            assert self._runs is not None
            yield from self._runs.pieces(run)
            self._runs.forget(run)

    def passed(self) -> None:
        """What was due is gone."""
        self._next_end = int(self._ends[: self.high].min(initial=_NEVER))
        for _, end in self._on_disk()[:1]:
            self._next_end = min(self._next_end, end)

    def _on_disk(self) -> list[tuple[int, ...]]:
        return [] if self._runs is None else sorted(self._runs.runs(), key=lambda run: run[1])

    # -- snapshots -----------------------------------------------------------------------

    def split(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self._arranged(self.index.keys(slots))

    def _arranged(self, columns: list[Column]) -> tuple[list[Column], list[Column]]:
        stored = [columns[i] for i in self._place]
        return stored[: self._keys], stored[self._keys : self._kept]

    @property
    def stored_types(self) -> list[LogicalType]:
        return [self.index.types[i] for i in self._place[: self._kept]]

    def of_stored(self, columns: list[Column]) -> list[Column]:
        return [columns[i] for i in self._back]
