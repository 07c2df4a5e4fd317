"""The panes of a window aggregation and their cells, one per key and pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.columnar.key_index import KeyIndex
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

_PANE_BITS = 32
_PANE_MASK = (1 << _PANE_BITS) - 1
#: What a pane takes beside its cells.
PANE_BYTES = 400
#: Cells that left a pane for the disk and are still listed, before the list is cleaned.
_LOOSE = 1_024
_NONE = np.empty(0, np.int64)


def packed(key_slots: np.ndarray, pane_ids: np.ndarray | int) -> np.ndarray:
    """A cell's key in its index."""
    return (key_slots << _PANE_BITS) | pane_ids


def key_of(cells: np.ndarray) -> np.ndarray:
    """Key slots of packed cells."""
    return cells >> _PANE_BITS


def pane_of(cells: np.ndarray) -> np.ndarray:
    return cells & _PANE_MASK


class Pane:
    """``start``; ``end`` of the pane; ``last_end`` of the windows that hold it; its cells in
    memory as a list of slot arrays."""

    __slots__ = ("_cells", "_listed", "_loose", "end", "id", "last_end", "start")

    def __init__(self, id_: int, start: int, end: int, last_end: int) -> None:
        self.id, self.start, self.end, self.last_end = id_, start, end, last_end
        self._cells: list[np.ndarray] = []
        self._listed = self._loose = 0

    def add(self, cells: np.ndarray) -> None:
        self._cells.append(cells)
        self._listed += len(cells)

    def cells(self, index: KeyIndex) -> np.ndarray:
        """All of them, each once. ``index``: of all cells."""
        if self._loose:
            self._clean(index)
        elif len(self._cells) > 1:
            self._cells = [np.concatenate(self._cells)]
        return self._cells[0] if self._cells else _NONE

    def left(self, n: int, index: KeyIndex) -> None:
        """So many cells were freed that are listed here."""
        self._loose += n
        if self._loose > max(_LOOSE, self._listed // 2):
            self._clean(index)

    def _clean(self, index: KeyIndex) -> None:
        # A slot may be in use again, for another pane or for this one a second time.
        cells = distinct(np.concatenate(self._cells))
        mine = index.in_use(0, index.high)[cells] & (pane_of(index.ints(cells)) == self.id)
        cells = cells[mine]
        self._cells, self._listed, self._loose = [cells], len(cells), 0


def run_of(pane: Pane, windowed: bool) -> tuple[int, ...]:
    """What a pane is called on disk: its columns in the state. ``windowed``: it is a window
    that the input carries."""
    return (pane.start, pane.end) if windowed else (pane.start,)


class CellKeys:
    """The index of cells as a cold tier sees it: their keys begin with the pane's."""

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


def dense(key_slots: np.ndarray, high: int) -> tuple[np.ndarray, np.ndarray]:
    """(position of each row's key among the distinct ones, the distinct ones ascending)."""
    if len(key_slots) * 8 < high:
        keys, local = np.unique(key_slots, return_inverse=True)
        return local, keys
    seen = np.zeros(high, np.bool_)
    seen[key_slots] = True
    keys = np.flatnonzero(seen)
    position = np.empty(high, np.int64)
    position[keys] = np.arange(len(keys))
    return position[key_slots], keys


def counted(pane_ids: np.ndarray) -> Iterator[tuple[int, int]]:
    """(pane id, how often it occurs)."""
    ids, counts = np.unique(pane_ids, return_counts=True)
    return zip(ids.tolist(), counts.tolist(), strict=True)
