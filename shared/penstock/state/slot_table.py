"""Rows by slot number: one named keyed state of an operator.

A ``SlotTable`` belongs to a ``KeySpace``, which fetches, evicts, cuts, restores and frees its rows.
``CellTable`` has one row for each key, in columns. Other tables have many rows for a key and tell which
these are. The key of a row is stored once only, in the key space; the table knows the key slot of each
row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct_slots
from penstock.errors import SnapshotError
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

    Only the table itself and its space announce changes: every row is announced to ``changes`` before it
    changes. ``times``: when each row was last touched (ms since 1970), or any time not below 0 by which
    its key is found on disk; None if rows have none. ``touched`` receives the times of rows that came back
    from the disk.

    Args:
        space: The keys.
        name: Name of the state in snapshots.
        names: Names of a row's columns there, after those of its key.
        types: Types of these columns.
        timed: Rows follow the time to live of their keys.
    """

    #: Whether ``load`` orders the rows, and so needs all rows of a key at once.
    ordered = False
    #: Whether another table of the space frees these rows together with its own.
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
        #: The time to live of single rows, if each expires by itself.
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
        """The number of rows in memory."""

    @property
    @abstractmethod
    def live_bytes(self) -> int:
        """Bytes of the rows in memory that are in use."""

    @abstractmethod
    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position of the key in ``keys``, row) for all rows of distinct key slots, sorted by position. The
        rows of a key are in an order that ``load`` accepts again."""

    @abstractmethod
    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        """The key slot of each row."""

    @abstractmethod
    def read(self, rows: np.ndarray) -> list[Column]:
        """Copies of the columns of ``rows``, of ``types``."""

    @abstractmethod
    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """Adds rows that were read before; returns their row numbers. They are announced as new.

        ``keys``: the key slot of each row; ``columns``: of ``types``.
        """

    def reload(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """As ``load`` for rows of a snapshot: ``keys`` are in any order, and the rows of a key may be in
        several pieces; ``columns``: of ``types``."""
        return self.load(keys, columns)

    def make(self, keys: np.ndarray) -> None:  # noqa: B027 - most keep nothing by key
        """Called for key slots that were just made: what the table keeps for a key starts empty."""

    @abstractmethod
    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Announces that the rows are removed, and removes them. ``keys``: the key slot of each."""

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        """(key columns, columns between these and the row's own) in the form of a snapshot."""
        return self.space.split(self.keys_of(rows))

    def later(self, rows: np.ndarray) -> Sequence[Column | Later]:
        """As ``read`` for a snapshot. Columns of rows that never change may be copied later."""
        return self.read(rows)

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        """(key columns for the index of the space, columns for ``load``, number of rows) of blocks of a
        snapshot."""
        stored = self.space.stored_types
        columns, n = restored_columns(blocks, [*stored, *self.types])
        return self.space.of_stored(columns[: len(stored)]), columns[len(stored) :], n

    def cut(self) -> Cut:
        """The rows, or what changed, at this moment. Nothing is copied yet."""
        return self._stored_as.cut()

    @property
    def numbered(self) -> RowChanges:
        """The ``changes`` of a table whose rows may move to the disk."""
        return self.changes  # type: ignore[return-value]  # of ``make_changes``

    def stored(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        """(key columns, other columns) of rows in memory, in the form of a snapshot."""
        keys, head = self.stored_key(rows)
        return keys, [*head, *self.read(rows)]

    def exported(self, keys: Sequence[Column], others: Sequence[Column]) -> StateRows:
        """Rows in the form of ``KeyedState.export``, from their ``keys`` and ``others``, the columns after
        the keys."""
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

    ``space``: the keys. ``name``: of the state in snapshots. ``parts``: the cells, whose columns follow
    one another in a snapshot. Every change of a row goes through ``touch``, ``compare`` or ``put``.
    """

    def __init__(self, space: KeySpace, name: str, parts: Sequence[Cells]) -> None:
        self._names = [x for p in parts for x in p.partial_names]
        super().__init__(
            space, name, names=self._names, types=[x for p in parts for x in p.partial_types]
        )  # fmt: skip
        self._parts = list(parts)

    def __len__(self) -> int:
        return len(self.space)

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        """As ``SlotTable.parsed``.

        Raises:
            SnapshotError: An aggregate had a column and has none now. Without its column it would start anew.
        """
        unknown = {x for b in blocks for x in b.schema.names if x.startswith("agg")} - set(self._names)
        if unknown:
            raise SnapshotError(
                "an aggregate keeps its state in another form than the one that is restored",
                expected="columns " + (", ".join(self._names) or "(none)"),
                got="also " + ", ".join(sorted(unknown)),
                where=f"state '{self.name}'",
                remedy="an older Penstock counted each row for f(DISTINCT a) of a Python function: start without this operator's "
                "state (-n, --allow-non-restored-state, and another uid)",
            )
        return super().parsed(blocks)

    @property
    def live_bytes(self) -> int:
        n = len(self.space)
        return 12 * n + sum(part.live_bytes(n) for part in self._parts)

    def touch(self, columns: Sequence[Column], n: int) -> CellsTouched:
        """``with table.touch(columns, n) as cells``: changes the rows of ``n`` keys, given by the key
        ``columns``; see ``CellsTouched``."""
        return CellsTouched(self, columns, n)

    def compare(self, columns: Sequence[Column], n: int) -> CellsCompared:
        """As ``touch``, for ``n`` rows with key ``columns``, and tells which rows existed before; see
        ``CellsCompared``."""
        return CellsCompared(self, columns, n)

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Overwrites the rows of distinct ``slots`` with ``columns``."""
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
        """As ``load`` for the range ``at`` of new slots; ``columns``: of ``types``."""
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
    """Cells that are about to change. They are in memory and announced; new ones are empty."""

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
    """Cells whose rows before and after the block are compared. ``touched``: their distinct slots, ascending;
    ``had``: mask of those that existed before."""

    __slots__ = ("had", "touched")

    def _announce(self) -> None:
        changes = self._table.changes
        self.touched = distinct_slots(self.slots, self._space.high)
        self.had = changes.holds(self.touched)
        changes.write(self.touched)

    def _pinned(self) -> np.ndarray:
        return self.touched


class ValueTable(SlotTable):
    """The rows (*entries*) that an accumulator has for each cell. The accumulator announces their changes
    itself."""

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
        """0: the accumulator counts them."""
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
    """The table of ``aggregates`` by key slot, with the columns of ``parts`` before theirs; and tables of
    their entries."""
    cells = CellTable(space, "cells", [*parts, aggregates])
    for name, entries in aggregates.remembered():
        ValueTable(space, name, entries)
    return cells
