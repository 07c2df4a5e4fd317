"""State tables: rows by slot number, of which a snapshot copies the changed ones in small slices.

Every slot has a *stamp*: the epoch in which it was last written (negative: freed). Each cut begins a new
epoch. So nothing is copied at the barrier, and a comparison of stamps finds what changed since the last
confirmed checkpoint, however many checkpoints were aborted in between. A cut goes through the stamps in
slices between steps. Before a row that the cut has not reached changes, ``write`` or ``free`` copies the
row for it.

``docs/state.md`` explains how an operator uses this.
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

    #: Slots in use → (key columns, other columns) of their rows, all of them new arrays.
    Read = Callable[[np.ndarray], tuple[Sequence[Column], Sequence["Column | Later"]]]
    #: (slots, key columns, other columns, whether to sort by key group) → a block of these rows.
    Make = Callable[[np.ndarray, list[Column], list[Column], bool], KeyedBlock]


class Later(Protocol):
    """A column of rows that never change again, so that the writer of the snapshot can copy it."""

    @property
    def nbytes(self) -> int:
        """The approximate size of the column in bytes."""

    def column(self) -> Column:
        """The column."""


#: How many stamps are compared at once (about 0.1 ms).
_SCAN = 1 << 17
#: Seconds that copying one piece of rows should take; the first, least and greatest number of rows in a
#: piece.
_PIECE_S = 0.0005
_FIRST_ROWS, _LEAST_ROWS, _MOST_ROWS = 2_048, 256, 1 << 16
#: Runs of about so many bytes are sorted together, because they fit into the processor's cache and the memory
#: of one run serves for the next. With many key groups runs are long, because the footer lists the key groups
#: of each run.
SHORT_RUN_BYTES, RUN_BYTES = 2 << 20, 8 << 20
_MANY_KEY_GROUPS = 512


class SlotChanges:
    """Records when each slot of one table was written or freed."""

    __slots__ = ("_cuts", "_epochs", "_renumbered", "stamps")

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._renumbered = 0
        #: int32 by slot: the epoch of the last write; negative if freed, 0 if never used.
        self.stamps = np.zeros(1024, np.int32)
        self._cuts: list[Cut] = []

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.stamps.nbytes

    @property
    def copying(self) -> bool:
        """Whether a cut is still being copied. Freeing many rows now would copy them all at once."""
        return bool(self._cuts)

    def holds(self, slots: np.ndarray) -> np.ndarray:
        """For each slot, whether it was in use when it was last announced."""
        self._reach(slots)
        return self.stamps[slots] > 0

    def write(self, slots: np.ndarray) -> None:
        """Announces a change. Call it *before* rows of these slots (repeats allowed) are made or changed."""
        self._stamp(slots, self._epochs.now)

    def free(self, slots: np.ndarray) -> None:
        """Announces a removal. Call it *before* freeing anything of these slots that ``read`` needs."""
        self._stamp(slots, -self._epochs.now)

    def renumber(self) -> None:
        """Announces that all rows get other slots. Call it *before* that, then ``write`` with the new slots.
        The next snapshot contains the whole table."""
        for cut in list(self._cuts):
            cut.copy(lambda: True)
        self.stamps[:] = 0
        self._renumbered = self._epochs.now

    def live(self) -> np.ndarray:
        """Slots in use, ascending."""
        return np.flatnonzero(self.stamps > 0)

    def cut(self, read: Read, make: Make) -> Cut:
        """The table at this moment. Nothing is copied yet."""
        since, upto = self._epochs.since, self._epochs.end()
        if since < self._renumbered:
            since = 0
        cut = Cut(self, read, make, since, upto)
        self._cuts.append(cut)
        return cut

    def close(self, cut: Cut) -> None:
        """The cut has copied all its rows."""
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
    """A table as it was at a barrier, while it is copied.

    Slots below ``cursor`` are done. Of the others those belong to the cut whose stamp is after ``since``
    and not after ``upto``; a slot with a later stamp was copied when it was announced.
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
        """Copies those of these slots that belong to the cut and have not been reached, because they are
        about to change."""
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
        # A delta is a small part of the state and soon superseded, so sorting does not pay.
        return self._make(*together(parts), not self._since)

    def _described(self, block: KeyedBlock) -> KeyedBlock:
        """The block with the marks of a delta: the slots whose older rows no longer count."""
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
        # A RAW value is a user's object that may change in place, so it is encoded now.
        self._parts.append(Part(slots, list(keys), [_settled(c) for c in payload]))


class Part:
    """Some rows of a cut. ``payload`` may contain columns that are copied later."""

    __slots__ = ("keys", "payload", "slots")

    def __init__(self, slots: np.ndarray, keys: Sequence[Column], payload: Sequence[Column | Later]) -> None:
        self.slots, self.keys, self.payload = slots, keys, payload

    @property
    def nbytes(self) -> int:
        """The size of all columns in bytes."""
        return sum(c.nbytes for c in (*self.keys, *self.payload))


class GoneRows:
    """The numbers of rows that are gone and that a later delta has to remove."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        #: (numbers, epoch in which they went) since the last confirmed checkpoint.
        self._gone: list[tuple[np.ndarray, int]] = []

    def add(self, ids: np.ndarray) -> None:
        """Records that rows with these numbers (int64) are gone."""
        if len(ids):
            self._gone.append((ids, self._epochs.now))

    def since(self, since: int, upto: int) -> list[np.ndarray]:
        """The numbers of rows that went after epoch ``since`` and not after ``upto``, for a cut."""
        confirmed = self._epochs.settled
        self._gone = [(ids, epoch) for ids, epoch in self._gone if epoch > confirmed]
        return [ids for ids, epoch in self._gone if since < epoch <= upto]


class StateTable:
    """One named keyed state of an operator.

    ``read(slots)``: see ``Read``; it is called on the data thread with slots in use. ``names``: of the key
    columns, then of the other columns.
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
        """(rows, schema) in the form of a snapshot, in no order and without slot numbers."""
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
    """(slots, key columns, other columns) of all rows."""
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
