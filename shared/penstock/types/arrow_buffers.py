"""The one module that knows how Arrow lays out arrays in memory.

An Arrow array is a few buffers, of which a slice uses a part: a bitmap of the values that are not NULL (least
significant bit first; missing if no value is NULL), and the values of a fixed width end to end or, for texts
and lists, n + 1 offsets into the bytes or the elements. Every function here respects slices, copies nothing
unless its docstring says so, and raises InternalError for a type with another layout. Results may be read-only;
the value under a NULL is unspecified. The functions work on whole arrays: a hot path calls one of them once per
batch.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InternalError

__all__ = [
    "binary_array",
    "binary_array_of_width",
    "decimal128_array",
    "decimal128_words",
    "equal_length_bytes",
    "fixed_values",
    "offsets_and_bytes",
    "offsets_of_lengths",
    "packed_bitmap",
    "recut",
    "structured_rows",
    "unsigned_words",
    "validity",
    "validity_bitmap",
    "value_bytes",
    "value_offsets",
    "values_between",
]

#: Bytes of a value by the id of its Arrow type. A bool is one bit, and so not here.
_WIDTH_BYTES: dict[int, int] = {
    type_.id: type_.bit_width // 8
    for type_ in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(
            pa.float16(),
            pa.float32(),
            pa.float64(),
            pa.date32(),
            pa.date64(),
            pa.time32("s"),
            pa.time64("us"),
        ),
        *(pa.timestamp("us"), pa.duration("us"), pa.decimal128(1), pa.decimal256(1)),
    )
}
_DECIMAL128 = pa.decimal128(1).id
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_UINT8 = np.dtype(np.uint8)
_TEXT_OFFSETS: dict[int, np.dtype] = {
    pa.string().id: _INT32,
    pa.binary().id: _INT32,
    pa.large_string().id: _INT64,
    pa.large_binary().id: _INT64,
}
#: The type of the offsets by the id of the array's type.
_OFFSETS: dict[int, np.dtype] = {
    **_TEXT_OFFSETS,
    pa.list_(pa.null()).id: _INT32,
    pa.map_(pa.string(), pa.null()).id: _INT32,
    pa.large_list(pa.null()).id: _INT64,
}
_NO_BYTES = np.zeros(0, np.uint8)
_MOST_BYTES = int(np.iinfo(np.int32).max)


# -- NULLs --------------------------------------------------------------------------------


def validity(array: pa.Array) -> np.ndarray | None:
    """bool[n], True for values that are not NULL; None if no value is NULL. A copy."""
    if not array.null_count:
        return None
    valid: np.ndarray = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid


def validity_bitmap(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of the array, starting at bit 0; None if no value is NULL. A copy."""
    # Arrow's own packing: the result starts at bit 0 even for a slice.
    return pc.is_valid(array).buffers()[1] if array.null_count else None


def packed_bitmap(valid: np.ndarray | None) -> pa.Buffer | None:
    """bool[n], True for not NULL, as a bitmap; None stays None (nothing is NULL)."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


# -- values of a fixed width --------------------------------------------------------------


def fixed_values(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """dtype[n]: the values of a fixed-width array, as they lie in memory.

    ``dtype`` has the width of the array's type and may read it as another type of that width (a timestamp
    as int64). InternalError for another width, and for types without one or of bits (bool).
    """
    width = _WIDTH_BYTES.get(array.type.id)
    if width != dtype.itemsize:
        raise _unreadable(array, f"values of {dtype.itemsize} bytes")
    n, buffer = len(array), array.buffers()[1]
    if buffer is None or not n:
        return np.zeros(n, dtype)
    return np.frombuffer(buffer, dtype, n, array.offset * width)


def unsigned_words(array: pa.Array) -> np.ndarray:
    """uint[n, words]: the values' bytes as unsigned integers, one of the type's width or 64 bits each.

    int16 gives uint16[n, 1], double uint64[n, 1], decimal128 uint64[n, 2] with the low word first.
    InternalError for types without a width or of bits (bool).
    """
    width = _WIDTH_BYTES.get(array.type.id)
    if width is None:
        raise _unreadable(array, "values of a fixed width")
    words, unit = max(1, width // 8), _UNSIGNED[min(width, 8)]
    n, buffer = len(array), array.buffers()[1]
    if buffer is None or not n:
        return np.zeros((n, words), unit)
    return np.frombuffer(buffer, unit, words * n, array.offset * width).reshape(n, words)


def decimal128_words(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(low, high): int64[n] each, the words of the unscaled values in two's complement; strided views.

    A value fits in 64 bits where ``high == low >> 63``. InternalError for another type.
    """
    if array.type.id != _DECIMAL128:
        raise _unreadable(array, "decimal128")
    n, buffer = len(array), array.buffers()[1]
    if buffer is None or not n:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    words = np.frombuffer(buffer, np.int64, 2 * n, array.offset * 16)
    return words[::2], words[1::2]


def decimal128_array(
    type_: pa.Decimal128Type, low: np.ndarray, high: np.ndarray, bitmap: pa.Buffer | None
) -> pa.Array:
    """A decimal128 array of unscaled values: int64[n] of low and of high words, and a validity bitmap."""
    words = np.empty(2 * len(low), np.int64)
    words[::2] = low
    words[1::2] = high
    return pa.Array.from_buffers(type_, len(low), [bitmap, pa.py_buffer(words)])


# -- texts and lists ----------------------------------------------------------------------


