"""Ordered lists of rows per partition: the state of Top-N and of the upsert materialiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import LateRows
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import position_in_group, stable_argsort
from penstock.columnar.store import grown
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.slot_table import SlotTable
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.state.key_space import KeySpace
    from penstock.state.slot_table import Parsed
    from penstock.state.tables import Later
    from penstock.types.logical import Schema

_LONG = t.BigIntType(False)


@dataclass(slots=True)
class Gathered:
    """The stored and the new rows of the partitions in a batch.

    ``partitions``: partition slot of each row. ``entries``: entry of each row, -1 for a new row.
    ``columns``: the rows. Within a partition stored rows come first, in their order, then new rows in
    order of arrival.
    """

    partitions: np.ndarray
    entries: np.ndarray
    columns: list[Column]

    def take(self, indices: np.ndarray) -> Gathered:
        """The rows at ``indices``."""
        return Gathered(
            self.partitions[indices], self.entries[indices], [c.take(indices) for c in self.columns]
        )


class RankedRows(SlotTable):
    """Rows by partition, each with its place in the order of the partition.

    ``keys``: the partition's columns of ``schema``, as a snapshot has them. ``columns``: the columns of
    the index in its order (None: the same).
    """

    def __init__(
        self,
        space: KeySpace,
        name: str,
        schema: Schema,
        keys: Sequence[int],
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            space, name, names=[*(f"{i}.{x}" for i, x in enumerate(schema.names)), "place"],
            types=[*schema.types, _LONG],
        )  # fmt: skip
        self.rows = LateRows(schema.types, space.upkeep)
        self._row_types, self._key_columns = schema.types, list(keys)
        self._index_columns = list(keys if columns is None else columns)
        self._map = MultiMap()
        self.partition_of = np.full(1024, -1, np.int64)
        self.place = np.zeros(1024, np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def live_bytes(self) -> int:
        return self.rows.live_bytes + self._map.live_bytes + 28 * len(self.rows)

    # -- as a table ----------------------------------------------------------------------

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See ``SlotTable``. Sorted by (position of the partition, place)."""
        at, entries = self._map.probe(keys)
        places = self.place[entries]
        if ((places[1:] > places[:-1]) | (at[1:] != at[:-1])).all():
            return at, entries
        order = stable_argsort(places)
        order = order[stable_argsort(at[order])]
        return at[order], entries[order]

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self.partition_of[rows]

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self.rows.take_some(rows, self._key_columns), []

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self.rows.take(rows), Column(_LONG, self.place[rows])]

    def later(self, rows: np.ndarray) -> list[Column | Later]:
        return [*self.rows.take_later(rows), Column(_LONG, self.place[rows])]

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        k = len(self._key_columns)
        columns, n = restored_columns(blocks, [*(self._row_types[i] for i in self._key_columns), *self.types])
        rows = columns[k:]
        return [rows[i] for i in self._index_columns], rows, n

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        return self.add(keys, columns[:-1], columns[-1].values)

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.remove(rows)

    # -- rows ----------------------------------------------------------------------------

    def gather(self, touched: np.ndarray, partitions: np.ndarray, columns: Sequence[Column]) -> Gathered:
        """The stored rows of the partitions ``touched``, and the new rows, sorted by partition."""
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
        """Stores new rows, and returns their entries."""
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
        """Gives stored rows other places."""
        moved = self.place[entries] != places
        if moved.any():
            entries, places = entries[moved], places[moved]
            self.changes.write(entries)
            self.place[entries] = places

    def remove(self, entries: np.ndarray) -> None:
        """Removes stored rows."""
        if not len(entries):
            return
        self.changes.free(entries)
        self.partition_of[entries] = -1
        self._map.remove(entries)
        self.rows.free(entries)


def cancelled(
    gathered: Gathered, signs: np.ndarray, identity: Sequence[int] | None, *, newest_first: bool = False
) -> tuple[np.ndarray, int]:
    """(mask of rows that remain after retractions, number of retractions without a row).

    A retraction cancels the first (or newest) row of its partition that is equal to it in the ``identity``
    columns (None: all). ``signs``: +1 or -1 for each row.
    """
    n = len(signs)
    columns = gathered.columns if identity is None else [gathered.columns[i] for i in identity]
    index = KeyIndex([_LONG, *(c.type.with_nullable(True) for c in columns)])
    ids, _ = index.upsert([Column(_LONG, gathered.partitions), *columns], n)
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
