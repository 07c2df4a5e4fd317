"""Columns by slot: what a ``CellTable`` keeps one row a key in.

An ``AggregateSet`` is such columns, too: its accumulators' partial results.
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
    """``partial_types``, ``partial_names``: of the columns as a snapshot has them."""

    @property
    def partial_types(self) -> list[LogicalType]: ...

    @property
    def partial_names(self) -> list[str]: ...

    def reset(self, slots: np.ndarray, high: int) -> None:
        """Make the slots empty; ``high``: one above the highest slot of all."""

    def partials(self, slots: np.ndarray) -> list[Column]:
        """Copies of the slots' columns."""

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        """Put columns into slots that were reset."""

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        """``reset`` and ``merge`` of slots that are all new, one behind the other."""

    def release(self, slots: np.ndarray) -> None:
        """The slots are freed: give up what they hold."""

    def live_bytes(self, slots: int) -> int:
        """Bytes of so many slots, without room that is free."""


class NumberCells:
    """One whole number for each slot.

    ``name`` and ``type_``: of its column in a snapshot; ``initial``: the number of an empty slot.
    """

    def __init__(self, name: str, type_: LogicalType, initial: int = 0) -> None:
        self.partial_names, self.partial_types = [name], [type_]
        self._initial = initial
        #: int64 by slot; as long as the highest slot that was reset.
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
        """Nothing is held outside of the array."""

    def live_bytes(self, slots: int) -> int:
        """Bytes of that many ``slots``, without room that is free."""
        return 8 * slots


class RowCells:
    """A row of the given columns a slot."""

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
