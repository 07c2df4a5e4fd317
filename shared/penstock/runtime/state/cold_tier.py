"""State larger than memory: a column table whose cold rows go to the local disk.

A clock hand passes over the slots and evicts the rows that nobody touched since it came by
last. A row keeps its *number* wherever it lies; snapshots know rows by it, so moving a row
is no change of state and costs no bytes in a delta. Whole snapshots read the disk, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.kernels.grouping import distinct, group_rows
from penstock.runtime.kernels.growing import grown
from penstock.runtime.state.cold_rows import ColdRows
from penstock.runtime.state.tables import Cut, Part, SlotChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.runtime.kernels.key_index import KeyIndex
    from penstock.runtime.operator import KeyedBlock
    from penstock.runtime.state.epochs import Epochs
    from penstock.runtime.state.memory import StateMemory
    from penstock.runtime.state.tables import Make, Read
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

#: Rows evicted at once (or twice as many as came, if that is more): a few milliseconds.
_EVICT_ROWS = 1_024
#: Slots the hand passes at once, at most.
_PASS = 1 << 16


class RowChanges(SlotChanges):
    """Changes of rows that are known by numbers of their own instead of their slots."""

    __slots__ = ("_bases", "_confirmed", "_gone", "_next_id", "cold", "ids")

    def __init__(self, epochs: Epochs) -> None:
        super().__init__(epochs)
        self.ids = np.zeros(1024, np.int64)
        self._next_id = 0
        #: (row numbers, epoch) of rows that are gone, since the last confirmed snapshot.
        self._gone: list[tuple[np.ndarray, int]] = []
        self._confirmed = 0
        #: What deltas may build on: cuts that are confirmed or may yet be.
        self._bases: list[int] = []
        self.cold: ColdRows | None = None

    def write(self, slots: np.ndarray) -> None:
        fresh = slots[~self.holds(slots)]
        super().write(slots)
        if len(fresh):
            fresh = distinct(fresh)
            self._number(fresh, np.arange(self._next_id, self._next_id + len(fresh)))
            self._next_id += len(fresh)

    def free(self, slots: np.ndarray) -> None:
        gone = self.ids[slots[self.holds(slots)]]
        super().free(slots)
        if len(gone):
            self._gone.append((gone, self._epochs.now))

    def evictable(self) -> int:
        """Rows whose stamp is not above this may move: no delta will look for them."""
        known = self._epochs.confirmed
        self._bases = [b for b in self._bases if b >= max(known, self._renumbered)]
        return min(self._bases, default=self._epochs.now)

    def next_whole(self) -> None:
        """The next snapshot holds the whole table, so that all rows may move until then."""
        self._renumbered = self._epochs.now

    def moved_out(self, slots: np.ndarray) -> None:
        """The rows of these slots lie elsewhere now."""
        self.stamps[slots] = 0

    def moved_in(self, slots: np.ndarray, ids: np.ndarray) -> None:
        """Rows come back, unchanged. An open cut has them from where they lay."""
        self._reach(slots)
        self._number(slots, ids)
        self.stamps[slots] = self._epochs.now if self._cuts else 1

    def cut(self, read: Read, make: Make) -> Cut:
        since, upto = self._epochs.since, self._epochs.end()
        self._bases.append(self._epochs.upto or upto)
        if since < self._renumbered:
            since = 0
        self._confirmed = max(self._confirmed, since)
        self._gone = [(ids, epoch) for ids, epoch in self._gone if epoch > self._confirmed]
        gone = [ids for ids, epoch in self._gone if since < epoch <= upto]
        cold = self.cold.rows() if self.cold is not None and not since else iter(())
        cut = _RowCut(self, read, make, since, upto, gone, cold)
        self._cuts.append(cut)
        return cut

    def _number(self, slots: np.ndarray, ids: np.ndarray) -> None:
        self.ids = grown(self.ids, len(self.stamps))
        self.ids[slots] = ids


class _RowCut(Cut):
    def __init__(
        self,
        changes: RowChanges,
        read: Read,
        make: Callable[[np.ndarray, list[Column], list[Column]], KeyedBlock],
        since: int,
        upto: int,
        gone: list[np.ndarray],
        cold: Iterator[tuple[np.ndarray, list[Column], list[Column]]],
    ) -> None:
        super().__init__(changes, read, make, since, upto)
        self._ids_of = changes
        self._cold = cold
        self._touched = list(gone)

    def copy(self, more: Callable[[], bool]) -> bool:
        if not super().copy(more):
            return False
        # The disk's snapshot is of the barrier: it may be read in peace.
        while more():
            piece = next(self._cold, None)
            if piece is None:
                return True
            self._parts.append(Part(*piece))
        return False

    def discard(self) -> None:
        super().discard()
        self._cold = iter(())

    def _copy_out(self, slots: np.ndarray) -> None:
        slots = slots[self._ids_of.stamps[slots] > 0]
        if len(slots):
            if self._since:
                self._touched.append(self._ids_of.ids[slots])
            self._take(slots)

    def _take(self, slots: np.ndarray) -> None:
        super()._take(slots)
        self._parts[-1].slots = self._ids_of.ids[slots]


class ColdTier:
    """The eviction of one table. ``read``: the table's; ``load(slots, payload)``: puts rows
    back into new slots; ``drop(slots)``: gives slots up, keys included."""

    def __init__(
        self,
        folder: Path,
        memory: StateMemory,
        *,
        name: str,
        index: KeyIndex,
        payload_types: Sequence[LogicalType],
        changes: RowChanges,
        read: Read,
        load: Callable[[np.ndarray, list[Column]], None],
        drop: Callable[[np.ndarray], None],
        nbytes: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._index, self._changes = index, changes
        self._payload_types = list(payload_types)
        self._read, self._load, self._drop = read, load, drop
        self._nbytes = nbytes
        self._used = np.zeros(1024, np.bool_)
        self._hand = 0
        #: Rows that came back since room was last made.
        self._came = 0
        self._memory = memory
        self._holder = memory.add(name, self.nbytes, evicts=True)
        self._rows: ColdRows | None = None

    @property
    def count(self) -> int:
        """Rows on disk."""
        return 0 if self._rows is None else self._rows.count

    def nbytes(self) -> int:
        """Of the rows in memory, whose slots are used again when they are evicted."""
        disk = 0 if self._rows is None else self._rows.nbytes
        return int(self._row_bytes() * len(self._index)) + disk

    def _row_bytes(self) -> float:
        # What the arrays have beyond the slots in use is address space, and not touched.
        return self._nbytes() / max(len(self._changes.stamps), self._index.high)

    def admit(self, keys: Sequence[Column], n: int) -> None:
        """Before ``upsert``: bring back the rows of these keys."""
        rows = self._rows
        if rows is None or not rows.count:
            return
        unknown = np.flatnonzero(self._index.lookup(keys, n) < 0)
        if not len(unknown):
            return
        asked = [c.take(unknown) for c in keys]
        _, first = group_rows(asked, len(unknown))
        asked = [c.take(first) for c in asked]
        positions, ids, payload = rows.take(asked, len(first))
        if len(positions):
            slots, _ = self._index.upsert([c.take(positions) for c in asked], len(positions))
            self._load(slots, payload)
            self._changes.moved_in(slots, ids)
            self._came += len(slots)

    def used(self, slots: np.ndarray) -> None:
        """After ``upsert``: these were touched."""
        self._used = grown(self._used, self._index.high)
        self._used[slots] = True

    def make_room(self, fresh: int = 0) -> None:
        """After ``fresh`` new rows: evict what the memory's limit asks for, as far as may be at
        once. Not while a cut is copied: what it has not reached yet must stay where it is."""
        self._evict(max(_EVICT_ROWS, 2 * (fresh + self._came)))
        self._came = 0
        self._memory.check()

    def _evict(self, most: int) -> None:
        excess = self._memory.excess(self._holder)
        if excess <= 0 or self._changes.copying or not len(self._index):
            return
        slots = self._coldest(min(int(excess / self._row_bytes()) + 1, most))
        if not len(slots):
            # Everything changed since the last snapshot: better a whole one than no room.
            self._changes.next_whole()
            return
        if self._rows is None:
            self._rows = ColdRows(self._folder, self._index.types, self._payload_types)
            self._changes.cold = self._rows
        keys, payload = self._read(slots)
        self._rows.put(keys, self._changes.ids[slots], payload)  # type: ignore[arg-type]
        self._changes.moved_out(slots)
        self._drop(slots)

    def settle(self) -> None:
        """While restoring: evict all that is too much."""
        before = -1
        while self.count != before:
            before = self.count
            self._evict(_EVICT_ROWS)

    def _coldest(self, n: int) -> np.ndarray:
        """Up to n slots that the hand finds untouched; it goes round twice at most, for the
        first time it may only find what was touched before."""
        high, limit = self._index.high, self._changes.evictable()
        self._used = grown(self._used, high)
        found: list[np.ndarray] = []
        missing, left = n, 2 * high
        while left > 0 and missing:
            start = self._hand % high
            stop = min(start + _PASS, high)
            stamps = self._changes.stamps[start:stop]
            cold = start + np.flatnonzero((stamps > 0) & (stamps <= limit) & ~self._used[start:stop])
            if len(cold) > missing:
                cold = cold[:missing]
                stop = int(cold[-1]) + 1
            self._used[start:stop] = False
            self._hand = stop
            found.append(cold)
            missing -= len(cold)
            left -= stop - start
        return distinct(np.concatenate(found))

    def close(self) -> None:
        self._memory.remove(self._holder)
        if self._rows is not None:
            self._rows.close()
