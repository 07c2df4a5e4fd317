"""State tables: rows by slot, of which a snapshot copies what changed, in small slices.

Every slot carries a *stamp*: the epoch in which it was last written (negative: freed).
Epochs pass at every cut, so nothing is copied at the barrier, and "what changed since the
checkpoint that was confirmed last" is a comparison of stamps, however many checkpoints
were aborted in between. A cut goes through the stamps in slices between steps; before a
row that it has not reached is changed, ``write`` or ``free`` copies the row out for it.

``docs/state.md`` tells how an operator uses this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.store import grown
from penstock.snapshots.contract import KeyedBlock, PendingBlock
from penstock.snapshots.keyed_blocks import keyed_block
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from penstock.state.epochs import Epochs

    #: Rows of slots in use: (key columns, other columns), all of them new arrays.
    Read = Callable[[np.ndarray], tuple[Sequence[Column], Sequence["Column | Later"]]]
    #: Slots, key columns and others of some rows, whether to sort them → a block of them.
    Make = Callable[[np.ndarray, list[Column], list[Column], bool], KeyedBlock]


class Later(Protocol):
    """A column of rows that never change again: it is copied by whoever writes it."""

    @property
    def nbytes(self) -> int:
        """About how many bytes the column will have."""

    def column(self) -> Column: ...


#: Stamps looked through at once (about 0.1 ms).
_SCAN = 1 << 17
#: Rows copied at once: as many as take about this long.
_PIECE_S = 0.0005
_FIRST_ROWS, _LEAST_ROWS, _MOST_ROWS = 2_048, 256, 1 << 16
#: Rows of about so many bytes are sorted together: they fit into a cache, and the memory
#: of one such run serves for the next. Long ones where there are many key groups, for the
#: footer names those of each run.
SHORT_RUN_BYTES, RUN_BYTES = 2 << 20, 8 << 20
_MANY_KEY_GROUPS = 512


class SlotChanges:
    """Which slots of one table were written or freed, and when."""

    __slots__ = ("_cuts", "_epochs", "_renumbered", "stamps")

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._renumbered = 0
        #: int32 by slot: epoch of the last write, negative when freed, 0 when never used.
        self.stamps = np.zeros(1024, np.int32)
        self._cuts: list[Cut] = []

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes

    @property
    def copying(self) -> bool:
        """A cut is still being copied: freeing many rows now would copy them all at once."""
        return bool(self._cuts)

    def holds(self, slots: np.ndarray) -> np.ndarray:
        """Whether each slot was in use when it was last announced."""
        self._reach(slots)
        return self.stamps[slots] > 0

    def write(self, slots: np.ndarray) -> None:
        """Call *before* rows of these slots (repeats allowed) are made or changed."""
        self._stamp(slots, self._epochs.now)

    def free(self, slots: np.ndarray) -> None:
        """Call *before* anything that ``read`` needs of these slots is given up."""
        self._stamp(slots, -self._epochs.now)

    def renumber(self) -> None:
        """Call *before* all rows get other slots; then ``write`` the new ones. The next
        snapshot holds the whole table."""
        for cut in list(self._cuts):
            cut.copy(lambda: True)
        self.stamps[:] = 0
        self._renumbered = self._epochs.now

    def live(self) -> np.ndarray:
        """Slots in use, ascending."""
        return np.flatnonzero(self.stamps > 0)

    def cut(self, read: Read, make: Make) -> Cut:
        """The table at this moment; nothing is copied yet."""
        since, upto = self._epochs.since, self._epochs.end()
        if since < self._renumbered:
            since = 0
        cut = Cut(self, read, make, since, upto)
        self._cuts.append(cut)
        return cut

    def close(self, cut: Cut) -> None:
        """Everything that counts for it is copied."""
        if cut in self._cuts:
            self._cuts.remove(cut)

    def _stamp(self, slots: np.ndarray, stamp: int) -> None:
        self._reach(slots)
        for cut in self._cuts:
            cut.keep(slots)
        self.stamps[slots] = stamp

    def _reach(self, slots: np.ndarray) -> None:
        if len(slots):
            self.stamps = grown(self.stamps, int(slots.max()) + 1)


class Cut(PendingBlock):
    """A table as it stood at a barrier, while it is copied.

    Slots below ``cursor`` are done; of the others those count whose stamp is after
    ``since`` and not after ``upto``: a slot with a later stamp was copied when it got it.
    """

    def __init__(self, changes: SlotChanges, read: Read, make: Make, since: int, upto: int) -> None:
        self._changes, self._read, self._make = changes, read, make
        self._since, self._upto = since, upto
        self._cursor, self._high = 0, len(changes.stamps)
        self._rows = _FIRST_ROWS
        self._touched: list[np.ndarray] = []
        self._parts: list[Part] = []
        self.run_bytes = RUN_BYTES

    def copy(self, more: Callable[[], bool]) -> bool:
        while self._cursor < self._high:
            if not more():
                return False
            self._advance()
        if not self._parts:
            self._take(np.empty(0, np.int64))
        self._changes.close(self)
        return True

    def discard(self) -> None:
        self._changes.close(self)
        self._cursor = self._high
        self._parts, self._touched = [], []

    def keep(self, slots: np.ndarray) -> None:
        """These slots are about to change: copy those that count and were not reached."""
        slots = slots[slots >= self._cursor]
        slots = slots[self._counts(self._changes.stamps[slots])]
        if len(slots):
            self._copy_out(distinct(slots))

    def block(self) -> KeyedBlock:
        return self._described(self._made(self._parts))

    def pieces(self) -> Iterator[KeyedBlock]:
        described = self._described
        while self._parts:
            run = [self._parts.pop()]
            size = run[0].nbytes
            while self._parts and size < self.run_bytes:
                run.append(self._parts.pop())
                size += run[-1].nbytes
            yield described(self._made(run))
            described = _plain

    def _made(self, parts: Sequence[Part]) -> KeyedBlock:
        # What changed is a part of the state, and soon superseded: it is not worth sorting.
        return self._make(*together(parts), not self._since)

    def _described(self, block: KeyedBlock) -> KeyedBlock:
        """A delta says which slots' older rows no longer hold."""
        if self._since:
            found = np.concatenate(self._touched) if self._touched else np.empty(0, np.int64)
            block.delta, block.touched = True, np.sort(found, kind="stable")  # nearly in order
        return block

    def _advance(self) -> None:
        start = self._cursor
        stop = min(start + _SCAN, self._high)
        slots = start + np.flatnonzero(self._counts(self._changes.stamps[start:stop]))
        if len(slots) > self._rows:
            stop, slots = int(slots[self._rows]), slots[: self._rows]
        began = time.perf_counter()
        if len(slots):
            self._copy_out(slots)
        self._cursor = stop
        if len(slots) >= _LEAST_ROWS:
            faster = min(2.0, _PIECE_S / max(time.perf_counter() - began, 1e-6))
            self._rows = int(min(max(len(slots) * faster, _LEAST_ROWS), _MOST_ROWS))

    def _counts(self, stamps: np.ndarray) -> np.ndarray:
        if not self._since:
            return (stamps > 0) & (stamps <= self._upto)
        age = np.abs(stamps)
        return (age > self._since) & (age <= self._upto)

    def _copy_out(self, slots: np.ndarray) -> None:
        if self._since:
            self._touched.append(slots)
            slots = slots[self._changes.stamps[slots] > 0]
        if len(slots):
            self._take(slots)

    def _take(self, slots: np.ndarray) -> None:
        keys, payload = self._read(slots)
        # A RAW value is a user's object, which may change in place: its bytes are taken now.
        self._parts.append(Part(slots, list(keys), [_settled(c) for c in payload]))