def value_offsets(array: pa.Array) -> np.ndarray:
    """int32[n + 1] (int64 for a large type): the start of each text or list, then the end of the last one.

    Offsets count in the whole of the bytes or elements, of which a slice uses a part. A NULL may span some of
    them. Raises InternalError for a type without offsets.
    """
    dtype = _OFFSETS.get(array.type.id)
    if dtype is None:
        raise _unreadable(array, "texts, lists or maps")
    return _offsets(array, array.buffers()[1], dtype)


def offsets_and_bytes(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of texts (see ``value_offsets``) and the uint8 bytes that they point into."""
    dtype = _TEXT_OFFSETS.get(array.type.id)
    if dtype is None:
        raise _unreadable(array, "texts")
    _, offsets, data = array.buffers()
    return _offsets(array, offsets, dtype), _NO_BYTES if data is None else np.frombuffer(data, _UINT8)


def value_bytes(array: pa.Array) -> np.ndarray:
    """uint8[bytes]: the bytes of all texts of the array end to end, and of no others."""
    offsets, data = offsets_and_bytes(array)
    return data[offsets[0] : offsets[-1]]


def equal_length_bytes(array: pa.Array) -> np.ndarray | None:
    """uint8[n, length]: the bytes of texts that all have the same length above 0; None otherwise, or if there
    are NULLs."""
    n = len(array)
    if array.null_count or not n:
        return None
    offsets, data = offsets_and_bytes(array)
    start, length = int(offsets[0]), int(offsets[1] - offsets[0])
    if not length or int(offsets[-1]) - start != n * length or (np.diff(offsets) != length).any():
        return None
    return data[start : start + n * length].reshape(n, length)


def structured_rows(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """dtype[n]: the values of byte strings that each contain one value of ``dtype``; none may be NULL.

    Raises:
        InternalError: the strings have another total length.
    """
    n = len(array)
    if not n:
        return np.zeros(0, dtype)
    offsets, data = offsets_and_bytes(array)
    start, end = int(offsets[0]), int(offsets[-1])
    if end - start != n * dtype.itemsize:
        raise InternalError(
            f"{n} byte strings do not hold values of {dtype.itemsize} bytes",
            expected=f"{n * dtype.itemsize} bytes in all",
            got=f"{end - start} bytes",
        )
    return data[start:end].view(dtype)


def values_between(array: pa.Array, cuts: np.ndarray) -> list[bytes]:
    """The bytes of texts ``cuts[i]`` … ``cuts[i + 1] - 1`` joined, for each i; ``cuts``: int[m + 1], sorted."""
    if not len(array):
        return []
    offsets, data = offsets_and_bytes(array)
    bounds = offsets[cuts]
    first = int(bounds[0])
    raw = data[first : int(bounds[-1])].tobytes()
    return [raw[a:b] for a, b in pairwise((bounds - first).tolist())]


def offsets_of_lengths(lengths: np.ndarray) -> np.ndarray:
    """int32[n + 1]: the offsets of texts with the given lengths (int[n], bytes), end to end.

    Raises InternalError if the sum exceeds 32 bits: it would wrap around and give wrong rows.
    """
    total = int(lengths.sum(dtype=np.int64))
    if total > _MOST_BYTES:
        raise _too_long(total)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def binary_array(
    type_: pa.DataType,
    offsets: np.ndarray,
    data: np.ndarray | bytes | pa.Buffer,
    valid: np.ndarray | None = None,
) -> pa.StringArray | pa.BinaryArray:
    """Texts of ``type_`` (string or binary): int32[n + 1] offsets into bytes, which are not copied. ``valid``:
    bool[n], True for not NULL; None: no text is NULL.

    The caller must not change the bytes that the offsets cover.
    """
    buffers = [packed_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers)


def binary_array_of_width(data: np.ndarray | bytes, n: int, width: int) -> pa.BinaryArray:
    """``n`` byte strings of ``width`` bytes that lie end to end in ``data``, none of them NULL; not copied."""
    if n * width > _MOST_BYTES:
        raise _too_long(n * width)
    return binary_array(pa.binary(), np.arange(n + 1, dtype=np.int32) * width, data)


def recut(array: pa.Array, offsets: np.ndarray) -> pa.Array:
    """Other parts of the same bytes: texts of the array's type at int32[m + 1] offsets, without NULLs.

    The offsets count as in ``value_offsets``. No byte is copied. Raises InternalError for other types.
    """
    if array.type.id not in _TEXT_OFFSETS or _TEXT_OFFSETS[array.type.id] is not _INT32:
        raise _unreadable(array, "texts with offsets of 32 bits")
    return pa.Array.from_buffers(
        array.type, len(offsets) - 1, [None, pa.py_buffer(offsets), array.buffers()[2]]
    )


def _offsets(array: pa.Array, buffer: pa.Buffer | None, dtype: np.dtype) -> np.ndarray:
    n = len(array)
    # An empty array may lack the one offset that it should have.
    if buffer is None or not buffer.size:
        return np.zeros(n + 1, dtype)
    return np.frombuffer(buffer, dtype, n + 1, array.offset * dtype.itemsize)


def _unreadable(array: pa.Array, expected: str) -> InternalError:
    return InternalError(
        "an Arrow array has another layout than its reader expects", expected=expected, got=str(array.type)
    )


def _too_long(total: int) -> InternalError:
    return InternalError(
        "the texts of one Arrow array are too long",
        expected=f"at most {_MOST_BYTES} bytes",
        got=f"{total} bytes",
        remedy="use smaller batches",
    )
