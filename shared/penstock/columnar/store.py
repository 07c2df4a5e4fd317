"""Growable columns addressed by slot, in which keyed operators keep rows and keys.

A *slot* is a small dense number that ``Slots`` allocates, and reuses after it was freed. ``RowStore`` keeps
one row per slot: fixed-width columns as growable arrays, others as an append-only heap with one reference
per slot.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.columnar.growing import FIRST
from penstock.columnar.growing import grown as grown
from penstock.types import logical as t
from penstock.types.arrow_buffers import binary_array, offsets_and_bytes
from penstock.types.column import Column
from penstock.types.storage import arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A heap is compacted when it holds more than so many entries, or bytes, and most entries are garbage.
_COMPACT_FROM, _COMPACT_FROM_BYTES = 8_192, 4 << 20
#: About how many bytes are copied at once when a heap is compacted.
_COMPACT_BYTES = 1 << 20
#: Bytes of a heap's first segment, and of its largest.
_FIRST_BYTES, _SEGMENT_BYTES = 16_384, 16 << 20
_MAPPED_FROM = 1 << 20
_ENTRY_MASK = (1 << 32) - 1


class Slots:
    """Allocates slot numbers, freed ones first. ``high`` is one above the highest slot ever allocated."""

    def __init__(self) -> None:
        self.high = 0
        self._free = np.empty(FIRST, np.int64)
        self._free_count = 0
        #: By slot: whether it is in use.
        self.live = np.zeros(FIRST, np.bool_)

    @property
    def count(self) -> int:
        """The number of slots in use."""
        return self.high - self._free_count

    def allocate(self, n: int) -> np.ndarray:
        """Allocate ``n`` slots; return them as int64, reused ones first."""
        reused = min(n, self._free_count)
        start, self.high = self.high, self.high + n - reused
        slots = np.arange(start, self.high)
        self.live = grown(self.live, self.high)
        self.live[start : self.high] = True
        if reused:
            self._free_count -= reused
            again = self._free[self._free_count : self._free_count + reused].copy()
            self.live[again] = True
            slots = np.concatenate((again, slots))
        return slots

    def free(self, slots: np.ndarray) -> None:
        """Free slots in use, each once."""
        self.live[slots] = False
        end = self._free_count + len(slots)
        self._free = grown(self._free, end)
        self._free[self._free_count : end] = slots
        self._free_count = end


class FixedStore:
    """A fixed-width or RAW column by slot, as one NumPy array."""

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        dtype = numpy_dtype(type_)
        assert dtype is not None
        self.values = np.zeros(FIRST, dtype)
        self.valid: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)

    @property
    def row_bytes(self) -> float:
        """Average bytes per row."""
        return self.values.itemsize + (0 if self.valid is None else 1)

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
        """Set the values of slots; the last value of a repeated slot stays. ``high`` is above all slots."""
        self.values = grown(self.values, high)
        valid = column.valid
        if valid is not None and self.valid is None:
            self.valid = np.ones(len(self.values), np.bool_)
        self.values[slots] = column.values
        if self.valid is not None:
            self.valid = grown(self.valid, len(self.values), True)
            self.valid[slots] = True if valid is None else valid

    def take(self, slots: np.ndarray) -> Column:
        """A copy of the values of slots."""
        valid = None
        if self.valid is not None:
            valid = self.valid[slots]
            if valid.all():
                valid = None
        return Column(self.type, self.values[slots], valid)

    def clear(self, slots: np.ndarray) -> None:
        """Drop the references to Python objects of slots that are freed."""
        if self.values.dtype.hasobject:
            self.values[slots] = None


def _memory(nbytes: int) -> np.ndarray:
    """A uint8 array. A large one is mapped, so that its memory returns to the system when it is dropped."""
    if nbytes < _MAPPED_FROM:
        return np.empty(nbytes, np.uint8)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class _Segment:
    """A part of a heap with room for ``capacity`` bytes of values. A full segment never changes."""

    __slots__ = ("array_type", "data", "entries", "offsets")

    def __init__(self, array_type: pa.DataType, capacity: int) -> None:
        self.array_type = array_type
        self.data = _memory(capacity)
        self.offsets = np.zeros(FIRST + 1, np.int32)
        self.entries = 0

    @property
    def nbytes(self) -> int:
        """Bytes in use. The memory behind them was never touched."""
        return int(self.offsets[self.entries]) + self.offsets.itemsize * (self.entries + 1)

    @property
    def room(self) -> int:
        """Bytes that are free."""
        return len(self.data) - int(self.offsets[self.entries])

    def append(self, offsets: np.ndarray, data: np.ndarray) -> None:
        """Append n values. ``offsets`` are n + 1 int32 offsets into the bytes of ``data``."""
        n, start, end = len(offsets) - 1, int(offsets[0]), int(offsets[-1])
        at = int(self.offsets[self.entries])
        self.data[at : at + end - start] = data[start:end]
        self.offsets = grown(self.offsets, self.entries + n + 1)
        np.add(offsets, at - start, out=self.offsets[self.entries : self.entries + n + 1])
        self.entries += n

    def array(self) -> pa.Array:
        """All entries as an Arrow array that shares the segment's memory."""
        return binary_array(self.array_type, self.offsets[: self.entries + 1], self.data)


