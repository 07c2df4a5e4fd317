"""The keys of one operator, with everything that the operator keeps for them.

A ``KeySpace`` holds the index of the operator's partition key, the number of uses of each key, and the
tables of rows by key. It does for every keyed operator: eviction to the disk and return, the memory limit,
time to live, cuts, restoring, gauges and closing. ``docs/state.md`` explains how an operator uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import ROOMY, within
from penstock.snapshots.reading import row_count
from penstock.state.cold_tier import ColdTier, Resident, can_evict
from penstock.state.key_groups import GivenAway
from penstock.state.keyed_state import PIECE_ROWS
from penstock.state.slot_table import CellTable
from penstock.state.time_to_live import TimeToLive
from penstock.state.touched import Touched
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock, PendingBlock, RestoredState
    from penstock.state.context import StateContext
    from penstock.state.key_groups import KeyGroups
    from penstock.state.keyed_state import StateRows
    from penstock.state.slot_table import SlotTable
    from penstock.types.logical import LogicalType

#: How many keys that were given away are freed at once: in memory, and on disk (these are brought back to be
#: freed).
_DROP_KEYS, _DROP_COLD_KEYS = 1_024, 32


class KeySpace:
    """The keys of an operator in memory, each with a slot number, and the tables that share them.

    Args:
        ctx: The part of the operator's context that state uses.
        types: Types of the key's columns. Without columns there is one key.
        kind: The kind of operator, for its snapshots.
        names: Names of the key's columns in snapshots; None: ``key0``, ``key1`` …
        ttl_ms: A key that was not written for so many ms is removed with its rows; 0: never.
        evicts: Keys may move to the local disk, if memory has a limit and the keys have canonical bytes.
        counted: Tables count the rows of a key in ``uses``. A key without rows after a batch is removed.

    The tables are made next; then ``restore`` is called once.
    """

    def __init__(
        self,
        ctx: StateContext,
        types: Sequence[LogicalType],
        *,
        kind: str,
        names: Sequence[str] | None = None,
        ttl_ms: int = 0,
        evicts: bool = True,
        counted: bool = False,
    ) -> None:
        self.ctx, self.kind, self.counted = ctx, kind, counted
        self.index = KeyIndex(types)
        self.names = [f"key{i}" for i in range(len(types))] if names is None else list(names)
        #: Key slot → number of rows that refer to the key, if ``counted``.
        self.uses = np.zeros(1024, np.int64)
        self.ttl = TimeToLive(ttl_ms, ctx)
        self.evicts = evicts and can_evict(ctx, self._canonical(types))
        #: Of rows that a table keeps in the batches in which they came.
        self.upkeep = within(ctx.memory.limit_bytes) if self.evicts else ROOMY
        self.tables: list[SlotTable] = []
        #: The key groups that have been given to another subtask.
        self.given = GivenAway(ctx.max_parallelism, self._sweep, where=ctx.name)
        self.tier = self._make_tier()
        ctx.metrics.gauge("numKeysInState", lambda: len(self.index))
        ctx.metrics.gauge("stateBytes", self.live_bytes)

    def _canonical(self, types: Sequence[LogicalType]) -> Sequence[LogicalType]:
        """The types of those key columns that need canonical bytes on disk."""
        return types

    def _make_tier(self) -> Resident:
        if not self.evicts:
            return Resident(self.ctx, self.live_bytes)
        return ColdTier(self.ctx, self.index, self.tables, drop=self.evicted, nbytes=self.live_bytes)

    def add(self, table: SlotTable) -> None:
        """Adds a table. Tables that it owns are added after it."""
        self.tables.append(table)

    def __len__(self) -> int:
        """The number of keys in memory."""
        return len(self.index)

    @property
    def high(self) -> int:
        """One above the highest slot number ever used."""
        return self.index.high

    @property
    def on_disk(self) -> int:
        """The number of keys on disk."""
        return self.tier.count

    @property
    def copying(self) -> bool:
        """Whether a cut is still being copied. Freeing many rows now would copy them all at once."""
        return any(table.changes.copying for table in self.tables)

    @property
    def state_names(self) -> list[str]:
        """The names of its tables, which are the names of their states in snapshots."""
        return [table.name for table in self.tables]

    def live_bytes(self) -> int:
        """Bytes of keys and rows in memory that are in use."""
        each = 8 + (8 if self.ttl.ttl_ms else 0)
        return self.index.live_bytes + each * len(self.index) + sum(t.live_bytes for t in self.tables)

    # -- keys ----------------------------------------------------------------------------

    def touch(self, columns: Sequence[Column], n: int) -> Touched:
        """``with space.touch(columns, n) as keys``: works on the keys of ``n`` rows with the key columns
        ``columns``; see ``Touched``. Raises InternalError if a key was given away."""
        return Touched(self, columns, n)

    def upsert(self, columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
        """(slot of each row's key, slots that were just made) for ``n`` rows with the key ``columns``. The
        caller passes the latter to ``fetch``."""
        return self.index.upsert(columns, n)

    def fetch(self, made: np.ndarray) -> np.ndarray:
        """Prepares slots that were just made: they are empty, or their rows come back from the disk. Returns
        those whose key had no row anywhere."""
        if not len(made):
            return made
        self._made(made)
        for table in self.tables:
            table.make(made)
        return self.tier.fetch(made)

    def _made(self, slots: np.ndarray) -> None:
        """Called for slots that were just made."""

    def keys(self, slots: np.ndarray) -> list[Column]:
        """The key columns of ``slots``."""
        return self.index.keys(slots)

    def use(self, slots: np.ndarray, times: np.ndarray | int = 1) -> None:
        """Records that ``times`` more rows refer to the keys in ``slots`` (repeats allowed)."""
        self.uses = grown(self.uses, self.index.high)
        np.add.at(self.uses, slots, times)

    def free_unused(self, slots: np.ndarray) -> None:
        """Removes those of these keys (repeats allowed) to which no row refers."""
        self.uses = grown(self.uses, self.index.high)
        unused = slots[self.uses[slots] == 0]
        if len(unused):
            unused = distinct(unused)
            self.ttl.forget(unused)
            self.index.free(unused)

    def free(self, slots: np.ndarray) -> None:
        """Removes keys (each listed once) and all their rows."""
        self._free_rows(slots)
        self.ttl.forget(slots)
        self.index.free(slots)

    def evicted(self, slots: np.ndarray) -> None:
        """Frees the memory of keys that have been written to the disk with all their rows."""
        self.free(slots)

    def _free_rows(self, slots: np.ndarray) -> None:
        for table in self.tables:
            if not table.owned:
                positions, rows = table.rows_of(slots)
                if len(rows):
                    table.free(rows, slots[positions])

    # -- looking from outside ------------------------------------------------------------

    def find(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """The slot of each of ``n`` keys; -1 if a key is not in memory. ``columns`` as for ``upsert``."""
        return self.index.lookup(columns, n)

    def _disk_columns(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The key columns of ``upsert``, in their order on disk."""
        return columns

    def _addressed(self, keys: Sequence[Column], n: int) -> tuple[Sequence[Column], int]:
        """(columns for ``upsert``, their number) of all entries that belong to these keys."""
        return keys, n

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """See ``KeyedState``."""
        self.given.refuse(keys, n)
        columns, n = self._addressed(keys, n)
        slots = self.find(columns, n)
        here, others = slots[slots >= 0], np.flatnonzero(slots < 0)
        absent = [c.take(others) for c in columns]
        for number, table in enumerate(self.tables):
            _, rows = table.rows_of(here)
            if len(rows):
                yield table.exported(*table.stored(rows))
            cold = self.tier.look(number, self._disk_columns(absent)) if len(others) else None
            if cold is not None:
                key, head = self.stored_keys([c.take(cold[0]) for c in absent])
                yield table.exported(key, [*head, *cold[1]])

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """See ``KeyedState``. Each row comes as it is when it is read."""
        self.given.refuse_groups(groups)
        for table in self.tables:
            live = table.changes.live()
            for at in range(0, len(live), PIECE_ROWS):
                part = live[at : at + PIECE_ROWS]
                part = part[table.changes.holds(part)]
                part = part[groups.holds(table.stored_key(part)[0], len(part))]
                if len(part):
                    yield table.exported(*table.stored(part))
            yield from self._cold_rows(table, groups)

    def _cold_rows(self, table: SlotTable, groups: KeyGroups) -> Iterator[StateRows]:
        """The rows of a table that are on disk at this moment."""
        for keys, others in self.tier.stored(self.tables.index(table)):
            chosen = np.flatnonzero(groups.holds(keys, len(keys[0])))
            if len(chosen):
                yield table.exported([c.take(chosen) for c in keys], [c.take(chosen) for c in others])

    # -- key groups that move ------------------------------------------------------------

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """See ``KeyedState``."""
        self.given.take_back(groups)
        for table in self.tables:
            self._load_all(table, rows.keyed.get(table.name, ()))

    def mask(self, groups: KeyGroups) -> None:
        """See ``KeyedState``."""
        self.given.mask(groups)

    def drop(self, more: Callable[[], bool]) -> bool:
        """See ``KeyedState``."""
        return self.given.drop(more)

    def slots(self) -> np.ndarray:
        """The slots of all keys in memory, ascending."""
        self.given.finish()
        return self.index.live_slots()

    def _sweep(self, groups: KeyGroups) -> Iterator[None]:
        """Frees the rows of ``groups`` in steps. New keys belong to other groups, so slots that were passed
        stay free of them."""
        for start in range(0, self.high, _DROP_KEYS):
            slots = start + np.flatnonzero(self._in_use(start, min(start + _DROP_KEYS, self.high)))
            gone = slots[groups.holds(self.split(slots)[0], len(slots))]
            if len(gone):
                self.free(gone)
            yield
        for table in self.tables:
            for piece in self._cold_rows(table, groups):
                keys, _, n = table.parsed([piece.batch])
                for at in range(0, n, _DROP_COLD_KEYS):
                    part = [c.slice(at, min(_DROP_COLD_KEYS, n - at)) for c in keys]
                    slots, made = self.upsert(part, len(part[0]))
                    self.fetch(made)
                    self.free(distinct(slots))
                    yield

    def _in_use(self, start: int, stop: int) -> np.ndarray:
        """Mask of the slots from ``start`` to below ``stop`` that hold a key."""
        return self.index.in_use(start, stop)

    def evict(self) -> None:
        """See ``KeyedState``."""
        self.tier.make_room()

    # -- time ----------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Removes what was not written for its time to live; on disk a part of it at each call."""
        self.given.finish()
        if self.ttl.ttl_ms:
            self.free(self.ttl.due(now_ms))
            if not self.tier.expire(self.ttl.swept_ms):
                self.ctx.wake_at(now_ms + 1)
        for number, table in enumerate(self.tables):
            lives = table.rows_to_live
            if lives is None or not lives.ttl_ms:
                continue
            due = lives.due(now_ms)
            if len(due):
                keys = table.keys_of(due)
                table.free(due, keys)
                self.free_unused(keys)
            if not self.tier.expire(lives.swept_ms, number):
                self.ctx.wake_at(now_ms + 1)

    # -- snapshots -----------------------------------------------------------------------

    def split(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        """The keys of slots in the form of a snapshot: (columns by which the input is partitioned, other
        columns)."""
        return self.stored_keys(self.index.keys(slots))

    def stored_keys(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        """The key columns of ``upsert`` in the form of ``split``."""
        return list(columns), []

    @property
    def key_types(self) -> Sequence[LogicalType]:
        """The types of the columns by which the input is partitioned."""
        return self.index.types

    @property
    def stored_types(self) -> list[LogicalType]:
        """The types of all columns of ``split``."""
        return self.index.types

    def of_stored(self, columns: list[Column]) -> list[Column]:
        """The key columns of ``upsert`` from all columns of ``split``."""
        return columns

    def cut(self) -> dict[str, KeyedBlock | PendingBlock]:
        """All tables at this moment. Nothing is copied yet."""
        self.given.finish()
        return {table.name: table.cut() for table in self.tables}

    def restore(self, restored: RestoredState | None) -> None:
        """Loads the restored rows of all tables."""
        for table in self.tables:
            blocks = () if restored is None else restored.keyed.get(table.name, ())
            if isinstance(table, CellTable) and table is self.tables[0] and self._extends():
                self._extend(table, blocks)
                continue
            self._load_all(table, blocks)

    def _load_all(self, table: SlotTable, blocks: Sequence[pa.RecordBatch]) -> None:
        # Block by block, so that the rows fit into the processor's cache and few are in memory twice. A table
        # that orders its rows needs all of them at once.
        for part in ([blocks] if blocks else []) if table.ordered else ([b] for b in blocks):
            self.put_back(table, *table.parsed(part))

    def _extends(self) -> bool:
        """Whether restored rows of the first table are new keys, one row each, that all stay in memory."""
        return not self.evicts

    def _extend(self, table: CellTable, blocks: Sequence[pa.RecordBatch]) -> None:
        """Loads the first table without looking up or merging keys."""
        self.index.reserve(row_count(blocks))
        for block in blocks:
            keys, columns, n = table.parsed([block])
            if n:
                at = self.index.extend(keys, n)
                slots = np.arange(at.start, at.stop)
                self._made(slots)
                table.extend(at, columns)
                self.ttl.touch(slots, at.stop)

    def put_back(self, table: SlotTable, keys: list[Column], columns: list[Column], n: int) -> None:
        """Loads ``n`` restored rows of a table. ``keys`` as for ``upsert``, ``columns`` as for
        ``SlotTable.load``. Keys above the memory limit move to the disk."""
        if not n:
            return
        slots, made = self.upsert(keys, n)
        self.fetch(made)
        rows = table.reload(slots, columns)
        if table.rows_to_live is not None:
            table.rows_to_live.touch(rows, int(rows.max()) + 1)
        elif not table.owned:
            self.ttl.touch(slots, self.high)
        self.tier.settle()

    def close(self) -> None:
        """Closes the files on disk and gives back the claim on the slot's memory."""
        self.tier.close()
