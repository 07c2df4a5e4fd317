"""A key space whose rows are cells, one for each key and pane.

A pane is a namespace: its cells are listed, are removed together, and are contiguous on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import group_bounds, stable_argsort
from penstock.state.cold_tier import Resident
from penstock.state.key_space import KeySpace
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.state.cold_runs import RunTier
    from penstock.state.context import StateContext
    from penstock.types.logical import LogicalType

_LONG = t.BigIntType(False)
_PANE_BITS = 32
_PANE_MASK = (1 << _PANE_BITS) - 1
#: Bytes of memory of a pane without its cells.
PANE_BYTES = 400
#: How many freed cells a pane may still list before its list is cleaned.
_LOOSE = 1_024
_NONE = np.empty(0, np.int64)


def packed(key_slots: np.ndarray, pane_ids: np.ndarray | int) -> np.ndarray:
    """The key of a cell in the index of cells: key slot and pane id in one int64."""
    return (key_slots << _PANE_BITS) | pane_ids


def key_of(cells: np.ndarray) -> np.ndarray:
    """The key slots of packed cells."""
    return cells >> _PANE_BITS


def pane_of(cells: np.ndarray) -> np.ndarray:
    """The pane ids of packed cells."""
    return cells & _PANE_MASK


class Pane:
    """A pane from ``start`` to ``end``, with the list of its cells in memory.

    ``last_end``: the end of the last window that contains it. ``run``: its columns in the state, which
    name it on disk.
    """

    __slots__ = ("_cells", "_listed", "_loose", "end", "id", "last_end", "run", "start")

    def __init__(self, id_: int, run: tuple[int, ...], *, end: int, last_end: int) -> None:
        self.id, self.run = id_, run
        self.start, self.end, self.last_end = run[0], end, last_end
        self._cells: list[np.ndarray] = []
        self._listed = self._loose = 0

    def add(self, cells: np.ndarray) -> None:
        """Adds cells (slot numbers) to the list."""
        self._cells.append(cells)
        self._listed += len(cells)

    def cells(self, index: KeyIndex) -> np.ndarray:
        """The slot numbers of all cells in memory, each once. ``index``: the index of all cells."""
        if self._loose:
            self._clean(index)
        elif len(self._cells) > 1:
            self._cells = [np.concatenate(self._cells)]
        return self._cells[0] if self._cells else _NONE

    def left(self, n: int, index: KeyIndex) -> None:
        """Records that ``n`` listed cells were freed."""
        self._loose += n
        if self._loose > max(_LOOSE, self._listed // 2):
            self._clean(index)

    def _clean(self, index: KeyIndex) -> None:
        # A freed slot may be in use again, by another pane or by this one.
        cells = distinct(np.concatenate(self._cells))
        mine = index.in_use(0, index.high)[cells] & (pane_of(index.ints(cells)) == self.id)
        cells = cells[mine]
        self._cells, self._listed, self._loose = [cells], len(cells), 0


class CellKeys:
    """The index of cells for a cold tier: a key consists of the pane's columns and the key's."""

    def __init__(self, cells: KeyIndex, panes: KeyIndex, keys: KeyIndex) -> None:
        self._cells, self._panes, self._keys = cells, panes, keys
        self.types: list[LogicalType] = [*panes.types, *keys.types]

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def high(self) -> int:
        return self._cells.high

    def in_use(self, start: int, stop: int) -> np.ndarray:
        return self._cells.in_use(start, stop)

    def keys(self, slots: np.ndarray) -> list[Column]:
        found = self._cells.ints(slots)
        return [*self._panes.keys(pane_of(found)), *self._keys.keys(key_of(found))]


class PaneSpace(KeySpace):
    """A key space of cells by key and pane.

    ``pane_names``: the names in snapshots of the whole numbers that name a pane; they follow the key's
    columns. ``make_pane(id, run)``: makes a pane for its first cell. The rows of the tables are cells:
    slots are those of cells everywhere except in ``index``, which holds the keys, and in ``uses``, which
    counts the cells of a key in memory.
    """

    def __init__(
        self,
        ctx: StateContext,
        types: Sequence[LogicalType],
        *,
        kind: str,
        pane_names: Sequence[str],
        make_pane: Callable[[int, tuple[int, ...]], Pane],
    ) -> None:
        self.panes = KeyIndex([_LONG] * len(pane_names))
        self.cells = KeyIndex([_LONG])
        self._live: dict[int, Pane] = {}
        self._make_pane = make_pane
        self._runs: RunTier | None = None
        super().__init__(ctx, types, kind=kind, names=[*(f"key{i}" for i in range(len(types))), *pane_names])

    def _make_tier(self) -> Resident:
        if not self.evicts:
            return Resident(self.ctx, self.live_bytes)
        # Imported here, because a slot without a memory limit never needs it.
        from penstock.state.cold_runs import RunTier

        keys = CellKeys(self.cells, self.panes, self.index)
        self._runs = RunTier(
            self.ctx,
            keys,
            self.tables,
            drop=self.evicted,
            nbytes=self.live_bytes,
            leading=len(self.panes.types),
        )
        return self._runs

    @property
    def runs(self) -> RunTier | None:
        """The panes on disk; None if the space never evicts."""
        return self._runs

    def __len__(self) -> int:
        """The number of cells in memory."""
        return len(self.cells)

    @property
    def high(self) -> int:
        return self.cells.high

    @property
    def live(self) -> dict[int, Pane]:
        """Pane id → pane, for all panes with cells in memory or on disk."""
        self.given.finish()
        return self._live

    def live_bytes(self) -> int:
        own = 8 * len(self.cells) + PANE_BYTES * len(self._live)
        return super().live_bytes() + self.cells.live_bytes + own

    # -- cells ---------------------------------------------------------------------------

    def upsert(self, columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
        """As ``KeySpace.upsert``, for cells. ``columns``: those of the key, then those of the pane."""
        k = len(self.index.types)
        key_slots, _ = self.index.upsert(columns[:k], n)
        self.uses = grown(self.uses, self.index.high)
        if len(self.panes.types) == 1:
            pane_ids, fresh = self.panes.upsert_ints(columns[k].values)
        else:
            pane_ids, fresh = self.panes.upsert(columns[k:], n)
        if len(fresh):
            names = zip(*(c.values.tolist() for c in self.panes.keys(fresh)), strict=True)
            for pane_id, run in zip(fresh.tolist(), names, strict=True):
                self._live[pane_id] = self._make_pane(pane_id, run)
        cells, new = self.cells.upsert_ints(packed(key_slots, pane_ids))
        if len(new):
            self._enlist(new)
        return cells, new

    def find(self, columns: Sequence[Column], n: int) -> np.ndarray:
        k = len(self.index.types)
        key_slots, pane_ids = self.index.lookup(columns[:k], n), self.panes.lookup(columns[k:], n)
        known = np.flatnonzero((key_slots >= 0) & (pane_ids >= 0))
        found = np.full(n, -1, np.int64)
        found[known] = self.cells.lookup_ints(packed(key_slots[known], pane_ids[known]))
        return found

    def _in_use(self, start: int, stop: int) -> np.ndarray:
        return self.cells.in_use(start, stop)

    def _addressed(self, keys: Sequence[Column], n: int) -> tuple[Sequence[Column], int]:
        runs = np.array([pane.run for pane in self._live.values()], np.int64)
        runs = runs.reshape(-1, len(self.panes.types))
        own = np.tile(np.arange(n), len(runs))
        panes = [Column(_LONG, np.repeat(runs[:, i], n)) for i in range(runs.shape[1])]
        return [*(c.take(own) for c in keys), *panes], len(own)

    def _disk_columns(self, columns: Sequence[Column]) -> Sequence[Column]:
        k = len(self.index.types)
        return [*columns[k:], *columns[:k]]

    def _enlist(self, new: np.ndarray) -> None:
        """Adds cells to their panes, and counts them for their keys."""
        found = self.cells.ints(new)
        np.add.at(self.uses, key_of(found), 1)
        of = pane_of(found)
        order = stable_argsort(of)
        bounds = group_bounds(of[order])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            chosen = order[low:high]
            self._live[int(of[chosen[0]])].add(new[chosen])

    def keys_and_panes(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(key slot, pane id) of each cell."""
        found = self.cells.ints(cells)
        return key_of(found), pane_of(found)

    def keys(self, slots: np.ndarray) -> list[Column]:
        """The key columns of cells, without those of the pane."""
        return self.index.keys(key_of(self.cells.ints(slots)))

    def free(self, slots: np.ndarray) -> None:
        key_slots, pane_ids = self.keys_and_panes(slots)
        self._free_rows(slots)
        self.cells.free(slots)
        np.subtract.at(self.uses, key_slots, 1)
        self.free_unused(key_slots)
        ids, counts = np.unique(pane_ids, return_counts=True)
        for pane_id, n in zip(ids.tolist(), counts.tolist(), strict=True):
            self._live[pane_id].left(n, self.cells)

    def drop_panes(self, panes: Sequence[Pane]) -> None:
        """Removes panes with all their cells, in memory and on disk."""
        for pane in panes:
            cells = pane.cells(self.cells)
            key_slots = key_of(self.cells.ints(cells))
            self._free_rows(cells)
            self.cells.free(cells)
            # A pane has each key once, so no index occurs twice here.
            self.uses[key_slots] -= 1
            self.index.free(key_slots[self.uses[key_slots] == 0])
            del self._live[pane.id]
            if self._runs is not None:
                self._runs.forget(pane.run)
        self.panes.free(np.array([pane.id for pane in panes], np.int64))

    # -- snapshots -----------------------------------------------------------------------

    def split(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        key_slots, pane_ids = self.keys_and_panes(slots)
        return self.index.keys(key_slots), self.panes.keys(pane_ids)

    def stored_keys(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        k = len(self.index.types)
        return list(columns[:k]), list(columns[k:])

    @property
    def stored_types(self) -> list[LogicalType]:
        return [*self.index.types, *self.panes.types]

    def _extends(self) -> bool:
        return False
