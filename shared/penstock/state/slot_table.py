"""Rows by slot: one named keyed state of an operator.

A ``SlotTable`` belongs to a ``KeySpace``, which fetches, evicts, cuts, restores and frees it.
``CellTable`` has one row a key, in columns; other tables have many rows a key and say which
those are. A row's key is never kept twice: the table says under which key slot a row lies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct_slots
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import make_changes
from penstock.state.keyed_state import StateRows
from penstock.state.tables import StateTable
from penstock.state.touched import Touched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    import pyarrow as pa

    from penstock.columnar.accumulators import EntryTable
    from penstock.state.aggregates import AggregateSet
    from penstock.state.cells import Cells
    from penstock.state.key_space import KeySpace
    from penstock.state.row_changes import RowChanges
    from penstock.state.tables import Cut, Later
    from penstock.state.time_to_live import TimeToLive
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

    #: (key columns, the columns of the rows, rows) of a block of a snapshot.
    Parsed = tuple[list[Column], list[Column], int]


class SlotTable(ABC):
    """Columns addressed by slot number: one kind of row of an operator's keys.

    Only the table itself and its space announce changes: ``changes`` is told of every row before it changes.
    ``times``: when each row was last touched (ms since the epoch), or any time at or above 0 by which its key is found on
    disk; None where rows have none. ``touched`` is told the times of rows that came back from the disk.

    Args:
        space: The keys.
        name: Name of the state in snapshots.
        names: Names of a row's columns there, behind those of its key.
        types: Types of these columns.
        timed: Rows follow the time to live of their keys.
    """

    #: ``load`` puts what it is given into order: it must be given all rows of a key at once.
    ordered = False
    #: Another table of the space frees these rows with its own.
    owned = False

    def __init__(
        self,
        space: KeySpace,
        name: str,
        *,
        names: Sequence[str],
        types: Sequence[LogicalType],
        timed: bool = True,
    ) -> None:
        self.space, self.name, self.types = space, name, list(types)
        self.changes = make_changes(space.ctx, evicts=space.evicts)
        self.times: Callable[[np.ndarray], np.ndarray] | None = None
        self.touched: Callable[[np.ndarray, np.ndarray], None] | None = None
        #: Of its rows, where each expires by itself.
        self.rows_to_live: TimeToLive | None = None
        if timed and space.ttl.ttl_ms:
            self.times, self.touched = self._key_times, self._key_came_back
        self._stored_as = StateTable(
            name, self._stored_later, names=[*space.names, *names], kind=space.kind,
            max_parallelism=space.ctx.max_parallelism, changes=self.changes,
        )  # fmt: skip
        space.add(self)

    @abstractmethod
    def __len__(self) -> int:
        """Rows in memory."""

    @property
    @abstractmethod
    def live_bytes(self) -> int:
        """Bytes of the rows in memory, without room that is free."""

    @abstractmethod
    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position of the key, row) pairs of distinct key slots by position, a key's rows in an
        order that ``load`` will meet again."""

    @abstractmethod
    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        """Key slot of each row."""

    @abstractmethod
    def read(self, rows: np.ndarray) -> list[Column]:
        """Copies of the rows' columns, of ``types``."""

    @abstractmethod
    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """Put rows back, with the key slot of each in ``keys``; the rows made. They are announced as new ones.

        ``columns``: of ``types``.
        """

    def reload(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """``load`` of rows of a snapshot: ``keys`` in any order, a key's rows in several pieces; ``columns``: of ``types``."""
        return self.load(keys, columns)

    def make(self, keys: np.ndarray) -> None:  # noqa: B027 - most keep nothing by key
        """These key slots are new: whatever the table keeps by key starts empty."""

    @abstractmethod
    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Announce that the rows go, and give them up. ``keys``: key slot of each."""

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        """(key columns, columns between these and the row's) as a snapshot has them."""
        return self.space.split(self.keys_of(rows))

    def later(self, rows: np.ndarray) -> Sequence[Column | Later]:
        """``read`` for a snapshot: columns of rows that never change may be copied later."""
        return self.read(rows)

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        """Blocks of a snapshot as keys of the space's index and rows for ``load``."""
        stored = self.space.stored_types
        columns, n = restored_columns(blocks, [*stored, *self.types])
        return self.space.of_stored(columns[: len(stored)]), columns[len(stored) :], n

    def cut(self) -> Cut:
        """The rows, or what changed, at this moment; nothing is copied yet."""
        return self._stored_as.cut()

    @property
    def numbered(self) -> RowChanges:
        """``changes`` of a table whose rows may go to the disk."""
        return self.changes  # type: ignore[return-value]  # of ``make_changes``

    def stored(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        """(key columns, others) of rows in memory as a snapshot has them."""
        keys, head = self.stored_key(rows)
        return keys, [*head, *self.read(rows)]

    def exported(self, keys: Sequence[Column], others: Sequence[Column]) -> StateRows:
        """Rows as ``KeyedState.export`` gives them, from their ``keys`` and their ``others``, the columns behind the keys."""
        return StateRows(self.name, *self._stored_as.rows(keys, others), len(keys))

    def _stored_later(self, rows: np.ndarray) -> tuple[list[Column], list[Column | Later]]:
        keys, head = self.stored_key(rows)
        return keys, [*head, *self.later(rows)]

    def _key_times(self, rows: np.ndarray) -> np.ndarray:
        return self.space.ttl.times(self.keys_of(rows))

    def _key_came_back(self, rows: np.ndarray, times: np.ndarray) -> None:
        self.space.ttl.came_back(self.keys_of(rows), times)


class CellTable(SlotTable):
    """One row for each key, in columns by the key's slot.

    ``space``: the keys; ``name``: of the state in snapshots; ``parts``: the cells, whose columns follow one another in a
    snapshot. Every change of a row goes through ``touch``, ``compare`` or ``put``.
    """

    def __init__(self, space: KeySpace, name: str, parts: Sequence[Cells]) -> None:
        super().__init__(
            space, name, names=[x for p in parts for x in p.partial_names],
            types=[x for p in parts for x in p.partial_types],
        )  # fmt: skip
        self._parts = list(parts)

    def __len__(self) -> int:
        return len(self.space)

    @property
    def live_bytes(self) -> int:
        n = len(self.space)
        return 12 * n + sum(part.live_bytes(n) for part in self._parts)

    def touch(self, columns: Sequence[Column], n: int) -> CellsTouched:
        """``with table.touch(columns, n) as cells``: change the rows of ``n`` keys, given as key ``columns``; see ``CellsTouched``."""
        return CellsTouched(self, columns, n)

    def compare(self, columns: Sequence[Column], n: int) -> CellsCompared:
        """As ``touch``, for ``n`` rows with key ``columns``, and it knows the old rows; see ``CellsCompared``."""
        return CellsCompared(self, columns, n)

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Overwrite the rows of distinct ``slots`` with ``columns``."""
        self.changes.write(slots)
        self._merge(slots, columns)

    def make(self, keys: np.ndarray) -> None:
        for part in self._parts:
            part.reset(keys, self.space.high)

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(keys)), keys

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def read(self, rows: np.ndarray) -> list[Column]:
        return [c for part in self._parts for c in part.partials(rows)]

    def load(self, keys: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self.put(keys, columns)
        return keys

    def extend(self, at: slice, columns: Sequence[Column]) -> None:
        """``load`` of the new slots in the range ``at``, which follow one another; ``columns``: of ``types``."""
        self.changes.write(np.arange(at.start, at.stop))
        start = 0
        for part in self._parts:
            stop = start + len(part.partial_types)
            part.load(at, columns[start:stop])
            start = stop

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.changes.free(rows)
        for part in self._parts:
            part.release(rows)

    def _merge(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        start = 0
        for part in self._parts:
            stop = start + len(part.partial_types)
            part.merge(slots, columns[start:stop])
            start = stop


class CellsTouched(Touched):
    """Cells that are about to change: they are in memory, announced, and new ones are empty."""

    __slots__ = ("_table",)

    def __init__(self, table: CellTable, columns: Sequence[Column], n: int) -> None:
        super().__init__(table.space, columns, n)
        self._table = table

    def __enter__(self) -> Self:
        super().__enter__()
        self._announce()
        return self

    def _announce(self) -> None:
        self._table.changes.write(self.slots)


class CellsCompared(CellsTouched):
    """Cells whose rows before and after the block are compared. ``touched``: their slots, each
    once, ascending; ``had``: mask of those that there were before."""

    __slots__ = ("had", "touched")

    def _announce(self) -> None:
        changes = self._table.changes
        self.touched = distinct_slots(self.slots, self._space.high)
        self.had = changes.holds(self.touched)
        changes.write(self.touched)

    def _pinned(self) -> np.ndarray:
        return self.touched


class ValueTable(SlotTable):
    """The many rows (*entries*) that an accumulator has of a cell; it announces them itself."""

    owned = True

    def __init__(self, space: KeySpace, name: str, entries: EntryTable) -> None:
        super().__init__(
            space, name, names=[f"value{j}" for j in range(len(entries.types))], types=entries.types,
            timed=False,
        )  # fmt: skip
        self._entries = entries
        self.ordered = entries.ordered
        entries.changes = self.changes

    def __len__(self) -> int:
        return len(self.changes.live())

    @property
    def live_bytes(self) -> int:
        """The accumulator counts them."""
        return 0

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        entries = self._entries.entries_of(keys)
        order = np.argsort(keys)
        return order[np.searchsorted(keys, self._entries.slots_of(entries), sorter=order)], entries

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self._entries.slots_of(rows)

    def read(self, rows: np.ndarray) -> list[Column]:
        return self._entries.read(rows)

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        return self._entries.load(keys, columns)

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        raise AssertionError("the cells that own these entries free them")


def aggregate_cells(space: KeySpace, aggregates: AggregateSet, *parts: Cells) -> CellTable:
    """The table of ``aggregates`` by key slot, with further columns before theirs; and of what
    they remember of each cell."""
    cells = CellTable(space, "cells", [*parts, aggregates])
    for name, entries in aggregates.remembered():
        ValueTable(space, name, entries)
    return cells