class HeapStore:
    """A string or binary column by slot: an append-only heap with one reference per slot.

    The heap is a list of segments, so that it grows without a copy. Overwritten and freed entries are
    garbage until the heap is compacted. A reference is segment << 32 | entry, or -1 for NULL.
    """

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        self._arrow = arrow_type(type_)
        self._refs = np.full(FIRST, -1, np.int64)
        self._segments: list[_Segment] = []
        self._entries = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        """Bytes in use, garbage included."""
        return self._refs.nbytes + sum(s.nbytes for s in self._segments)

    @property
    def row_bytes(self) -> float:
        """Average bytes per row, its reference included."""
        return 8 + sum(s.nbytes for s in self._segments) / max(self._entries, 1)

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
        """Set the values of distinct slots. ``high`` is above all slots in use."""
        self._refs = grown(self._refs, high, -1)
        self.clear(slots)
        array: Any = column.values
        valid = column.valid
        if valid is not None:
            slots = slots[valid]
            array = array.drop_null()
        n = len(array)
        if not n:
            return
        if self._entries > 2 * (self._live + n) and (
            self._entries > _COMPACT_FROM or sum(s.nbytes for s in self._segments) > _COMPACT_FROM_BYTES
        ):
            self._compact()
        self._refs[slots] = self._append(array)
        self._live += n

    def take(self, slots: np.ndarray) -> Column:
        """A copy of the values of slots."""
        refs = self._refs[slots]
        if not len(refs):
            return Column(self.type, pa.array([], self._arrow))
        missing = refs < 0 if int(refs.min()) < 0 else None
        if missing is not None:
            if missing.all():
                return Column.nulls(self.type, len(refs))
            refs[missing] = refs[int(missing.argmin())]
        which = refs >> 32
        entries = refs & _ENTRY_MASK
        first = int(which[0])
        if (which == first).all():
            taken = self._segments[first].array().take(pa.array(entries, mask=missing))
            return Column(self.type, taken)
        order = np.argsort(which.astype(np.uint16), kind="stable")
        counts = np.bincount(which)
        parts, at = [], 0
        for segment in np.flatnonzero(counts).tolist():
            end = at + int(counts[segment])
            parts.append(self._segments[segment].array().take(pa.array(entries[order[at:end]])))
            at = end
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return Column(self.type, pa.concat_arrays(parts).take(pa.array(back, mask=missing)))

    def clear(self, slots: np.ndarray) -> None:
        """Make the values of these slots NULL."""
        self._live -= int((self._refs[slots] >= 0).sum())
        self._refs[slots] = -1

    def _append(self, array: pa.Array) -> np.ndarray:
        """Append the values of an array without NULLs; return their references (int64)."""
        n = len(array)
        offsets, data = offsets_and_bytes(array)
        size = int(offsets[-1]) - int(offsets[0])
        if not self._segments or self._segments[-1].room < size:
            # Each segment is twice as long as the one before, so that small stores stay small.
            last = len(self._segments[-1].data) if self._segments else _FIRST_BYTES // 2
            self._segments.append(_Segment(self._arrow, max(min(2 * last, _SEGMENT_BYTES), size)))
        segment = self._segments[-1]
        first = segment.entries
        segment.append(offsets, data)
        self._entries += n
        return np.arange(first, first + n) | ((len(self._segments) - 1) << 32)

    def _compact(self) -> None:
        slots = np.flatnonzero(self._refs >= 0)
        refs = self._refs[slots]
        order = np.argsort(refs)
        slots, which, entries = slots[order], refs[order] >> 32, refs[order] & _ENTRY_MASK
        old, self._segments, self._entries = self._segments, [], 0
        bounds = np.searchsorted(which, np.arange(len(old) + 1))
        old.reverse()  # each segment is dropped as soon as its entries are copied
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            segment = old.pop()
            if high > low:
                # In pieces, because each is in memory three times for a moment.
                step = max(_COMPACT_BYTES * segment.entries // max(segment.nbytes, 1), 1)
                for at in range(low, high, step):
                    end = min(at + step, high)
                    kept = segment.array().take(pa.array(entries[at:end]))
                    self._refs[slots[at:end]] = self._append(kept)


class NestedStore:
    """Any other Arrow column by slot (ROW, ARRAY, MAP, wide decimals), in chunks of entries.

    Chunks are merged so that each is at least twice as long as the next: a value is copied O(log n) times.
    """

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        self._refs = np.full(FIRST, -1, np.int64)
        self._chunks: list[pa.Array] = []
        self._entries = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        """Allocated bytes, garbage included."""
        return self._refs.nbytes + sum(c.nbytes for c in self._chunks)

    @property
    def row_bytes(self) -> float:
        """Average bytes per row, its reference included."""
        return 8 + sum(c.nbytes for c in self._chunks) / max(self._entries, 1)

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
        """Set the values of distinct slots. ``high`` is above all slots in use."""
        self._refs = grown(self._refs, high, -1)
        self.clear(slots)
        n, values = len(column), cast(pa.Array, column.values)
        if self._entries > _COMPACT_FROM and self._entries > 2 * (self._live + n):
            live = np.flatnonzero(self._refs >= 0)
            kept = self.take(live).values
            self._chunks, self._entries = [kept], len(kept)
            self._refs[live] = np.arange(len(live))
        # A slice would keep the memory of its whole batch alive, so it is copied.
        chunk = pa.concat_arrays([values]) if values.offset == 0 else column.take(np.arange(n)).values
        self._chunks.append(chunk)
        while len(self._chunks) > 1 and len(self._chunks[-2]) < 2 * len(self._chunks[-1]):
            self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]
        self._refs[slots] = np.arange(self._entries, self._entries + n)
        self._entries += n
        self._live += n

    def take(self, slots: np.ndarray) -> Column:
        """A copy of the values of slots."""
        refs = self._refs[slots]
        if not self._chunks:
            return Column.nulls(self.type, len(slots))
        missing = refs < 0
        indices = pa.array(refs, mask=missing) if missing.any() else pa.array(refs)
        taken = pa.chunked_array(self._chunks).take(indices)
        return Column.from_arrow(self.type, taken)

    def clear(self, slots: np.ndarray) -> None:
        """Make the values of these slots NULL."""
        self._live -= int((self._refs[slots] >= 0).sum())
        self._refs[slots] = -1


