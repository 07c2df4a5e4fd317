"""The versions of a temporal join that the watermark has passed: the newest of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import make_store
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import (
    ColdTier,
    MovableTable,
    Resident,
    can_evict,
    make_changes,
    one_row_each,
)
from penstock.state.tables import StateTable
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import PendingBlock, RestoredState
    from penstock.types.column import Column
    from penstock.types.logical import Schema


class SettledVersions:
    """Rows of ``schema``, one a key; those that nobody asks for are on disk when memory is
    short. ``slots_of`` makes slots, ``sweep`` gives up those that no version came to."""

    name = "settled"

    def __init__(self, ctx: OperatorContext, schema: Schema, keys: Sequence[int]) -> None:
        self._schema, self._key_columns = schema, list(keys)
        self._keys = KeyIndex([schema.types[i].with_nullable(True) for i in keys])
        self._stores = [make_store(x) for x in schema.types]
        evicts = can_evict(ctx, self._keys.types)
        self._changes = make_changes(ctx, evicts=evicts)
        self._table = StateTable(
            self.name,
            lambda slots: (self._keys.keys(slots), self._take(slots)),
            names=[*(f"key{i}" for i in range(len(keys))), *(f"{i}.{x}" for i, x in enumerate(schema.names))],
            kind="temporal-join",
            max_parallelism=ctx.max_parallelism,
            changes=self._changes,
        )
        table = MovableTable(self._changes, schema.types, one_row_each, read=self._take, load=self._load)
        self._tier = (
            ColdTier(ctx, self._keys, [table], drop=self._keys.free, nbytes=self._nbytes)
            if evicts
            else Resident(ctx, self._nbytes)
        )

    def __len__(self) -> int:
        """Keys in memory and on disk."""
        return len(self._keys) + self._tier.count

    def _nbytes(self) -> int:
        each = 12.0 + sum(s.row_bytes for s in self._stores)
        return self._keys.live_bytes + int(each * len(self._keys))

    def slots_of(self, keys: Sequence[Column], n: int) -> np.ndarray:
        """Slots of some keys, whose versions are in memory then."""
        slots, new = self._keys.upsert(keys, n)
        self._tier.fetch(new)
        self._tier.used(slots)
        return slots

    def take(self, slots: np.ndarray) -> tuple[Batch, np.ndarray]:
        """The versions of distinct slots that hold one, and of which."""
        held = slots[self._changes.holds(slots)]
        return Batch(self._schema, self._take(held), num_rows=len(held)), held

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Newer versions of distinct slots."""
        self._changes.write(slots)
        self._store(slots, columns)

    def forget(self, slots: np.ndarray) -> None:
        """Distinct slots' versions are over."""
        held = slots[self._changes.holds(slots)]
        self._changes.free(held)
        for store in self._stores:
            store.clear(held)

    def sweep(self, slots: np.ndarray) -> None:
        """Give up those of distinct slots that hold no version."""
        self._keys.free(slots[~self._changes.holds(slots)])

    def make_room(self, fresh: int) -> None:
        self._tier.make_room(fresh)

    def close(self) -> None:
        self._tier.close()

    def cut(self) -> PendingBlock:
        return self._table.cut()

    def restore(self, restored: RestoredState) -> None:
        k, types = len(self._key_columns), [*self._keys.types, *self._schema.types]
        for batch in restored.keyed.get(self.name, []):
            columns, n = restored_columns([batch], types)
            if n:
                slots, _ = self._keys.upsert(columns[:k], n)
                self.put(slots, columns[k:])
                self._tier.settle()

    def _take(self, slots: np.ndarray) -> list[Column]:
        return [store.take(slots) for store in self._stores]

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self.put(slots, columns)
        return slots

    def _store(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        for store, column in zip(self._stores, columns, strict=True):
            store.put(slots, column, self._keys.high)
