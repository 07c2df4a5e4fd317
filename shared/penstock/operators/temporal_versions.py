"""The settled versions of a temporal join: for each key the newest version below the watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.cells import RowCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import CellTable
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from penstock.state.context import StateContext
    from penstock.types.column import Column
    from penstock.types.logical import Schema


class SettledVersions:
    """One row of ``schema`` per key. Keys that were not used lately are on disk when memory is short.

    ``slots_of`` allocates slots for unknown keys; ``sweep`` frees those that got no version.
    """

    def __init__(self, ctx: StateContext, schema: Schema, keys: Sequence[int]) -> None:
        self._schema = schema
        types = [schema.types[i].with_nullable(True) for i in keys]
        self.keys = KeySpace(ctx, types, kind="temporal-join")
        rows = RowCells([f"{i}.{name}" for i, name in enumerate(schema.names)], schema.types)
        self._rows = CellTable(self.keys, "settled", [rows])

    def __len__(self) -> int:
        """The number of keys in memory and on disk."""
        return len(self.keys) + self.keys.on_disk

    def slots_of(self, keys: Sequence[Column], n: int) -> np.ndarray:
        """The slots of keys. Their versions stay in memory until ``make_room``."""
        slots, made = self.keys.upsert(keys, n)
        self.keys.fetch(made)
        self.keys.tier.used(slots)
        return slots

    def take(self, slots: np.ndarray) -> tuple[Batch, np.ndarray]:
        """(the versions of those distinct slots that have one, these slots)."""
        held = slots[self._rows.changes.holds(slots)]
        return Batch(self._schema, self._rows.read(held), num_rows=len(held)), held

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Store new versions of distinct slots."""
        self._rows.put(slots, columns)

    def forget(self, slots: np.ndarray) -> None:
        """Remove the versions of distinct slots."""
        held = slots[self._rows.changes.holds(slots)]
        self._rows.free(held, held)

    def sweep(self, slots: np.ndarray) -> None:
        """Free those of the distinct slots that have no version."""
        self.keys.index.free(slots[~self._rows.changes.holds(slots)])

    def make_room(self, fresh: int) -> None:
        """Evict keys to disk if memory is short; ``fresh`` is the number of keys that were added."""
        self.keys.tier.make_room(fresh)
