"""Keys that belong to one window each, and are removed when it closes.

In the index of keys the window's start and end come first, so that the keys of a window are contiguous on
disk. What the window emits is read from there piece by piece, and removed as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown
from penstock.columnar.sorting import stable_argsort
from penstock.state.cold_tier import Resident
from penstock.state.key_space import KeySpace
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.state.cold_runs import RunPiece, RunTier
    from penstock.state.context import StateContext
    from penstock.types.logical import LogicalType

#: The number of columns for a window's start and end.
_BOUNDS = 2
_NEVER = 2**63 - 1


class WindowKeySpace(KeySpace):
    """A key space of (window, key).

    ``types``: of the input's columns. ``keys``: the columns by which the input is partitioned. ``window``:
    the columns (start, end). ``stored_bounds``: whether the window's bounds are stored before a row in a
    snapshot if they are no keys. ``columns``: the input columns in the order of the index.
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
        #: In the order of a snapshot: the columns of ``keys`` first.
        stored = (*keys, *(i for i in window if i not in keys))
        self._keys = len(keys)
        self._kept = len(stored) if stored_bounds else self._keys
        self._place = [self.columns.index(i) for i in stored]
        self._back = [stored.index(i) for i in self.columns]
        self._runs: RunTier | None = None
        # Key slot → end of its window. For windows on disk the name of the run holds the end.
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
        # Imported here, because a slot without a memory limit never needs it.
        from penstock.state.cold_runs import RunTier

        self._runs = RunTier(
            self.ctx, self.index, self.tables, drop=self.evicted, nbytes=self.live_bytes, leading=_BOUNDS,
            arrange=self.stored_keys,
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
        """Whether the watermark (µs) has passed the end of a window."""
        self.given.finish()
        return self._next_end - 1 <= watermark

    def due(self, watermark: int) -> np.ndarray:
        """The slots in memory whose window the watermark has passed, sorted by its end."""
        ends = self._ends[: self.high]
        due = np.flatnonzero((ends - 1 <= watermark) & (ends != _NEVER))
        return due[stable_argsort(ends[due])]

    def due_on_disk(self, watermark: int) -> Iterator[RunPiece]:
        """The rows on disk of such windows, the first to end first. They are removed."""
        for run in self._on_disk():
            if run[1] - 1 > watermark:
                return
            assert self._runs is not None
            yield from self._runs.pieces(run)
            self._runs.forget(run)

    def passed(self) -> None:
        """Called after the windows that were due have been removed."""
        self._next_end = int(self._ends[: self.high].min(initial=_NEVER))
        for _, end in self._on_disk()[:1]:
            self._next_end = min(self._next_end, end)

    def _on_disk(self) -> list[tuple[int, ...]]:
        return [] if self._runs is None else sorted(self._runs.runs(), key=lambda run: run[1])

    def _addressed(self, keys: Sequence[Column], n: int) -> tuple[Sequence[Column], int]:
        in_memory = np.stack([c.values for c in self.index.keys(self.index.live_slots())[:_BOUNDS]], axis=1)
        on_disk = np.array(self._on_disk(), np.int64).reshape(-1, _BOUNDS)
        windows = np.unique(np.concatenate((in_memory, on_disk)), axis=0)
        own = np.tile(np.arange(n), len(windows))
        # The window's bounds may be among a key's columns. The key then belongs to that window only.
        found = {place: key.take(own) for place, key in zip(self._place, keys, strict=False)}
        same = np.ones(len(own), np.bool_)
        for i in range(_BOUNDS):
            bound = np.repeat(windows[:, i], n)
            if i in found:
                same &= found[i].values == bound
            found[i] = Column(self.index.types[i], bound)
        chosen = np.flatnonzero(same)
        return [found[i].take(chosen) for i in range(len(self.columns))], len(chosen)

    # -- snapshots -----------------------------------------------------------------------

    def stored_keys(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        stored = [columns[i] for i in self._place]
        return stored[: self._keys], stored[self._keys : self._kept]

    @property
    def key_types(self) -> Sequence[LogicalType]:
        return self.stored_types[: self._keys]

    @property
    def stored_types(self) -> list[LogicalType]:
        return [self.index.types[i] for i in self._place[: self._kept]]

    def of_stored(self, columns: list[Column]) -> list[Column]:
        return [columns[i] for i in self._back]
