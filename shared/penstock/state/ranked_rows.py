"""Ordered lists of rows per partition: the state of Top-N and of the upsert materialiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import GARBAGE_ROWS, LateRows
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import position_in_group, stable_argsort
from penstock.columnar.store import grown
from penstock.state.cold_tier import MovableTable, make_changes
from penstock.state.tables import StateTable
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.columnar.late_rows import LateColumn
    from penstock.state.context import StateContext
    from penstock.types.logical import LogicalType


@dataclass(slots=True)
class Gathered:
    """Stored and new rows of the partitions a batch touches.

    ``partitions``: slot of each row; ``entries``: its entry, -1 for a new row;
    ``columns``: the rows. Within a partition stored rows come first, in their order, then
    new ones in order of arrival.
    """

    partitions: np.ndarray
    entries: np.ndarray
    columns: list[Column]

    def take(self, indices: np.ndarray) -> Gathered:
        return Gathered(
            self.partitions[indices], self.entries[indices], [c.take(indices) for c in self.columns]
        )


class RankedRows:
    """Rows by partition slot, each with its place in the partition's order. ``changes``: the
    rows' changes, by entry; ``evicts``: a partition's rows may be moved to the disk."""

    def __init__(self, types: Sequence[LogicalType], ctx: StateContext, *, evicts: bool) -> None:
        self.types = list(types)
        self.rows = LateRows(types, *((GARBAGE_ROWS,) if evicts else ()))
        self.changes = make_changes(ctx, evicts=evicts)
        self._map = MultiMap()
        self.partition_of = np.full(1024, -1, np.int64)
        self.place = np.zeros(1024, np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self._map.nbytes + self.place.nbytes

    @property
    def live_bytes(self) -> int:
        """``nbytes`` without room that is free."""
        return self.rows.live_bytes + self._map.live_bytes + 28 * len(self.rows)

    def gather(self, touched: np.ndarray, partitions: np.ndarray, columns: Sequence[Column]) -> Gathered:
        """The stored rows of the touched partitions, and new rows, sorted by partition."""
        _, entries = self._map.probe(touched)
        entries = entries[stable_argsort(self.place[entries])]
        of = np.concatenate((self.partition_of[entries], partitions))
        merged = columns
        if len(entries):
            stored = self.rows.take(entries)
            merged = [Column.concat([a, b.cast_type(a.type)]) for a, b in zip(stored, columns, strict=True)]
        order = stable_argsort(of)
        all_entries = np.concatenate((entries, np.full(len(partitions), -1, np.int64)))
        return Gathered(of[order], all_entries[order], [c.take(order) for c in merged])

    def add(self, partitions: np.ndarray, columns: Sequence[Column], places: np.ndarray) -> np.ndarray:
        """Store new rows; returns their entries."""
        n = len(partitions)
        entries = self.rows.append(columns, n)
        self.changes.write(entries)
        high = self.rows.slots.high
        self.partition_of = grown(self.partition_of, high, -1)
        self.place = grown(self.place, high)
        self.partition_of[entries], self.place[entries] = partitions, places
        self._map.add(partitions, entries)
        return entries

    def move(self, entries: np.ndarray, places: np.ndarray) -> None:
        """Give stored rows other places."""
        moved = self.place[entries] != places
        if moved.any():
            entries, places = entries[moved], places[moved]
            self.changes.write(entries)
            self.place[entries] = places

    def remove(self, entries: np.ndarray) -> None:
        if not len(entries):
            return
        self.changes.free(entries)
        self.partition_of[entries] = -1
        self._map.remove(entries)
        self.rows.free(entries)

    def of(self, partitions: np.ndarray) -> np.ndarray:
        """Entries of partitions, by (partition's position, place)."""
        return self.placed(partitions)[1]

    def placed(self, partitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(partition's position, entry) pairs by (partition's position, place)."""
        rows, entries = self._map.probe(partitions)
        places = self.place[entries]
        if ((places[1:] > places[:-1]) | (rows[1:] != rows[:-1])).all():
            return rows, entries
        order = stable_argsort(places)
        order = order[stable_argsort(rows[order])]
        return rows[order], entries[order]

    def partition_slots(self, entries: np.ndarray) -> np.ndarray:
        return self.partition_of[entries]

    def movable(self, load: Callable[[np.ndarray, list[Column]], np.ndarray]) -> MovableTable:
        """The rows as they go to the disk and come back: with their places."""
        return MovableTable(
            self.changes, [*self.types, _long()], self.placed, load=load,
            read=lambda entries: [*self.rows.take(entries), Column(_long(), self.place[entries])],
        )  # fmt: skip

    def state_table(
        self, keys: Sequence[int], names: Sequence[str], kind: str, parallelism: int, *, name: str = "rows"
    ) -> StateTable:
        """Rows and places, keyed by columns ``keys``. ``parallelism``: the greatest."""

        def read(entries: np.ndarray) -> tuple[list[Column], list[Column | LateColumn]]:
            place = Column(_long(), self.place[entries])
            return self.rows.take_some(entries, keys), [*self.rows.take_later(entries), place]

        labels = [f"key{i}" for i in range(len(keys))]
        labels += [f"{i}.{name}" for i, name in enumerate(names)]
        return StateTable(
            name, read, names=[*labels, "place"], kind=kind, max_parallelism=parallelism,
            changes=self.changes,
        )  # fmt: skip


def cancelled(
    gathered: Gathered, signs: np.ndarray, identity: Sequence[int] | None, *, newest_first: bool = False
) -> tuple[np.ndarray, int]:
    """(mask of rows that stand after retractions, retractions that met no row).

    A retraction takes the first (or newest) row equal to it in the ``identity`` columns
    (None = all) of its partition.
    """
    n = len(signs)
    columns = gathered.columns if identity is None else [gathered.columns[i] for i in identity]
    index = KeyIndex([_long(), *(c.type.with_nullable(True) for c in columns)])
    ids, _ = index.upsert([Column(_long(), gathered.partitions), *columns], n)
    takes = np.bincount(ids[signs < 0], minlength=index.high)
    adds = np.flatnonzero(signs > 0)
    if newest_first:
        adds = adds[::-1]
    order = adds[stable_argsort(ids[adds])]
    position = position_in_group(ids[order])
    stands = np.zeros(n, np.bool_)
    stands[order[position >= takes[ids[order]]]] = True
    have = np.bincount(ids[adds], minlength=index.high)
    return stands, int(np.maximum(takes - have, 0).sum())


def _long() -> LogicalType:
    from penstock.types.logical import BigIntType

    return BigIntType(False)