class Part:
    """Some rows of a cut, copied or about to be."""

    __slots__ = ("keys", "payload", "slots")

    def __init__(self, slots: np.ndarray, keys: Sequence[Column], payload: Sequence[Column | Later]) -> None:
        self.slots, self.keys, self.payload = slots, keys, payload

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in (*self.keys, *self.payload))


class GoneRows:
    """The numbers of rows that are gone, as far as a later delta has to take them back."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        #: (numbers, epoch in which they went), since the last confirmed checkpoint.
        self._gone: list[tuple[np.ndarray, int]] = []

    def add(self, ids: np.ndarray) -> None:
        """Rows with these numbers (int64) are gone."""
        if len(ids):
            self._gone.append((ids, self._epochs.now))

    def since(self, since: int, upto: int) -> list[np.ndarray]:
        """What went after the first and not after the second epoch, for a cut."""
        confirmed = self._epochs.settled
        self._gone = [(ids, epoch) for ids, epoch in self._gone if epoch > confirmed]
        return [ids for ids, epoch in self._gone if since < epoch <= upto]


class StateTable:
    """One named keyed state of an operator.

    ``read(slots)``: see ``Read``; it is called on the data thread with slots in use.
    ``names``: of the key columns, then of the others.
    """

    def __init__(
        self,
        name: str,
        read: Read,
        *,
        names: Sequence[str],
        kind: str,
        max_parallelism: int,
        changes: SlotChanges,
    ) -> None:
        self.name = name
        self.changes = changes
        self.read = read
        self._names = list(names)
        self._kind = kind
        self._max_parallelism = max_parallelism

    def cut(self) -> Cut:
        """The table at this moment, for ``OperatorSnapshot.keyed``."""
        cut = self.changes.cut(self.read, self._block)
        if self._max_parallelism < _MANY_KEY_GROUPS:
            cut.run_bytes = SHORT_RUN_BYTES
        return cut

    def rows(
        self, keys: Sequence[Column], payload: Sequence[Column]
    ) -> tuple[pa.RecordBatch, dict[str, Any]]:
        """(rows, schema) in the form of a snapshot, in no order and without slots."""
        block = keyed_block(
            keys, payload, self._names, n=len((*keys, *payload)[0]), max_parallelism=self._max_parallelism,
            kind=self._kind, sort=False,
        )  # fmt: skip
        return block.batch, block.schema

    def _block(self, slots: np.ndarray, keys: list[Column], payload: list[Column], sort: bool) -> KeyedBlock:
        return keyed_block(
            keys, payload, self._names, n=len(slots), max_parallelism=self._max_parallelism,
            kind=self._kind, slots=slots, sort=sort,
        )  # fmt: skip


def together(parts: Sequence[Part]) -> tuple[np.ndarray, list[Column], list[Column]]:
    """(slots, key columns, others) of all rows."""
    return (
        np.concatenate([p.slots for p in parts]),
        [Column.concat(columns) for columns in zip(*(p.keys for p in parts), strict=True)],
        [
            Column.concat([c if isinstance(c, Column) else c.column() for c in columns])
            for columns in zip(*(p.payload for p in parts), strict=True)
        ],
    )


def _plain(block: KeyedBlock) -> KeyedBlock:
    return block


def _settled(column: Column | Later) -> Column | Later:
    if isinstance(column, Column):
        values = column.values
        if isinstance(values, np.ndarray) and values.dtype.hasobject:
            return Column(column.type, column.to_arrow())
    return column
