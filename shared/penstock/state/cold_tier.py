"""State larger than memory: keys of an operator that were not used lately move to the local disk with all
their rows.

A ``KeySpace`` has a tier. A clock hand passes over the slots of the keys and evicts those that were not
used since it passed last. A key that is used again comes back with all its rows before the operator reads
it. A space whose keys cannot move, or that has no memory limit, has a ``Resident`` tier: it counts the
memory and fails if far too much is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.state.cold_rows import ColdRows, Moved
from penstock.state.row_changes import RowChanges
from penstock.state.tables import SlotChanges
from penstock.types import logical as t
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.state.context import StateContext
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

#: How many keys are evicted at once, or twice as many as came if that is more. It takes a few milliseconds.
_EVICT_KEYS = 1_024
#: The most keys, and bytes of rows, that are moved together: these are in memory twice.
_PIECE_KEYS, _PIECE_BYTES = 512, 512 << 10
#: The most slots that the clock hand passes at once.
_PASS = 1 << 16
#: LevelDB's write buffer: the memory limit divided by the first, at least and at most so many bytes.
_BUFFER_SHARE, _LEAST_BUFFER, _MOST_BUFFER = 16, 256 << 10, 16 << 20
#: How many expired keys are removed at once.
_EXPIRE_KEYS = 4_096
_LATEST = (1 << 63) - 1
#: What is merged or emitted at once: bytes of rows; the least and the most keys.
PIECE_BYTES, LEAST_KEYS, MOST_KEYS = 1 << 20, 64, 1 << 14


class Movable(Protocol):
    """The parts of a table that a tier uses; see ``SlotTable``."""

    @property
    def types(self) -> Sequence[LogicalType]: ...

    @property
    def times(self) -> Callable[[np.ndarray], np.ndarray] | None: ...

    @property
    def touched(self) -> Callable[[np.ndarray, np.ndarray], None] | None: ...

    @property
    def numbered(self) -> RowChanges: ...

    def rows_of(self, keys: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]: ...

    def read(self, rows: np.ndarray, /) -> list[Column]: ...

    def load(self, keys: np.ndarray, columns: list[Column], /) -> np.ndarray: ...


def can_evict(ctx: StateContext, key_types: Sequence[LogicalType]) -> bool:
    """Whether there is a memory limit, and the keys have canonical bytes."""
    return bool(ctx.memory.limit_bytes and key_types and all(_is_plain(x) for x in key_types))


def make_changes(ctx: StateContext, *, evicts: bool) -> SlotChanges:
    """The object to which a table announces its changes. ``evicts``: its rows may move to the disk."""
    return RowChanges(ctx.epochs) if evicts else SlotChanges(ctx.epochs)


class Resident:
    """A tier that keeps all rows in memory and counts them. ``nbytes``: bytes in use."""

    #: The number of keys on disk.
    count = 0

    @property
    def piece_keys(self) -> int:
        """How many keys may be merged or emitted at once."""
        return MOST_KEYS

    def __init__(self, ctx: StateContext, nbytes: Callable[[], int], *, evicts: bool = False) -> None:
        self._memory = ctx.memory
        self._holder = ctx.memory.add(ctx.name, nbytes, evicts=evicts)

    def fetch(self, new: np.ndarray) -> np.ndarray:
        """Brings back the rows of keys that are on disk. ``new``: slots that were just made. Returns those
        without rows on disk."""
        return new

    def expire(self, until_ms: int, table: int = 0) -> bool:
        """Removes the rows of a table on disk for keys not touched after ``until_ms``, and their rows in
        tables without times: a part of them at each call. Returns False if it has to be called again."""
        return True

    def due(self, until: int) -> list[Column] | None:
        """Key columns of some keys on disk whose time, in the first table, is not after ``until``, earliest
        first; None if there are none. The caller brings them back (``fetch``). No key with an earlier time
        may be evicted after that."""
        return None

    def earliest(self) -> int | None:
        """The first time of a key on disk; None if there is none."""
        return None

    def look(self, table: int, keys: Sequence[Column]) -> tuple[np.ndarray, list[Column]] | None:
        """(position of the key, columns) of the rows that a table has on disk for distinct keys, without
        removing them. None if there are none."""
        return None

    def stored(self, table: int) -> Iterator[tuple[list[Column], list[Column]]]:
        """(key columns, other columns) of all rows of a table that are on disk now, in pieces."""
        return iter(())

    def used(self, slots: np.ndarray) -> None:
        """Marks keys as used."""

    def make_room(self, fresh: int = 0) -> None:
        """Evicts keys as the memory limit requires, limited so that it takes a few milliseconds. ``fresh``:
        number of new keys. Raises ExternalError if far too much memory is used afterwards."""
        self._memory.check()

    def settle(self) -> None:
        """Evicts all keys above the limit, while state is restored."""

    def close(self) -> None:
        """Gives back the claim on the slot's memory."""
        self._memory.remove(self._holder)


