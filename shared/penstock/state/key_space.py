"""The keys of one operator, with all that it keeps of them.

A ``KeySpace`` holds the index of the operator's partition key, how often each key is used, and
the tables of rows by key. What every keyed operator needs is here, once: keys that go to the
disk and come back, the limit of memory, time to live, cuts, restoring, gauges, closing.
``docs/state.md`` tells how an operator uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.columnar.key_index import KeyIndex
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

#: Keys that were given away and are freed at once: in memory, and of those on disk, which come back
#: for that.
_DROP_KEYS, _DROP_COLD_KEYS = 1_024, 32


class KeySpace:
    """The keys of an operator in memory, each with a slot number, and the tables that share them.

    Args:
        ctx: What the state may use of the operator's context.
        types: Types of the key's columns; none at all means one key.
        kind: The operator's, in its snapshots.
        names: Names of the key's columns in snapshots; None: ``key0``, ``key1`` …
        ttl_ms: A key that was not written for so many ms goes with its rows; 0: never.
        evicts: Keys may go to the local disk, if memory has a limit and the keys have canonical bytes.
        counted: Tables count the rows of a key in ``uses``, and a key that a batch leaves without rows is forgotten.

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
        #: By key slot, where tables count: rows that refer to the key.
        self.uses = np.zeros(1024, np.int64)
        self.ttl = TimeToLive(ttl_ms, ctx)
        self.evicts = evicts and can_evict(ctx, self._canonical(types))
        self.tables: list[SlotTable] = []
        #: The key groups that another subtask owns by now.
        self.given = GivenAway(ctx.max_parallelism, self._sweep, where=ctx.name)
        self.tier = self._make_tier()
        ctx.metrics.gauge("numKeysInState", lambda: len(self.index))
        ctx.metrics.gauge("stateBytes", self.live_bytes)

    def _canonical(self, types: Sequence[LogicalType]) -> Sequence[LogicalType]:
        """Those of the key's columns that need canonical bytes on disk."""
        return types

    def _make_tier(self) -> Resident:
        if not self.evicts:
            return Resident(self.ctx, self.live_bytes)
        return ColdTier(self.ctx, self.index, self.tables, drop=self.evicted, nbytes=self.live_bytes)

    def add(self, table: SlotTable) -> None:
        """A table of this space; tables that it owns are added after it."""
        self.tables.append(table)

    def __len__(self) -> int:
        """Keys in memory."""
        return len(self.index)

    @property
    def high(self) -> int:
        """One above the highest slot ever given out."""
        return self.index.high

    @property
    def on_disk(self) -> int:
        """Keys on disk."""
        return self.tier.count

    @property
    def copying(self) -> bool:
        """A cut is still being copied: freeing many rows now would copy them all at once."""
        return any(table.changes.copying for table in self.tables)

    @property
    def state_names(self) -> list[str]:
        """The names of its tables, which are the names of their states in snapshots."""
        return [table.name for table in self.tables]

    def live_bytes(self) -> int:
        """Bytes of keys and rows in memory, without room that is free."""
        each = 8 + (8 if self.ttl.ttl_ms else 0)
        return self.index.live_bytes + each * len(self.index) + sum(t.live_bytes for t in self.tables)

    # -- keys ----------------------------------------------------------------------------

    def touch(self, columns: Sequence[Column], n: int) -> Touched:
        """``with space.touch(columns, n) as keys``: work on the keys of ``n`` rows, given as key ``columns``; see ``Touched``."""
        return Touched(self, columns, n)

    def upsert(self, columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
        """(slot of each row's key, slots that are new to the memory: ``fetch`` them), of ``n`` rows with key ``columns``."""
        return self.index.upsert(columns, n)

    def fetch(self, made: np.ndarray) -> np.ndarray:
        """``made``: slots that are new to the memory. They are empty, or their rows come back from
        the disk. Returns those that had no row anywhere."""
        if not len(made):
            return made
        self._made(made)
        for table in self.tables:
            table.make(made)
        return self.tier.fetch(made)

    def _made(self, slots: np.ndarray) -> None:
        """These slots are new to the memory."""

    def keys(self, slots: np.ndarray) -> list[Column]:
        """The key columns of slots."""
        return self.index.keys(slots)

    def use(self, slots: np.ndarray, times: np.ndarray | int = 1) -> None:
        """``times`` more rows refer to the keys in ``slots`` (repeats allowed)."""
        self.uses = grown(self.uses, self.index.high)
        np.add.at(self.uses, slots, times)

    def free_unused(self, slots: np.ndarray) -> None:
        """Forget those of these keys (repeats allowed) that no row refers to."""
        self.uses = grown(self.uses, self.index.high)
        unused = slots[self.uses[slots] == 0]
        if len(unused):
            unused = distinct(unused)
            self.ttl.forget(unused)
            self.index.free(unused)

    def free(self, slots: np.ndarray) -> None:
        """Give up keys (each once) and all their rows."""
        self._free_rows(slots)
        self.ttl.forget(slots)
        self.index.free(slots)

    def evicted(self, slots: np.ndarray) -> None:
        """These keys lie on disk with all their rows: give up what the memory has of them."""
        self.free(slots)

    def _free_rows(self, slots: np.ndarray) -> None:
        for table in self.tables:
            if not table.owned:
                positions, rows = table.rows_of(slots)
                if len(rows):
                    table.free(rows, slots[positions])

    # -- looking from outside ------------------------------------------------------------

    def find(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """Slot of each of ``n`` keys, ``columns`` as ``upsert`` takes them; -1 where a key is not in memory."""
        return self.index.lookup(columns, n)

    def _disk_columns(self, columns: Sequence[Column]) -> Sequence[Column]:
        """What ``upsert`` takes, in the order in which a key's columns stand on disk."""
        return columns

    def _addressed(self, keys: Sequence[Column], n: int) -> tuple[Sequence[Column], int]:
        """What ``upsert`` takes of everything that is kept of these keys, and how many that are."""
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
        """See ``KeyedState``; each row as it is when its turn comes."""
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
        """The rows of a table that lie on disk at this moment."""
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
        """Slots of all keys in memory, ascending."""
        self.given.finish()
        return self.index.live_slots()

    def _sweep(self, groups: KeyGroups) -> Iterator[None]:
        """Free the rows of these groups. New keys are of other groups, so what was passed stays clean."""
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
        """Give up what was not written for the time to live; on disk some of it at a time."""
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
        """The keys of slots as a snapshot has them: (columns by which the input is
        partitioned, other columns)."""
        return self.stored_keys(self.index.keys(slots))

    def stored_keys(self, columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
        """What ``upsert`` takes, as ``split`` gives it."""
        return list(columns), []

    @property
    def key_types(self) -> Sequence[LogicalType]:
        """Of the columns by which the input is partitioned."""
        return self.index.types

    @property
    def stored_types(self) -> list[LogicalType]:
        """Of all columns that ``split`` gives."""
        return self.index.types

    def of_stored(self, columns: list[Column]) -> list[Column]:
        """What ``upsert`` takes, from all columns that ``split`` gives."""
        return columns

    def cut(self) -> dict[str, KeyedBlock | PendingBlock]:
        """All tables at this moment; nothing is copied yet."""
        self.given.finish()
        return {table.name: table.cut() for table in self.tables}

    def restore(self, restored: RestoredState | None) -> None:
        """Load what a snapshot has of this subtask's keys."""
        for table in self.tables:
            blocks = () if restored is None else restored.keyed.get(table.name, ())
            if isinstance(table, CellTable) and table is self.tables[0] and self._extends():
                self._extend(table, blocks)
                continue
            self._load_all(table, blocks)

    def _load_all(self, table: SlotTable, blocks: Sequence[pa.RecordBatch]) -> None:
        # Block by block, so that what is touched at once fits into the processor's cache, and
        # no more of it is in memory twice; rows that are put into order all together.
        for part in ([blocks] if blocks else []) if table.ordered else ([b] for b in blocks):
            self.put_back(table, *table.parsed(part))

    def _extends(self) -> bool:
        """Whether every key has one row in a first table of cells, and all keys stay in memory."""
        return not self.evicts

    def _extend(self, table: CellTable, blocks: Sequence[pa.RecordBatch]) -> None:
        """Nothing is looked up or merged."""
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
        """``n`` restored rows of a table: their keys, as ``upsert`` takes them, and their columns, as
        ``load`` does. What is too much for the memory goes to the disk."""
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
        """Release the disk and the claim on the slot's memory."""
        self.tier.close()
