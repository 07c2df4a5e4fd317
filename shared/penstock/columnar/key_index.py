"""Key columns → dense slots: a vectorised open-addressing table.

Each operator and subtask has one table. The table holds slot numbers; the keys lie in an array in slot order,
so that state columns are plain arrays indexed by slot.

* Keys of whole numbers (the fast path) become one int64 and are compared directly. Any other key is compared
  by its 64-bit hash and then column by column (see ``slot_keys``, ``probing``).
* Whole numbers that lie close together need no hashing: an array addressed by key (see ``direct``) holds
  their slots until they lie too far apart.
* Growing causes no pause: the memory of a larger table is prepared in advance, the old table stays readable
  while every later call moves a bounded number of its slots, and arrays by slot grow in place (see ``growing``).
* A slot is freed when its state is purged, and reused for another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.direct import DirectTable
from penstock.columnar.hash_table import HashTable, hash_ints, table_bits
from penstock.columnar.hashing import hash_columns
from penstock.columnar.probing import erase, find, insert
from penstock.columnar.slot_keys import SlotKeys, Wanted
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

#: Slots moved from the old table per call, in addition to twice the rows of the batch.
_MIGRATE = 8192
#: New keys placed in one step: their arrays fit into the processor's cache.
_PLACE = 1 << 16
#: Positions of the next table whose memory is touched for each new key.
_TOUCH = 32


class KeyIndex:
    """Maps keys to int64 slots. ``types`` are the key columns' types; no types mean one global key."""

    def __init__(self, types: Sequence[LogicalType]) -> None:
        self.types = list(types)
        self._held = SlotKeys(self.types)
        self._slots = self._held.slots
        self._direct: DirectTable | None = DirectTable() if self._held.whole else None
        self._table = HashTable(table_bits(0))
        self._next: HashTable | None = None
        #: The table that slots are moved from. The slots from ``_cursor`` to ``_end`` are still in it, except
        #: those in ``_gone``: they were free when it became old, or have been freed since.
        self._old: HashTable | DirectTable | None = None
        self._cursor = self._end = self._left = 0
        self._gone = np.zeros(0, np.bool_)
        #: The number of keys that ``reserve`` announced.
        self._expected = 0

    def __len__(self) -> int:
        return self._slots.count

    @property
    def high(self) -> int:
        """One above the highest slot ever allocated: the length that state columns need."""
        return self._slots.high

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        direct = self._direct.nbytes if self._direct else 0
        old = self._old.nbytes if self._old is not None else 0
        return self._held.nbytes + direct + self._table.nbytes + old

    @property
    def live_bytes(self) -> int:
        """Bytes of the keys in use: ``nbytes`` without unused room."""
        tables = (self._direct, self._old, self._table)
        return int((self._held.row_bytes + 1) * len(self)) + sum(x.nbytes for x in tables if x is not None)

    def in_use(self, start: int, stop: int) -> np.ndarray:
        """Boolean mask of the slots in use from ``start`` to ``stop``, which is at most ``high``."""
        return self._slots.live[start:stop]

    # -- finding ---------------------------------------------------------------------

    def lookup(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """The int64 slot of each of the ``n`` rows' keys; -1 for an unknown key."""
        if not self.types:
            return np.full(n, 0 if self._slots.count else -1, np.int64)
        if self._held.whole:
            found = self._held.packing.packed(columns)
            if found is None:
                self._stop_packing()
            else:
                keys, valid = found
                out = self.lookup_ints(keys)
                if valid is not None:
                    out[~valid] = self._held.null_slot
                return out
        return self._find(Wanted(hash_columns(columns), columns=columns))

    def upsert(self, columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
        """(int64 slot of each of the ``n`` rows' keys, int64 slots that are new). Unknown keys get slots.

        Within a round of probing, new slots are in the order in which their keys first occur.
        """
        if not self.types:
            new = np.empty(0, np.int64)
            if not self._slots.count:
                new = self._held.add_empty(1)
            return np.zeros(n, np.int64), new
        if self._held.whole:
            found = self._held.packing.packed(columns)
            if found is not None:
                return self._upsert_ints(*found)
            self._stop_packing()
        self._make_room(n)
        return self._upsert(Wanted(hash_columns(columns), columns=columns))

    def upsert_ints(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``upsert`` of int64 keys without NULLs. The index must have one whole-number column."""
        if self._direct is not None:
            if self._reach(self._direct, keys):
                return self._upsert_direct(self._direct, keys)
            self._stop_addressing()
        self._make_room(len(keys))
        return self._upsert(Wanted(hash_ints(keys), keys))

    def lookup_ints(self, keys: np.ndarray) -> np.ndarray:
        """``lookup`` of int64 keys without NULLs. The index must have one whole-number column."""
        if self._direct is not None:
            return self._direct.lookup(keys)
        return self._find(Wanted(hash_ints(keys), keys))

    def keys(self, slots: np.ndarray) -> list[Column]:
        """The key columns of slots in use."""
        return self._held.take(slots)

    def ints(self, slots: np.ndarray) -> np.ndarray:
        """The int64 keys of slots. The index must have one whole-number column."""
        return self._held.ints[slots]

    def live_slots(self) -> np.ndarray:
        """All slots in use, ascending."""
        return self._held.live()

    # -- restoring -------------------------------------------------------------------

    def reserve(self, n: int) -> None:
        """Announce about ``n`` more keys, so that the next table has room for all of them."""
        self._expected = self._slots.count + n

    def extend(self, columns: Sequence[Column], n: int) -> slice:
        """Allocate consecutive slots for ``n`` distinct keys that are not in the index; return their slice.

        Nothing is looked up. Raises InternalError if a slot was freed before.
        """
        first = self._slots.high
        if self._slots.count != first:
            raise InternalError("an index is extended after slots were freed", got=f"{len(self)} of {first}")
        if not self.types:
            self._held.add_empty(n)
            return slice(first, self._slots.high)
        packed = self._held.packing.packed(columns) if self._held.whole else None
        if self._held.whole and packed is None:
            self._stop_packing()
        if packed is not None:
            self._extend_ints(*packed, first)
        else:
            self._make_room(n)
            hashes = hash_columns(columns)
            self._held.extend(hashes, columns)
            self._place(hashes, np.arange(first, first + n))
        return slice(first, first + n)

    def _extend_ints(self, keys: np.ndarray, valid: np.ndarray | None, first: int) -> None:
        n, slots, known = len(keys), np.arange(first, first + len(keys)), keys
        if valid is not None and not valid.all():
            slots, known = slots[valid], keys[valid]
        if self._direct is not None and not self._reach(self._direct, known):
            self._stop_addressing()
        if self._direct is None:
            self._make_room(len(known))
        self._held.extend_ints(keys)
        if valid is not None and len(known) < n:
            self._held.null_slot = first + int(np.argmin(valid))
        if self._direct is not None:
            self._direct.put(known, slots)
        else:
            self._place(hash_ints(known), slots)

    def _place(self, hashes: np.ndarray, slots: np.ndarray) -> None:
        for at in range(0, len(slots), _PLACE):
            self._table.place(hashes[at : at + _PLACE], slots[at : at + _PLACE])

    def _reach(self, direct: DirectTable, keys: np.ndarray) -> bool:
        return direct.reach(keys, max(self._slots.count, self._expected - len(keys)), self._held.live_ints)

    # -- freeing ---------------------------------------------------------------------

    def free(self, slots: np.ndarray) -> None:
        """Remove the keys of these slots (each once). The index reuses the slots for other keys.

        Raises InternalError if a slot was freed twice.
        """
        if not len(slots):
            return
        if self.types:
            held, placed = self._held, slots
            if held.whole and held.null_slot >= 0 and (slots == held.null_slot).any():
                placed = slots[slots != held.null_slot]
                held.null_slot = -1
            if self._direct is not None:
                self._erase_direct(self._direct, placed)
                self._slots.free(slots)
                return
            if self._old is not None:
                in_old = self._in_old(placed)
                self._erase_old(self._old, placed[in_old])
                placed = placed[~in_old]
            erase(self._table, held.hashes_of(placed), placed)
        self._held.free(slots)

    def _erase_old(self, old: HashTable | DirectTable, slots: np.ndarray) -> None:
        if isinstance(old, DirectTable):
            self._erase_direct(old, slots)
        else:
            erase(old, self._held.hashes_of(slots), slots)
        self._gone[slots] = True
        self._left -= len(slots)

    def _erase_direct(self, table: DirectTable, slots: np.ndarray) -> None:
        keys = self._held.ints[slots]
        if not (table.lookup(keys) == slots).all():
            raise InternalError("a slot was freed twice", got=f"{len(slots)} slots to free")
        table.erase(keys)

    # -- probing ---------------------------------------------------------------------

    def _stop_packing(self) -> None:
        """Keep the keys column by column from now on, because a key does not fit into 64 bits."""
        self._held.stop_packing()
        self._direct = None
        self._move_from(None, 0)
        self._migrate(1 << 62)

    def _stop_addressing(self) -> None:
        """Find keys by hash from now on, because they lie too far apart for an array addressed by key."""
        direct, self._direct = self._direct, None
        assert direct is not None
        self._move_from(direct, 0)

    def _move_from(self, old: HashTable | DirectTable | None, n: int) -> None:
        """Use a new table with room for ``n`` more keys. ``_migrate`` moves the slots of ``old`` in steps."""
        live, table = self._slots.count, self._next
        if table is None or table.capacity < 2 * (live + n):
            table = self._larger(n)
        self._table, self._next = table, None
        self._old = old
        self._cursor, self._end = 0, self._slots.high
        self._gone = np.zeros(self._end, np.bool_)
        self._left = live
        if self._held.whole and self._held.null_slot >= 0:  # the slot of NULL is in no table
            self._gone[self._held.null_slot] = True
            self._left -= 1

    def _upsert_direct(self, direct: DirectTable, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = direct.get(keys)
        missing = np.flatnonzero(out < 0)
        if not len(missing):
            return out, missing
        winners = direct.first_of_each(keys, missing)
        slots = self._new_slots(winners, Wanted(keys, keys))
        direct.put(keys[winners], slots)
        out[missing] = direct.get(keys[missing])
        return out, slots

    def _upsert_ints(self, keys: np.ndarray, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if valid is None or valid.all():
            # A mask may have no NULL, for example after a filter; it must not allocate a slot for NULL.
            return self.upsert_ints(keys)
        out = np.empty(len(keys), np.int64)
        out[valid], new = self.upsert_ints(keys[valid])
        if self._held.null_slot < 0:
            null_slot = self._held.add_null()
            if self._old is not None and null_slot < self._end:
                self._gone[null_slot] = True
            new = np.append(new, null_slot)
        out[~valid] = self._held.null_slot
        return out, new

    def _upsert(self, wanted: Wanted) -> tuple[np.ndarray, np.ndarray]:
        out = self._find(wanted)
        missing = np.flatnonzero(out < 0)
        if not len(missing):
            return out, missing
        return out, insert(self._table, self._held, wanted, out, missing, self._new_slots)

    def _find(self, wanted: Wanted) -> np.ndarray:
        out = find(self._table, self._held, wanted)
        if self._old is not None:
            missing = np.flatnonzero(out < 0)
            if len(missing):
                found = self._find_old(self._old, wanted.take(missing))
                # The old table still holds slots that were moved, and perhaps freed since.
                found[~self._in_old(found)] = -1
                out[missing] = found
        return out

    def _find_old(self, old: HashTable | DirectTable, wanted: Wanted) -> np.ndarray:
        if isinstance(old, DirectTable):
            assert wanted.keys is not None
            return old.lookup(wanted.keys)
        return find(old, self._held, wanted)

    def _new_slots(self, rows: np.ndarray, wanted: Wanted) -> np.ndarray:
        """Allocates slots for the keys of ``rows``, which differ."""
        slots = self._held.add(rows, wanted)
        if self._old is not None:  # the old table may hold a reused slot for its former key
            self._gone[slots[slots < self._end]] = True
        return slots

    # -- growing ---------------------------------------------------------------------

    def _make_room(self, n: int) -> None:
        """Make room for ``n`` keys at a load of at most one half. Moves a bounded number of slots."""
        if self._old is not None:
            self._migrate(2 * n + _MIGRATE)
        need = self._table.used + self._left + n
        if self._next is None and self._old is None and 8 * need > 3 * self._table.capacity:
            self._next = self._larger(n)
        if self._next is not None:
            self._next.touch(_TOUCH * n + _MIGRATE)
        if 2 * need <= self._table.capacity:
            return
        while self._old is not None:
            self._migrate(1 << 62)
        self._move_from(self._table, n)
        self._migrate(2 * n + _MIGRATE)

    def _larger(self, n: int) -> HashTable:
        """A new table with room for at least ``n`` more keys."""
        expected = (3 * self._expected - 1).bit_length() if self._expected else 0
        return HashTable(max(table_bits(self._slots.count + n), expected))

    def _migrate(self, budget: int) -> None:
        """Examine the next ``budget`` slot numbers and move those that are in the old table."""
        stop = min(self._cursor + budget, self._end)
        moving = self._slots.live[self._cursor : stop] & ~self._gone[self._cursor : stop]
        slots = self._cursor + np.flatnonzero(moving)
        self._cursor = stop
        self._left -= len(slots)
        self._table.place(self._held.hashes_of(slots), slots)
        if self._cursor >= self._end:
            self._old, self._left = None, 0

    def _in_old(self, slots: np.ndarray) -> np.ndarray:
        """Boolean mask of the slots that are still in the old table."""
        out = (slots >= self._cursor) & (slots < self._end)
        out[out] = ~self._gone[slots[out]]
        return out
