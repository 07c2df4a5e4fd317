"""Rows with wide columns are kept in the batches they came in, and fetched late.

A join, a Top-N or a deduplication works on keys and *slots* (see ``store``); most of what
it keeps is never looked at again, and what comes out comes out once. So a row with text or
nested columns is a reference, segment << 32 | row, into a *segment*: the columns of a batch
as they came, not copied.

Small segments are merged by fours, so that there are few; one whose rows are all freed is
let go; when more than half of all rows are garbage, the sparse segments are rewritten.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.store import FixedStore, Slots, grown
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

_ROW_MASK = (1 << 32) - 1
#: A segment with so many rows is never merged with others …
_LONG = 4096
#: … and shorter ones so many at a time.
_FAN = 4
#: Nothing is rewritten for less garbage than this, in rows.
_COMPACT_FROM = 65_536
#: … where what is cold leaves for the disk, so that its room is soon there for others.
GARBAGE_ROWS = 2_048
#: So many segments may be gone before the others get new numbers.
_GAPS = 1024
#: Rows of a rewritten segment.
_REWRITTEN_ROWS = 16_384


class _Segment:
    """The columns of ``rows`` rows. ``live``: rows that a slot still refers to."""

    __slots__ = ("columns", "live", "nbytes", "rows", "slots")

    def __init__(self, columns: Sequence[Column], slots: np.ndarray) -> None:
        self.columns = list(columns)
        self.rows = self.live = len(slots)
        self.nbytes = sum(c.nbytes for c in self.columns)
        #: Slot of each row, as it was given: kept of short segments, for merging.
        self.slots = slots if self.rows < _LONG else None


class _Fetch:
    """Where some rows lie: (segment, rows of it) one after another, then ``back`` into the
    order they were asked for in. It holds on to the segments."""

    __slots__ = ("_back", "_parts")

    def __init__(self, parts: list[tuple[_Segment, np.ndarray]], back: np.ndarray | None) -> None:
        self._parts = [(segment, _run(rows), rows) for segment, rows in parts]
        self._back = back

    def column(self, type_: LogicalType, index: int) -> Column:
        if not self._parts:
            return Column.nulls(type_, 0)
        parts = []
        for segment, run, rows in self._parts:
            column = segment.columns[index]
            parts.append(column.take(rows) if run is None else column.slice(*run))
        out = Column.concat(parts)
        return out if self._back is None else out.take(self._back)

    def nbytes(self, index: int) -> int:
        return sum(s.columns[index].nbytes * len(rows) // s.rows for s, _, rows in self._parts)


def _run(rows: np.ndarray) -> tuple[int, int] | None:
    """(first, number) of rows that follow one another: those need no copy."""
    first, n = int(rows[0]), len(rows)
    if int(rows[-1]) - first != n - 1 or not (rows[1:] > rows[:-1]).all():
        return None
    return first, n


class LateColumn:
    """A column of some rows that is taken when it is needed (see ``state.tables.Later``)."""

    __slots__ = ("_fetch", "_index", "type")

    def __init__(self, type_: LogicalType, fetch: _Fetch, index: int) -> None:
        self.type, self._fetch, self._index = type_, fetch, index

    @property
    def nbytes(self) -> int:
        return self._fetch.nbytes(self._index)

    def column(self) -> Column:
        return self._fetch.column(self.type, self._index)


class Segments:
    """Rows by slot, one reference a slot."""

    def __init__(self, types: Sequence[LogicalType], garbage_rows: int) -> None:
        self.types = list(types)
        self._garbage_rows = garbage_rows
        self._refs = np.full(1024, -1, np.int64)
        #: By number; None once nothing refers to it.
        self._segments: list[_Segment | None] = []
        self._rows = self._live = self._gone = self._held = 0

    @property
    def nbytes(self) -> int:
        return self._refs.nbytes + self._held

    @property
    def live_bytes(self) -> int:
        return 8 * self._live + self._held * self._live // max(self._rows, 1)

    def append(self, slots: np.ndarray, columns: Sequence[Column], high: int) -> None:
        """Rows of slots that hold none, each once; the columns are kept by reference."""
        self._refs = grown(self._refs, high, -1)
        self._add(slots, columns)
        self._rows += len(slots)
        self._live += len(slots)
        while self._merge_tail():
            pass

    def take(self, slots: np.ndarray, indices: Sequence[int] | None = None) -> list[Column]:
        """Rows of slots that hold one; of all columns, or of these."""
        fetch = self._fetch(slots)
        indices = range(len(self.types)) if indices is None else indices
        return [fetch.column(self.types[i], i) for i in indices]

    def later(self, slots: np.ndarray) -> list[Column | LateColumn]:
        """What ``take`` would give now, to be taken whenever it is needed: rows do not
        change, but for a user's objects, which are taken now."""
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
        """Numbers that order slots as their rows lie: fetched in this order, rows need not
        be brought back into another."""
        return self._refs[slots]

    def free(self, slots: np.ndarray) -> None:
        refs = self._refs[slots]
        self._refs[slots] = -1
        self._live -= len(slots)
        which, counts = np.unique(refs >> 32, return_counts=True)
        for number, count in zip(which.tolist(), counts.tolist(), strict=True):
            segment = self._segment(number)
            segment.live -= count
            if not segment.live:
                self._drop(number)
        if self._rows - self._live > max(self._garbage_rows, self._live):
            self._compact()
        if self._gone > max(_GAPS, len(self._segments) // 2):
            self._renumber()

    def _segment(self, number: int) -> _Segment:
        segment = self._segments[number]
        assert segment is not None
        return segment

    def _add(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        self._refs[slots] = np.arange(len(slots)) | (len(self._segments) << 32)
        self._segments.append(_Segment(columns, slots))
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
        """Close the gaps that segments left which are gone."""
        numbers = np.cumsum([s is not None for s in self._segments]) - 1
        slots = np.flatnonzero(self._refs >= 0)
        refs = self._refs[slots]
        self._refs[slots] = (numbers[refs >> 32] << 32) | (refs & _ROW_MASK)
        self._segments = [s for s in self._segments if s is not None]
        self._gone = 0

    def _merge_tail(self) -> bool:
        """Make one of the last few segments if they are short and alike."""
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
            # A freed slot may have come back as another row.
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

    def _compact(self) -> None:
        """Rewrite the segments that are more than half garbage."""
        sparse = np.array([s is not None and 2 * s.live < s.rows for s in self._segments])
        slots = np.flatnonzero(self._refs >= 0)
        refs = self._refs[slots]
        chosen = sparse[refs >> 32]
        slots, refs = slots[chosen], refs[chosen]
        slots = slots[np.argsort(refs)]
        for start in range(0, len(slots), _REWRITTEN_ROWS):
            part = slots[start : start + _REWRITTEN_ROWS]
            self._add(part, self.take(part))
            self._rows += len(part)
        for number in np.flatnonzero(sparse).tolist():
            self._drop(number)


def _is_raw(type_: LogicalType) -> bool:
    dtype = numpy_dtype(type_)
    return dtype is not None and dtype.hasobject


class LateRows:
    """Rows of ``types`` by slot, as ``RowStore``'s. With a wide column among them they are
    kept in segments, all of their columns, and what is given to them is not copied;
    narrow rows lie dense by slot. ``garbage_rows``: so many freed ones may at least lie there
    until segments are rewritten."""

    def __init__(self, types: Sequence[LogicalType], garbage_rows: int = _COMPACT_FROM) -> None:
        self.slots = Slots()
        wide = any(numpy_dtype(x) is None for x in types)
        self._heap = Segments(types, garbage_rows) if wide else None
        self._stores = [] if wide else [FixedStore(x) for x in types]

    def __len__(self) -> int:
        return self.slots.count

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self._stores) if self._heap is None else self._heap.nbytes

    @property
    def live_bytes(self) -> int:
        """Of the rows in use: ``nbytes`` without room that is free."""
        if self._heap is not None:
            return self._heap.live_bytes
        return int((sum(s.row_bytes for s in self._stores) + 1) * len(self))

    def append(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """Slots of n new rows."""
        slots = self.slots.allocate(n)
        if self._heap is None:
            for store, column in zip(self._stores, columns, strict=True):
                store.put(slots, column, self.slots.high)
        elif n:
            self._heap.append(slots, columns, self.slots.high)
        return slots

    def take(self, slots: np.ndarray) -> list[Column]:
        return self._heap.take(slots) if self._heap is not None else [s.take(slots) for s in self._stores]

    def take_later(self, slots: np.ndarray) -> Sequence[Column | LateColumn]:
        """``take`` for a snapshot: wide rows are copied by whoever writes them."""
        return self._heap.later(slots) if self._heap is not None else self.take(slots)

    def take_some(self, slots: np.ndarray, indices: Sequence[int]) -> list[Column]:
        """Only these columns."""
        if self._heap is not None:
            return self._heap.take(slots, indices)
        return [self._stores[i].take(slots) for i in indices]

    def in_place(self, slots: np.ndarray) -> np.ndarray:
        """Positions of the slots in the order in which their rows are fetched fastest."""
        return np.argsort(slots if self._heap is None else self._heap.place(slots), kind="stable")

    def free(self, slots: np.ndarray) -> None:
        if not len(slots):
            return
        for store in self._stores:
            store.clear(slots)
        if self._heap is not None:
            self._heap.free(slots)
        self.slots.free(slots)