class Index(Protocol):
    """The parts of a ``KeyIndex`` that a tier uses."""

    types: list[LogicalType]

    def __len__(self) -> int: ...

    @property
    def high(self) -> int: ...

    def in_use(self, start: int, stop: int) -> np.ndarray: ...

    def keys(self, slots: np.ndarray) -> list[Column]: ...


class ColdTier(Resident):
    """A tier that evicts keys to the disk. ``drop(key slots)``: frees keys and rows in memory that have been
    written to the disk. ``nbytes``: bytes of rows in memory that are in use."""

    def __init__(
        self,
        ctx: StateContext,
        index: Index,
        tables: Sequence[Movable],
        *,
        drop: Callable[[np.ndarray], None],
        nbytes: Callable[[], int],
    ) -> None:
        super().__init__(ctx, self.nbytes, evicts=True)
        self._folder = ctx.local_dir / "cold"
        #: Tables may be added until the first row is moved.
        self._index, self._tables = index, tables
        self._drop, self._rows_nbytes = drop, nbytes
        self._used = np.zeros(1024, np.bool_)
        self._hand = 0
        #: The number of keys that came back since the last ``make_room``.
        self._came = 0
        self._disk: ColdRows | None = None
        self.count = 0
        # Table → time up to which its rows have expired; the tables that still have such rows on disk.
        self._expired_ms: dict[int, int] = {}
        self._expiring: set[int] = set()
        #: All keys with an earlier time have been returned by ``due``.
        self._due = 0
        ctx.metrics.gauge("numKeysOnDisk", lambda: self.count)

    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._rows_nbytes() + (0 if self._disk is None else self._disk.nbytes)

    @property
    def key_bytes(self) -> float:
        """The average size in memory of a key with its rows, in bytes."""
        return max(self._rows_nbytes() / max(len(self._index), 1), 1.0)

    @property
    def piece_keys(self) -> int:
        return int(min(max(PIECE_BYTES / self.key_bytes, LEAST_KEYS), MOST_KEYS))

    # -- coming back ---------------------------------------------------------------------

    def fetch(self, new: np.ndarray) -> np.ndarray:
        if not self.count or not len(new):
            return new
        assert self._disk is not None
        others = np.ones(self._index.high, np.bool_)
        for at in range(0, len(new), _PIECE_KEYS):
            slots = new[at : at + _PIECE_KEYS]
            others[slots] = ~self._fetch(self._disk, slots)
        return new[others[new]]

    def _fetch(self, disk: ColdRows, new: np.ndarray) -> np.ndarray:
        """Mask of the keys that came back."""
        found = np.zeros(len(new), np.bool_)
        asked, names = disk.known(self._index.keys(new))
        if not len(asked):
            return found
        asked = asked[names.order]
        slots = new[asked]
        back, dead = np.zeros(len(slots), np.bool_), np.zeros(len(slots), np.bool_)
        for number, table in enumerate(self._tables):
            for moved in disk.take(number, names):
                here = moved.counts > 0
                back |= here
                stays = self._standing(number, moved, dead)
                if not stays.all():
                    table.numbered.lost(moved.ids[~stays])
                    moved = moved.filter(stays)
                    if moved.times is not None:
                        dead |= here & (moved.counts == 0)
                self._put_back(table, slots, moved)
                self._memory.moved(sum(c.nbytes for c in moved.columns))
        came = int(back.sum())
        self.count -= came
        self._came += came
        found[asked] = back & ~dead
        return found

    @staticmethod
    def _put_back(table: Movable, slots: np.ndarray, moved: Moved) -> None:
        rows = table.load(np.repeat(slots, moved.counts), moved.columns)
        table.numbered.moved_in(rows, moved.ids, moved.stamps)
        if table.touched is not None and moved.times is not None:
            table.touched(rows, moved.times)

    def _standing(self, table: int, moved: Moved, dead: np.ndarray) -> np.ndarray:
        """Mask of the rows that have not expired; expired rows may not be removed from the disk yet."""
        if moved.times is not None:
            return moved.times > self._expired_ms.get(table, -1)
        return ~np.repeat(dead, moved.counts)

    def expire(self, until_ms: int, table: int = 0) -> bool:
        if until_ms > self._expired_ms.get(table, -1):
            self._expired_ms[table] = until_ms
            self._expiring.add(table)
        if self._disk is None or table not in self._expiring:
            return True
        untimed = [n for n, other in enumerate(self._tables) if other.times is None]
        looked, gone, ids = self._disk.expired(table, self._expired_ms[table], _EXPIRE_KEYS, untimed)
        self.count -= gone
        for of, numbers in ids.items():
            self._tables[of].numbered.lost(numbers)
        if looked == _EXPIRE_KEYS:
            return False
        self._expiring.remove(table)
        return True

    def due(self, until: int) -> list[Column] | None:
        if self._disk is None or until < self._due:
            return None
        names, self._due = self._disk.listed(0, self._due, until, _PIECE_KEYS)
        return self._disk.decoded_names(names)[0] if names else None

    def earliest(self) -> int | None:
        if self._disk is None:
            return None
        names, time = self._disk.listed(0, self._due, _LATEST, 1)
        return time if names else None

    # -- looking -------------------------------------------------------------------------

    def look(self, table: int, keys: Sequence[Column]) -> tuple[np.ndarray, list[Column]] | None:
        if self._disk is None:
            return None
        asked, names = self._disk.known(keys)
        if not len(asked):
            return None
        moved = self._disk.look(table, names)
        owners = np.repeat(asked[names.order], moved.counts)
        if moved.times is not None:
            stays = moved.times > self._expired_ms.get(table, -1)
            owners, moved = owners[stays], moved.filter(stays)
        return (owners, moved.columns) if len(owners) else None

    def stored(self, table: int) -> Iterator[tuple[list[Column], list[Column]]]:
        if self._disk is None:
            return
        reading = self._disk.cut(table, 0, 0)
        try:
            while (piece := reading.read(_PIECE_KEYS)) is not None:
                yield piece[1], piece[2]
        finally:
            reading.close()

    # -- going ---------------------------------------------------------------------------

    def used(self, slots: np.ndarray) -> None:
        self._used = grown(self._used, self._index.high)
        self._used[slots] = True

    def make_room(self, fresh: int = 0) -> None:
        self._evict(max(_EVICT_KEYS, 2 * (fresh + self._came)))
        self._came = 0
        super().make_room()

    def settle(self) -> None:
        while self._evict(_EVICT_KEYS):
            pass

    def _evict(self, most: int) -> int:
        """Evicts up to ``most`` keys; returns how many."""
        if not len(self._index):
            return 0
        excess = self._memory.excess(self._holder)
        if excess <= 0:
            return 0
        each = self.key_bytes
        slots = self._coldest(min(int(excess / each) + 1, most))
        piece = int(min(max(_PIECE_BYTES / each, 1), _PIECE_KEYS))
        for at in range(0, len(slots), piece):
            part = slots[at : at + piece]
            self._move_out(part)
            self._memory.moved(int(each * len(part)))
        return len(slots)

    def _move_out(self, slots: np.ndarray) -> None:
        disk = self._disk or self._open()
        names = disk.names(self._index.keys(slots))
        slots = slots[names.order]
        here = np.zeros(len(slots), np.bool_)
        for number, table in enumerate(self._tables):
            owners, rows = table.rows_of(slots)
            if not len(rows):
                continue
            columns = table.read(rows)
            times = None if table.times is None else table.times(rows)
            ids, stamps = table.numbered.move_out(rows)
            counts = np.bincount(owners, minlength=len(slots))
            here |= counts > 0
            disk.put(number, names, Moved(counts, ids, stamps, times, columns), table.numbered.base)
        self.count += int(here.sum())
        self._drop(slots)

    def _open(self) -> ColdRows:
        share = self._memory.limit_bytes // _BUFFER_SHARE
        disk = self._disk = self._make_rows(
            [(table.types, table.times is not None) for table in self._tables],
            min(max(share, _LEAST_BUFFER), _MOST_BUFFER),
        )
        for number, table in enumerate(self._tables):
            table.numbered.cold = lambda since, upto, n=number: disk.cut(n, since, upto)
        return disk

    def _make_rows(self, tables: Sequence[tuple[Sequence[LogicalType], bool]], buffer_bytes: int) -> ColdRows:
        return ColdRows(self._folder, self._index.types, tables, buffer_bytes=buffer_bytes)

    def _coldest(self, n: int) -> np.ndarray:
        """Up to ``n`` slots that the hand finds unused. It passes each slot at most twice, because the first
        pass may only clear the marks."""
        high = self._index.high
        self._used = grown(self._used, high)
        found: list[np.ndarray] = []
        missing, left = n, 2 * high
        while left > 0 and missing:
            start = self._hand % high
            stop = min(start + _PASS, high)
            cold = start + np.flatnonzero(self._index.in_use(start, stop) & ~self._used[start:stop])
            if len(cold) > missing:
                cold = cold[:missing]
                stop = int(cold[-1]) + 1
            self._used[start:stop] = False
            self._used[cold] = True  # so that the second round does not find them again
            self._hand = stop
            found.append(cold)
            missing -= len(cold)
            left -= stop - start
        slots = distinct(np.concatenate(found))
        self._used[slots] = False
        return slots

    def close(self) -> None:
        super().close()
        if self._disk is not None:
            self._disk.close()


def _is_plain(type_: LogicalType) -> bool:
    dtype = numpy_dtype(type_)
    return isinstance(type_, (*t.STRINGS, *t.BINARIES)) or (dtype is not None and not dtype.hasobject)
