"""Cells: columns by slot number, in which a ``CellTable`` keeps one row for each key.

The accumulators of an ``AggregateSet`` are cells as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.columnar.store import grown, make_store
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType


class Cells(Protocol):
    """Columns by slot number. ``partial_types`` and ``partial_names``: types and names of the columns in a
    snapshot."""

    @property
    def partial_types(self) -> list[LogicalType]: ...

    @property
    def partial_names(self) -> list[str]: ...

    def reset(self, slots: np.ndarray, high: int) -> None:
        """Makes ``slots`` empty. ``high``: one above the highest slot number in use."""

    def partials(self, slots: np.ndarray) -> list[Column]:
        """Copies of the columns of ``slots``."""

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        """Writes columns into ``slots``, which were reset before."""

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        """As ``reset`` and ``merge``, for the range ``at`` of new slots."""

    def release(self, slots: np.ndarray) -> None:
        """Frees what is held for ``slots``."""

    def live_bytes(self, slots: int) -> int:
        """Bytes of memory that so many slots in use take."""


class NumberCells:
    """One whole number for each slot.

    ``name`` and ``type_``: of its column in a snapshot; ``initial``: the number of an empty slot.
    """

    def __init__(self, name: str, type_: LogicalType, initial: int = 0) -> None:
        self.partial_names, self.partial_types = [name], [type_]
        self._initial = initial
        #: int64 by slot number; it reaches to the highest slot that was reset.
        self.values = np.full(1024, initial, np.int64)

    def reset(self, slots: np.ndarray, high: int) -> None:
        """``slots`` are new and start empty; ``high``: one above the highest slot."""
        self.values = grown(self.values, high, self._initial)
        self.values[slots] = self._initial

    def partials(self, slots: np.ndarray) -> list[Column]:
        """The columns of ``slots`` as a snapshot has them."""
        return [Column(self.partial_types[0], self.values[slots])]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        """Overwrite ``slots`` with ``partials``, columns as a snapshot has them."""
        self.values[slots] = partials[0].values

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        """Fill the range ``at`` of new slots with ``partials``, columns as a snapshot has them."""
        self.values = grown(self.values, at.stop, self._initial)
        self.values[at] = partials[0].values

    def release(self, slots: np.ndarray) -> None:
        """Does nothing: all data is in the array."""

    def live_bytes(self, slots: int) -> int:
        """Bytes of that many ``slots``, without room that is free."""
        return 8 * slots


class RowCells:
    """One row with the given columns for each slot."""

    def __init__(self, names: Sequence[str], types: Sequence[LogicalType]) -> None:
        self.partial_names, self.partial_types = list(names), list(types)
        self._stores: list[Any] = [make_store(x) for x in types]
        self._empty = [Column.nulls(x, 0) for x in types]
        self._high = 0

    def reset(self, slots: np.ndarray, high: int) -> None:
        if high > self._high:
            self._high = high
            for store, none in zip(self._stores, self._empty, strict=True):
                store.put(_NONE, none, high)

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [store.take(slots) for store in self._stores]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        for store, column in zip(self._stores, partials, strict=True):
            store.put(slots, column, self._high)

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        slots = np.arange(at.start, at.stop)
        self.reset(slots, at.stop)
        self.merge(slots, partials)

    def release(self, slots: np.ndarray) -> None:
        for store in self._stores:
            store.clear(slots)

    def live_bytes(self, slots: int) -> int:
        return int(slots * sum(store.row_bytes for store in self._stores))


_NONE = np.empty(0, np.int64)
