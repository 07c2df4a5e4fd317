"""Growable columns addressed by slot: where keyed operators keep rows and keys.

A *slot* is a small dense number given out by ``Slots`` and reused after it was freed.
``RowStore`` keeps one row a slot, a growable array per fixed-width column and an
append-only heap with one reference a slot for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.types import logical as t
from penstock.types.column import Column, arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = 1024
#: A heap is compacted when it holds more than this many entries and most are garbage.
_COMPACT_FROM = 65_536


def grown(array: np.ndarray, size: int, fill: object = 0) -> np.ndarray:
    """``array`` itself if it has ``size`` items, else a copy of at least twice the length."""
    if len(array) >= size:
        return array
    out = np.empty(max(size, 2 * len(array), _FIRST), array.dtype)
    out[: len(array)] = array
    out[len(array) :] = fill
    return out


class Slots:
    """Gives out slot numbers; freed ones first. ``high``: one above the highest ever used."""

    def __init__(self) -> None:
        self.high = 0
        self._free = np.empty(_FIRST, np.int64)
        self._free_count = 0

    @property
    def count(self) -> int:
        """Slots in use."""
        return self.high - self._free_count

    def allocate(self, n: int) -> np.ndarray:
        reused = min(n, self._free_count)
        fresh = np.arange(self.high, self.high + n - reused)
        self.high += n - reused
        if not reused:
            return fresh
        self._free_count -= reused
        return np.concatenate((self._free[self._free_count : self._free_count + reused], fresh))

    def free(self, slots: np.ndarray) -> None:
        end = self._free_count + len(slots)
        self._free = grown(self._free, end)
        self._free[self._free_count : end] = slots
        self._free_count = end


class FixedStore:
    """A fixed-width (or RAW) column by slot."""

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        dtype = numpy_dtype(type_)
        assert dtype is not None
        self.values = np.zeros(_FIRST, dtype)
        self.valid: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
        self.values = grown(self.values, high)
        valid = column.valid
        if valid is not None and self.valid is None:
            self.valid = np.ones(len(self.values), np.bool_)
        self.values[slots] = column.values
        if self.valid is not None:
            self.valid = grown(self.valid, len(self.values), True)
            self.valid[slots] = True if valid is None else valid

    def take(self, slots: np.ndarray) -> Column:
        valid = None
        if self.valid is not None:
            valid = self.valid[slots]
            if valid.all():
                valid = None
        return Column(self.type, self.values[slots], valid)

    def clear(self, slots: np.ndarray) -> None:
        if self.values.dtype.hasobject:
            self.values[slots] = None


class HeapStore:
    """A string or binary column by slot: an append-only heap, one reference a slot.

    The heap is one growable buffer with ascending offsets, so that ``take`` is Arrow's
    own; overwritten and freed entries are garbage until it is compacted.
    """

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        self._arrow = arrow_type(type_)
        self._large = pa.large_string() if self._arrow == pa.string() else pa.large_binary()
        self._refs = np.full(_FIRST, -1, np.int64)
        self._data = np.empty(16 * _FIRST, np.uint8)
        self._offsets = np.zeros(_FIRST + 1, np.int64)
        self._entries = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        return self._refs.nbytes + self._data.nbytes + self._offsets.nbytes

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
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
        if self._entries > _COMPACT_FROM and self._entries > 2 * (self._live + n):
            self._compact()
        self._append(array)
        self._refs[slots] = np.arange(self._entries - n, self._entries)
        self._live += n

    def take(self, slots: np.ndarray) -> Column:
        refs = self._refs[slots]
        missing = refs < 0
        indices = pa.array(refs, mask=missing) if missing.any() else pa.array(refs)
        return Column(self.type, self._heap().take(indices).cast(self._arrow))

    def clear(self, slots: np.ndarray) -> None:
        self._live -= int((self._refs[slots] >= 0).sum())
        self._refs[slots] = -1

    def _heap(self) -> pa.Array:
        buffers = [None, pa.py_buffer(self._offsets[: self._entries + 1]), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(self._large, self._entries, buffers)

    def _append(self, array: pa.Array) -> None:
        n = len(array)
        width = np.int64 if pa.types.is_large_string(array.type) or array.type == self._large else np.int32
        size = np.dtype(width).itemsize
        _, offset_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offset_buffer, width, n + 1, array.offset * size).astype(np.int64)
        start, end = int(offsets[0]), int(offsets[-1])
        at = int(self._offsets[self._entries])
        self._data = grown(self._data, at + end - start)
        if end > start:
            self._data[at : at + end - start] = np.frombuffer(data_buffer, np.uint8)[start:end]
        self._offsets = grown(self._offsets, self._entries + n + 1)
        self._offsets[self._entries : self._entries + n + 1] = offsets + (at - start)
        self._entries += n

    def _compact(self) -> None:
        slots = np.flatnonzero(self._refs >= 0)
        kept = self._heap().take(pa.array(self._refs[slots]))
        self._data = np.empty(16 * _FIRST, np.uint8)
        self._offsets = np.zeros(_FIRST + 1, np.int64)
        self._entries = 0
        if len(kept):
            self._append(kept)
        self._refs[slots] = np.arange(len(slots))


class NestedStore:
    """Any other Arrow column by slot (ROW, ARRAY, MAP, wide decimals): chunks of entries.

    Chunks are merged so that each is at least twice its successor: a value is copied
    O(log n) times in its life.
    """

    def __init__(self, type_: t.LogicalType) -> None:
        self.type = type_
        self._refs = np.full(_FIRST, -1, np.int64)
        self._chunks: list[pa.Array] = []
        self._entries = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        return self._refs.nbytes + sum(c.nbytes for c in self._chunks)

    def put(self, slots: np.ndarray, column: Column, high: int) -> None:
        self._refs = grown(self._refs, high, -1)
        self.clear(slots)
        n, values = len(column), cast(pa.Array, column.values)
        if self._entries > _COMPACT_FROM and self._entries > 2 * (self._live + n):
            live = np.flatnonzero(self._refs >= 0)
            kept = self.take(live).values
            self._chunks, self._entries = [kept], len(kept)
            self._refs[live] = np.arange(len(live))
        # A slice would keep its whole batch alive: copy it.
        chunk = pa.concat_arrays([values]) if values.offset == 0 else column.take(np.arange(n)).values
        self._chunks.append(chunk)
        while len(self._chunks) > 1 and len(self._chunks[-2]) < 2 * len(self._chunks[-1]):
            self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]
        self._refs[slots] = np.arange(self._entries, self._entries + n)
        self._entries += n
        self._live += n

    def take(self, slots: np.ndarray) -> Column:
        refs = self._refs[slots]
        if not self._chunks:
            return Column.nulls(self.type, len(slots))
        missing = refs < 0
        indices = pa.array(refs, mask=missing) if missing.any() else pa.array(refs)
        taken = pa.chunked_array(self._chunks).take(indices)
        return Column.from_arrow(self.type, taken)

    def clear(self, slots: np.ndarray) -> None:
        self._live -= int((self._refs[slots] >= 0).sum())
        self._refs[slots] = -1


ColumnStore = FixedStore | HeapStore | NestedStore


def make_store(type_: t.LogicalType) -> ColumnStore:
    if numpy_dtype(type_) is not None:
        return FixedStore(type_)
    if isinstance(type_, (*t.STRINGS, *t.BINARIES)):
        return HeapStore(type_)
    return NestedStore(type_)


class RowStore:
    """Rows of ``types`` by slot."""

    def __init__(self, types: Sequence[t.LogicalType]) -> None:
        self.slots = Slots()
        self.stores = [make_store(x) for x in types]

    def __len__(self) -> int:
        return self.slots.count

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.stores)

    def append(self, columns: Sequence[Column], n: int) -> np.ndarray:
        """Slots of n new rows."""
        slots = self.slots.allocate(n)
        self.put(slots, columns)
        return slots

    def put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        """Overwrite rows; where a slot comes twice, the last row stays."""
        high = self.slots.high
        for store, column in zip(self.stores, columns, strict=True):
            store.put(slots, column, high)

    def take(self, slots: np.ndarray) -> list[Column]:
        return [store.take(slots) for store in self.stores]

    def free(self, slots: np.ndarray) -> None:
        for store in self.stores:
            store.clear(slots)
        self.slots.free(slots)
