"""Rows with wide columns stay in the batches in which they arrived, and are copied only when they are read.

A join, a Top-N or a deduplication works on keys and *slots* (see ``store``). It never reads most of the rows
that it keeps, and emits a row once. So a row with text or nested columns is kept as a reference,
segment << 32 | row, into a *segment*: the uncopied columns of a batch.

Small segments are merged four at a time, so that there are few. A segment is dropped when all its rows are
freed. When too many of all rows are garbage, the segments with the most garbage are rewritten.

Both have rows in memory twice for a moment. ``Upkeep`` says how many, so that state with a memory limit stays
within it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.store import FixedStore, Slots, grown
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

_ROW_MASK = (1 << 32) - 1
#: A segment of at least this many rows is never merged with others.
_LONG = 4096
#: The number of shorter segments that are merged together.
_FAN = 4
#: The number of dropped segments above which the others are renumbered.
_GAPS = 1024
#: The most rows of a rewritten segment.
_REWRITTEN_ROWS = 16_384
#: A segment of at least a limit's share of this size, and at least so many bytes, is never merged with others.
_SEGMENT_SHARE, _LEAST_SEGMENT_BYTES = 64, 1 << 20


@dataclass(frozen=True, slots=True)
class Upkeep:
    """When segments are merged and rewritten.

    ``garbage_rows``: the number of freed rows below which no segment is rewritten. ``garbage_share``: how many freed
    rows are tolerated, as a share of those in use. ``segment_bytes``: the size from which a segment is never merged,
    and that of a rewritten segment; so much garbage is always tolerated, too.
    """

    garbage_rows: int
    garbage_share: float
    segment_bytes: int


#: For state without a memory limit: few, long segments.
ROOMY = Upkeep(garbage_rows=65_536, garbage_share=1.0, segment_bytes=1 << 62)


def within(limit_bytes: int) -> Upkeep:
    """The upkeep of state that moves to the disk above ``limit_bytes``: freed memory is given up sooner, and only a
    small part of the rows is copied at once."""
    size = max(limit_bytes // _SEGMENT_SHARE, _LEAST_SEGMENT_BYTES)
    return Upkeep(garbage_rows=2_048, garbage_share=1 / 3, segment_bytes=size)


class _Segment:
    """The columns of ``rows`` rows. ``live`` is the number of rows that a slot still refers to."""

    __slots__ = ("columns", "live", "nbytes", "rows", "slots")

    def __init__(self, columns: Sequence[Column], slots: np.ndarray, most_bytes: int) -> None:
        self.columns = list(columns)
        self.rows = self.live = len(slots)
        self.nbytes = sum(c.nbytes for c in self.columns)
        #: The slot of each row when it was added. Only short segments keep it, for merging.
        self.slots = slots if self.rows < _LONG and self.nbytes < most_bytes else None


class _Fetch:
    """The places of some rows: (segment, row numbers in it) pairs, and ``back``, the indices that bring the
    concatenated rows into the requested order (None: they are in order). It keeps the segments alive."""

    __slots__ = ("_back", "_parts")

    def __init__(self, parts: list[tuple[_Segment, np.ndarray]], back: np.ndarray | None) -> None:
        self._parts = [(segment, _run(rows), rows) for segment, rows in parts]
        self._back = back

    def column(self, type_: LogicalType, index: int, *, own: bool = False) -> Column:
        """The column with this index of all rows, copied unless the rows are one contiguous run. ``own``: copied in
        any case, so that it does not keep the segment's memory."""
        if not self._parts:
            return Column.nulls(type_, 0)
        parts = []
        own = own and len(self._parts) == 1
        for segment, run, rows in self._parts:
            column = segment.columns[index]
            parts.append(column.take(rows) if run is None or own else column.slice(*run))
        out = Column.concat(parts)
        return out if self._back is None else out.take(self._back)

    def nbytes(self, index: int) -> int:
        """About how many bytes the rows' values of this column take."""
        return sum(s.columns[index].nbytes * len(rows) // s.rows for s, _, rows in self._parts)


def _run(rows: np.ndarray) -> tuple[int, int] | None:
    """(first, number) if the rows are contiguous and ascending, so that they need no copy; else None."""
    first, n = int(rows[0]), len(rows)
    if int(rows[-1]) - first != n - 1 or not (rows[1:] > rows[:-1]).all():
        return None
    return first, n


class LateColumn:
    """A column of some rows that is copied only when ``column`` is called (see ``state.tables.Later``)."""

    __slots__ = ("_fetch", "_index", "type")

    def __init__(self, type_: LogicalType, fetch: _Fetch, index: int) -> None:
        self.type, self._fetch, self._index = type_, fetch, index

    @property
    def nbytes(self) -> int:
        """About how many bytes the values take."""
        return self._fetch.nbytes(self._index)

    def column(self) -> Column:
        """The values. They are those at the time at which this object was made."""
        return self._fetch.column(self.type, self._index)


class Segments:
    """Rows by slot. Each slot has an int64 reference to a row of a segment."""

    def __init__(self, types: Sequence[LogicalType], upkeep: Upkeep) -> None:
        self.types = list(types)
        self._upkeep = upkeep
        self._refs = np.full(1024, -1, np.int64)
        #: Segments by number; None for a dropped one.
        self._segments: list[_Segment | None] = []
        self._rows = self._live = self._gone = self._held = 0

    @property
    def nbytes(self) -> int:
        """Allocated bytes, garbage included."""
        return self._refs.nbytes + self._held

    @property
    def live_bytes(self) -> int:
        """About how many bytes the rows in use take."""
        return 8 * self._live + self._held * self._live // max(self._rows, 1)

    def append(self, slots: np.ndarray, columns: Sequence[Column], high: int) -> None:
        """Add rows under distinct slots that hold no row. The columns are not copied."""
        self._refs = grown(self._refs, high, -1)
        self._add(slots, columns)
        self._rows += len(slots)
        self._live += len(slots)
        while self._merge_tail():
            pass

    def take(self, slots: np.ndarray, indices: Sequence[int] | None = None) -> list[Column]:
        """The rows of slots that hold one: all columns, or only those in ``indices``."""
        fetch = self._fetch(slots)
        indices = range(len(self.types)) if indices is None else indices
        return [fetch.column(self.types[i], i) for i in indices]

    def later(self, slots: np.ndarray) -> list[Column | LateColumn]:
        """The rows that ``take`` would return now, copied only when they are read.

        Columns of Python objects are copied at once, because a user's function may change the objects.
        """
        fetch = self._fetch(slots)
        return [
            fetch.column(x, i) if _is_raw(x) else LateColumn(x, fetch, i) for i, x in enumerate(self.types)
        ]

    def _fetch(self, slots: np.ndarray) -> _Fetch:
        refs = self._refs[slots]
        which, rows = refs >> 32, refs & _ROW_MASK
        if not len(refs) or (which == which[0]).all():
            parts = [(self._segment(int(which[0])), rows)] if len(refs) else []
            return _Fetch(parts, None)
        order = None
        if (which[1:] < which[:-1]).any():
            order = np.argsort(which.astype(np.uint32), kind="stable")
            which, rows = which[order], rows[order]
        starts = np.concatenate(([0], np.flatnonzero(which[1:] != which[:-1]) + 1, [len(which)])).tolist()
        parts = [(self._segment(int(which[a])), rows[a:b]) for a, b in itertools.pairwise(starts)]
        if order is None:
            return _Fetch(parts, None)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return _Fetch(parts, back)

    def place(self, slots: np.ndarray) -> np.ndarray:
        """int64 numbers that sort slots by the place of their rows. Rows are read fastest in this order."""
        return self._refs[slots]

    def free(self, slots: np.ndarray) -> None:
        """Drop the rows of slots that hold one, each once."""
        refs = self._refs[slots]
        self._refs[slots] = -1
        self._live -= len(slots)
        which, counts = np.unique(refs >> 32, return_counts=True)
        for number, count in zip(which.tolist(), counts.tolist(), strict=True):
            segment = self._segment(number)
            segment.live -= count
            if not segment.live:
                self._drop(number)
        if self._rows - self._live > self._tolerated():
            self._compact()
        if self._gone > max(_GAPS, len(self._segments) // 2):
            self._renumber()

    def _segment(self, number: int) -> _Segment:
        segment = self._segments[number]
        assert segment is not None
        return segment

    def _add(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        self._refs[slots] = np.arange(len(slots)) | (len(self._segments) << 32)
        self._segments.append(_Segment(columns, slots, self._upkeep.segment_bytes))
        self._held += self._segment(-1).nbytes

    def _drop(self, number: int) -> None:
        self._rows -= self._segment(number).rows
        self._held -= self._segment(number).nbytes
        self._segments[number] = None
        self._gone += 1
        while self._segments and self._segments[-1] is None:
            self._segments.pop()
            self._gone -= 1

    def _renumber(self) -> None:
        """Renumber the segments, so that dropped ones leave no gaps."""
        numbers = np.cumsum([s is not None for s in self._segments]) - 1
        slots = np.flatnonzero(self._refs >= 0)
        refs = self._refs[slots]
        self._refs[slots] = (numbers[refs >> 32] << 32) | (refs & _ROW_MASK)
        self._segments = [s for s in self._segments if s is not None]
        self._gone = 0

    def _merge_tail(self) -> bool:
        """Merge the last ``_FAN`` segments if they are short and of similar length. Returns whether it did."""
        last = self._segments[-_FAN:]
        if len(last) < _FAN or any(s is None or s.slots is None for s in last):
            return False
        if last[0].rows >= _FAN * last[-1].rows:  # type: ignore[union-attr]
            return False
        first = len(self._segments) - _FAN
        parts, slots = [], []
        for number, segment in enumerate(last, first):
            assert segment is not None
            assert segment.slots is not None
            # A slot may have been freed, and reused for another row.
            stays = self._refs[segment.slots] == (np.arange(segment.rows) | (number << 32))
            slots.append(segment.slots[stays])
            kept = np.flatnonzero(stays)
            whole = len(kept) == segment.rows
            parts.append(segment.columns if whole else [c.take(kept) for c in segment.columns])
        del self._segments[first:]
        self._held -= sum(s.nbytes for s in last if s is not None)
        merged = np.concatenate(slots)
        self._rows -= sum(s.rows for s in last if s is not None) - len(merged)
        self._add(merged, [Column.concat(column) for column in zip(*parts, strict=True)])
        return True

    def _tolerated(self) -> float:
        """How many freed rows may be there."""
        upkeep = self._upkeep
        return max(
            min(upkeep.garbage_rows, self._rows_in(upkeep.segment_bytes)), upkeep.garbage_share * self._live
        )

    def _rows_in(self, nbytes: int) -> int:
        """How many rows take about ``nbytes``."""
        return max(nbytes * self._rows // max(self._held, 1), 1)

    def _compact(self) -> None:
        """Rewrite the segments of which a larger part is garbage than is tolerated of all rows. Each is dropped as
        soon as its last row is copied."""
        share = 1 + self._upkeep.garbage_share
        sparse = np.array([s is not None and share * s.live < s.rows for s in self._segments])
        most = min(self._rows_in(self._upkeep.segment_bytes), _REWRITTEN_ROWS)
        slots = np.flatnonzero(self._refs >= 0)
        refs = self._refs[slots]
        chosen = sparse[refs >> 32]
        slots, refs = slots[chosen], refs[chosen]
        order = np.argsort(refs)
        slots, which = slots[order], refs[order] >> 32
        emptied = np.flatnonzero(sparse).tolist()
        emptied.reverse()
        for start in range(0, len(slots), most):
            part = slots[start : start + most]
            fetch = self._fetch(part)
            self._add(part, [fetch.column(x, i, own=True) for i, x in enumerate(self.types)])
            self._rows += len(part)
            next_ = int(which[start + most]) if start + most < len(which) else len(sparse)
            while emptied and emptied[-1] < next_:
                self._drop(emptied.pop())


def _is_raw(type_: LogicalType) -> bool:
    dtype = numpy_dtype(type_)
    return dtype is not None and dtype.hasobject


class LateRows:
    """Rows of ``types`` by slot, like ``RowStore``.

    If a column is wide (Arrow-backed), all columns are kept in segments and appended columns are not
    copied; otherwise rows lie in arrays by slot.
    """

    def __init__(self, types: Sequence[LogicalType], upkeep: Upkeep = ROOMY) -> None:
        self.slots = Slots()
        wide = any(numpy_dtype(x) is None for x in types)
        self._heap = Segments(types, upkeep) if wide else None
        self._stores = [] if wide else [FixedStore(x) for x in types]

    def __len__(self) -> int:
        return self.slots.count

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return sum(s.nbytes for s in self._stores) if self._heap is None else self._heap.nbytes

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows in use: ``nbytes`` without unused room."""
        if self._heap is not None:
            return self._heap.live_bytes
        return int((sum(s.row_bytes for s in self._stores) + 1) * len(self))

    def append(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """Add ``n`` rows; return their int64 slots. Wide columns are kept by reference."""
        slots = self.slots.allocate(n)
        if self._heap is None:
            for store, column in zip(self._stores, columns, strict=True):
                store.put(slots, column, self.slots.high)
        elif n:
            self._heap.append(slots, columns, self.slots.high)
        return slots

    def take(self, slots: np.ndarray) -> list[Column]:
        """The rows of slots in use, one column per type."""
        return self._heap.take(slots) if self._heap is not None else [s.take(slots) for s in self._stores]

    def take_later(self, slots: np.ndarray) -> Sequence[Column | LateColumn]:
        """``take`` for a snapshot: wide rows are copied only when the snapshot is written."""
        return self._heap.later(slots) if self._heap is not None else self.take(slots)

    def take_some(self, slots: np.ndarray, indices: Sequence[int]) -> list[Column]:
        """``take`` of only the columns in ``indices``."""
        if self._heap is not None:
            return self._heap.take(slots, indices)
        return [self._stores[i].take(slots) for i in indices]

    def in_place(self, slots: np.ndarray) -> np.ndarray:
        """The int64 positions in ``slots``, in the order in which ``take`` reads the rows fastest."""
        return np.argsort(slots if self._heap is None else self._heap.place(slots), kind="stable")

    def free(self, slots: np.ndarray) -> None:
        """Free slots in use, each once, and drop their rows."""
        if not len(slots):
            return
        for store in self._stores:
            store.clear(slots)
        if self._heap is not None:
            self._heap.free(slots)
        self.slots.free(slots)