ColumnStore = FixedStore | HeapStore | NestedStore


def make_store(type_: t.LogicalType) -> ColumnStore:
    """The store of a column of this type."""
    if numpy_dtype(type_) is not None:
        return FixedStore(type_)
    if isinstance(type_, (*t.STRINGS, *t.BINARIES)):
        return HeapStore(type_)
    return NestedStore(type_)


class RowStore:
    """Rows of ``types`` by slot: the columns' stores and the slots in use."""

    def __init__(self, types: Sequence[t.LogicalType]) -> None:
        self.slots = Slots()
        self.stores = [make_store(x) for x in types]

    def __len__(self) -> int:
        return self.slots.count

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return sum(s.nbytes for s in self.stores)

    @property
    def row_bytes(self) -> float:
        """Average bytes per row."""
        return sum(s.row_bytes for s in self.stores)

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows in use: ``nbytes`` without unused room."""
        return int((self.row_bytes + 1) * len(self))

    def append(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """Add ``n`` rows; return their int64 slots."""
        slots = self.slots.allocate(n)
        self.put(slots, columns)
        return slots

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Overwrite rows; where a slot comes twice, the last row stays."""
        high = self.slots.high
        for store, column in zip(self.stores, columns, strict=True):
            store.put(slots, column, high)

    def take(self, slots: np.ndarray) -> list[Column]:
        """A copy of the rows of slots, one column per type."""
        return [store.take(slots) for store in self.stores]

    def free(self, slots: np.ndarray) -> None:
        """Free slots in use, each once, and drop their rows."""
        for store in self.stores:
            store.clear(slots)
        self.slots.free(slots)
