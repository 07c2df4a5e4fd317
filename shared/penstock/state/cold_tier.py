"""State larger than memory: an operator's cold keys go to the local disk, with all their rows.

A ``KeySpace`` has a tier. A clock hand passes over the slots of the keys and moves out those that
nobody touched since it came by last; a key that is asked for comes back with all its rows,
before the operator looks at it.

A space whose keys cannot move, or that has no limit to keep to, has a ``Resident`` tier:
it counts, and fails when far too much is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.state.allocators import release_memory
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

#: Keys evicted at once (or twice as many as came, if that is more): a few milliseconds.
_EVICT_KEYS = 1_024
#: Keys that are moved together, and bytes of rows on their way out: what lies there twice.
_PIECE_KEYS, _PIECE_BYTES = 512, 512 << 10
#: Slots the hand passes at once, at most.
_PASS = 1 << 16
#: LevelDB's write buffer, as a share of the memory that the state may take, at least and at
#: most. There may be two of them, and half as much is for reading.
_BUFFER_SHARE, _LEAST_BUFFER, _MOST_BUFFER = 16, 256 << 10, 16 << 20
#: Keys removed at once when their time is over.
_EXPIRE_KEYS = 4_096
_LATEST = (1 << 63) - 1
#: What is merged or emitted at once: bytes of rows; keys, at least and at most.
PIECE_BYTES, LEAST_KEYS, MOST_KEYS = 1 << 20, 64, 1 << 14


class Movable(Protocol):
    """What a tier needs of a table: see ``SlotTable``."""

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
    """Whether there is a limit to keep to, and the keys have canonical bytes."""
    return bool(ctx.memory.limit_bytes and key_types and all(_is_plain(x) for x in key_types))


def make_changes(ctx: StateContext, *, evicts: bool) -> SlotChanges:
    """What a table that may be moved announces its changes to."""
    return RowChanges(ctx.epochs) if evicts else SlotChanges(ctx.epochs)


class Resident:
    """All rows stay in memory and are counted. ``nbytes``: without room that is free."""

    #: Keys on disk.
    count = 0

    @property
    def piece_keys(self) -> int:
        """As many keys as may be merged or emitted at once."""
        return MOST_KEYS

    def __init__(self, ctx: StateContext, nbytes: Callable[[], int], *, evicts: bool = False) -> None:
        self._memory = ctx.memory
        self._holder = ctx.memory.add(ctx.name, nbytes, evicts=evicts)

    def fetch(self, new: np.ndarray) -> np.ndarray:
        """``new``: slots of keys, just made. The rows that lie on disk for some of them come
        back; returns the others."""
        return new

    def expire(self, until_ms: int, table: int = 0) -> bool:
        """Forget a table's rows of keys that nobody touched after this time, with their rows in
        the tables that know no times. Some of them at a time: False when it is to be called
        again."""
        return True

    def due(self, until: int) -> list[Column] | None:
        """Key columns of keys on disk whose time, in the first table, is not after this: some of
        them, the earliest first; None: there are none. The caller has them come back (``fetch``).
        From then on none is put away with an earlier time."""
        return None

    def earliest(self) -> int | None:
        """The first time of a key on disk."""
        return None

    def look(self, table: int, keys: Sequence[Column]) -> tuple[np.ndarray, list[Column]] | None:
        """(position of the key, columns) of the rows that a table has on disk of distinct keys; they
        stay there. None: there are none."""
        return None

    def stored(self, table: int) -> Iterator[tuple[list[Column], list[Column]]]:
        """(key columns, other columns) of all rows that a table has on disk at this moment, some at a
        time."""
        return iter(())

    def used(self, slots: np.ndarray) -> None:
        """These were touched."""

    def make_room(self, fresh: int = 0) -> None:
        """After ``fresh`` new keys: evict what the memory's limit asks for, as far as may be
        at once."""
        self._memory.check()

    def settle(self) -> None:
        """While restoring: evict all that is too much."""

    def close(self) -> None:
        self._memory.remove(self._holder)


class Index(Protocol):
    """What a tier needs of a ``KeyIndex``."""

    types: list[LogicalType]

    def __len__(self) -> int: ...

    @property
    def high(self) -> int: ...

    def in_use(self, start: int, stop: int) -> np.ndarray: ...

    def keys(self, slots: np.ndarray) -> list[Column]: ...


class ColdTier(Resident):
    """``drop(key slots)``: gives up keys and their rows, which lie on disk by then. ``nbytes``:
    of the rows in memory, without room that is free."""

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
        #: May grow until the first row is moved.
        self._index, self._tables = index, tables
        self._drop, self._rows_nbytes = drop, nbytes
        self._used = np.zeros(1024, np.bool_)
        self._hand = 0
        #: Keys that came back since room was last made.
        self._came = 0
        #: Bytes evicted since the allocators gave back what they hold of them.
        self._given_up = 0
        self._disk: ColdRows | None = None
        self.count = 0
        # By table: what was last touched by then is gone; some of it is still to be removed.
        self._expired_ms: dict[int, int] = {}
        self._expiring: set[int] = set()
        #: Keys with an earlier time were all found due.
        self._due = 0
        ctx.metrics.gauge("numKeysOnDisk", lambda: self.count)

    def nbytes(self) -> int:
        """In memory."""
        return self._rows_nbytes() + (0 if self._disk is None else self._disk.nbytes)

    @property
    def key_bytes(self) -> float:
        """Of a key in memory with its rows, on average."""
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
            moved = disk.take(number, names)
            if not len(moved.ids):
                continue
            here = moved.counts > 0
            back |= here
            stays = self._standing(number, moved, dead)
            if not stays.all():
                table.numbered.lost(moved.ids[~stays])
                moved = moved.filter(stays)
                if moved.times is not None:
                    dead |= here & (moved.counts == 0)
            rows = table.load(np.repeat(slots, moved.counts), moved.columns)
            table.numbered.moved_in(rows, moved.ids, moved.stamps)
            if table.touched is not None and moved.times is not None:
                table.touched(rows, moved.times)
        came = int(back.sum())
        self.count -= came
        self._came += came
        found[asked] = back & ~dead
        return found

    def _standing(self, table: int, moved: Moved, dead: np.ndarray) -> np.ndarray:
        """Mask of the rows whose time is not over: a sweep may not have come to them yet."""
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
        """Keys moved out."""
        if not len(self._index):
            return 0
        excess = self._memory.excess(self._holder)
        if excess <= 0:
            return 0
        each = self.key_bytes
        slots = self._coldest(min(int(excess / each) + 1, most))
        piece = int(min(max(_PIECE_BYTES / each, 1), _PIECE_KEYS))
        for at in range(0, len(slots), piece):
            self._move_out(slots[at : at + piece])
        self._given_up += int(each * len(slots))
        if self._given_up > self._memory.limit_bytes // 2:
            self._given_up = 0
            release_memory()
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
        """Up to n slots that the hand finds untouched; it goes round twice at most, for the
        first time it may only find what was touched before."""
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
