"""Records changes of rows that may be on disk: such rows are identified by their own numbers, not by slot.

A row keeps its number, and the epoch of its last change, wherever it is. So moving a row is no change of
state and adds nothing to a delta. A cut finds rows on disk by number and epoch as it finds rows in memory
by their stamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.columnar.grouping import distinct
from penstock.columnar.growing import grown
from penstock.state.tables import Cut, GoneRows, Part, SlotChanges
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.snapshots.contract import KeyedBlock
    from penstock.state.cold_rows import ColdCut
    from penstock.state.epochs import Epochs
    from penstock.state.tables import Make, Read
    from penstock.types.logical import LogicalType

#: The number of keys whose rows a cut reads from disk at once.
_PIECE_KEYS = 256


class RowChanges(SlotChanges):
    """``SlotChanges`` of a table whose rows may move to the disk. ``ids``: int64, the number of the row in
    each slot.

    ``cold``: makes a cut of the rows on disk (see ``ColdRows.cut``); None if there are none.
    """

    __slots__ = ("_first", "_gone", "_next_id", "cold", "ids")

    def __init__(self, epochs: Epochs) -> None:
        super().__init__(epochs)
        self.ids = np.zeros(1024, np.int64)
        self._next_id = 0
        self._gone = GoneRows(epochs)
        #: The epoch up to which the first cut contains everything; 0 before the first cut.
        self._first = 0
        self.cold: Callable[[int, int], ColdCut] | None = None

    @property
    def nbytes(self) -> int:
        return self.stamps.nbytes + self.ids.nbytes

    @property
    def base(self) -> int:
        """A later delta may need rows with a higher stamp than this, and none with a lower or equal one."""
        return self._epochs.confirmed or self._first or self._epochs.now

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
        self.lost(gone)

    def lost(self, ids: np.ndarray) -> None:
        """Records that rows with these numbers are gone, in memory or on disk."""
        if self._first:  # before the first cut no snapshot contains them
            self._gone.add(ids)

    def renumber(self) -> None:
        """See ``SlotChanges``. The rows come back as new rows with new numbers."""
        for cut in list(self._cuts):
            cut.copy(lambda: True)
        self.free(self.live())

    def move_out(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The (numbers, stamps) of rows that are about to move to the disk. An open cut that has not reached
        them copies them now."""
        for cut in self._cuts:
            cut.keep(slots)
        found = self.ids[slots], self.stamps[slots]
        self.stamps[slots] = 0
        return found

    def moved_in(self, slots: np.ndarray, ids: np.ndarray, stamps: np.ndarray) -> None:
        """Records that rows came back from the disk into these slots. An open cut reads them from the disk.
        Rows that share a slot have become one."""
        self._number(slots, ids)
        self.stamps[slots] = self._epochs.now if self._cuts else stamps
        merged = self.ids[slots] != ids
        if merged.any():
            self.stamps[slots[merged]] = self._epochs.now
            self.lost(ids[merged])

    def cut(self, read: Read, make: Make) -> Cut:
        since, upto = self._epochs.since, self._epochs.end()
        self._first = self._first or self._epochs.upto or upto
        gone = self._gone.since(since, upto)
        cold = None if self.cold is None else self.cold(since, upto)
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
        make: Make,
        since: int,
        upto: int,
        gone: list[np.ndarray],
        cold: ColdCut | None,
    ) -> None:
        super().__init__(changes, read, make, since, upto)
        self._ids_of = changes
        self._cold = cold
        self._spool: _Spool | None = None
        self._touched = list(gone)

    def copy(self, more: Callable[[], bool]) -> bool:
        if not super().copy(more):
            return False
        while self._cold is not None:
            if not more():
                return False
            piece = self._cold.read(_PIECE_KEYS)
            if piece is None:
                self._cold = None
                if self._spool is not None:
                    self._spool.end()
            elif len(piece[0]):
                if self._spool is None:
                    self._spool = _Spool(self._cold.folder, f"cut-{id(self):x}")
                self._spool.add(*piece)
                if self._since:
                    self._touched.append(piece[0])
        return True

    def block(self) -> KeyedBlock:
        if self._spool is not None:
            self._parts += list(self._spool.parts())
            self._spool = None
        return super().block()

    def pieces(self) -> Iterator[KeyedBlock]:
        yield from super().pieces()
        if self._spool is None:
            return
        run: list[Part] = []
        for part in self._spool.parts():
            run.append(part)
            if sum(p.nbytes for p in run) >= self.run_bytes:
                yield self._made(run)
                run = []
        if run:
            yield self._made(run)

    def discard(self) -> None:
        super().discard()
        if self._cold is not None:
            self._cold.close()
        if self._spool is not None:
            self._spool.remove()
        self._cold = self._spool = None

    def _copy_out(self, slots: np.ndarray) -> None:
        slots = slots[self._ids_of.stamps[slots] > 0]
        if len(slots):
            if self._since:
                self._touched.append(self._ids_of.ids[slots])
            self._take(slots)

    def _take(self, slots: np.ndarray) -> None:
        super()._take(slots)
        self._parts[-1].slots = self._ids_of.ids[slots]


class _Spool:
    """A file with rows that the data thread read from the disk, until the helper thread encodes them.
    Together they may be many times larger than memory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder.parent / f"{folder.name}-{name}"
        self._file: pa.OSFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._keys: list[LogicalType] = []
        self._types: list[LogicalType] = []

    def add(self, ids: np.ndarray, keys: list[Column], payload: list[Column]) -> None:
        columns = [*keys, *payload]
        arrays = [pa.array(ids), *(c.to_arrow() for c in columns)]
        batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
        if self._writer is None:
            self._keys, self._types = [c.type for c in keys], [c.type for c in payload]
            self._file = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def end(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def parts(self) -> Iterator[Part]:
        """All rows; may be called once."""
        k, types = len(self._keys), [*self._keys, *self._types]
        try:
            with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    columns = [_column(x, batch.column(i)) for i, x in enumerate(types, 1)]
                    yield Part(batch.column(0).to_numpy(), columns[:k], columns[k:])
        finally:
            self.remove()

    def remove(self) -> None:
        self.end()
        self._path.unlink(missing_ok=True)


def _column(type_: LogicalType, array: pa.Array) -> Column:
    """The column. A user's objects stay the bytes that they are in a snapshot."""
    if pa.types.is_binary(array.type):
        return Column(type_, array)
    return Column.from_arrow(type_, array)
