"""The versioned 64-bit hash that decides which subtask owns a key.

Every savepoint and every exchange depends on it: all processes and all versions must compute the same bits.
It is defined over canonical values, not over the ``hash`` of Python or of an engine:

* whole numbers, dates, times, unscaled decimals: the int64 value;
* FLOAT, DOUBLE: the float64 bits, with −0.0 as 0.0 and one NaN;
* DECIMAL(p > 18): the int64 value where it fits, else its two words;
* strings, binaries: Σ fmix64(word_j + j·GOLDEN) over little-endian 8-byte words, zero
  padded, finished with the length in bytes;
* ROW, ARRAY: their fields or elements combined in order;
* RAW: a Python value of one of those forms as above, any other by its canonical bytes (``types.canonical``);
* NULL: one constant.

Any change here needs a new ``HASH_VERSION`` and breaks every savepoint; tests compare golden vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.types import logical as t
from penstock.types.arrow_buffers import decimal128_words, offsets_and_bytes, validity, value_offsets
from penstock.types.canonical import canonical, python_number
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH_VERSION = 1

_C1 = np.uint64(0xFF51AFD7ED558CCD)
_C2 = np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = 0x9E3779B97F4A7C15
_COMBINE = np.uint64(0x9FB21C651E98DF25)
_SEED_INT = np.uint64(0x243F6A8885A308D3)
_SEED_FLOAT = np.uint64(0x13198A2E03707344)
_SEED_BYTES = np.uint64(0xA4093822299F31D0)
_SEED_LIST = np.uint64(0x082EFA98EC4E6C89)
NULL_HASH = np.uint64(0x452821E638D01377)
_S33 = np.uint64(33)
_U64 = (1 << 64) - 1
#: Keeps the first k bytes of a little-endian word.
_KEEP_BYTES = np.array([(1 << (8 * k)) - 1 for k in range(8)] + [_U64], np.uint64)
#: Up to this many words, strings are hashed word by word over all rows.
_SHORT_WORDS = 4


def fmix64(h: np.ndarray) -> np.ndarray:
    """MurmurHash3's finaliser, in place on a uint64 array; returns it."""
    h ^= h >> _S33
    h *= _C1
    h ^= h >> _S33
    h *= _C2
    h ^= h >> _S33
    return h


def hash_columns(columns: Sequence[Column]) -> np.ndarray:
    """The uint64 hash of each row over one or more key columns of equal length.

    Raises:
        UnsupportedError: a column's type cannot be a key.
    """
    out = hash_column(columns[0])
    for column in columns[1:]:
        out *= _COMBINE
        out += hash_column(column)
        fmix64(out)
    return out


def hash_column(column: Column) -> np.ndarray:
    """The uint64 hash of each row, in a new array that the caller may change.

    Raises:
        UnsupportedError: the column's type cannot be a key.
    """
    values = column.values
    if isinstance(values, np.ndarray):
        out = _hash_objects(values) if values.dtype.hasobject else _hash_fixed(values)
    else:
        out = _hash_arrow(column)
    valid = column.valid
    if valid is not None:
        out[~valid] = NULL_HASH
    return out


def key_groups(hashes: np.ndarray, max_parallelism: int) -> np.ndarray:
    """The int32 key group of each uint64 hash."""
    if max_parallelism & (max_parallelism - 1) == 0:
        return (hashes & np.uint64(max_parallelism - 1)).astype(np.int32)
    return (hashes % np.uint64(max_parallelism)).astype(np.int32)


def subtask_of_key_group(groups: np.ndarray, parallelism: int, max_parallelism: int) -> np.ndarray:
    """The int32 index of the subtask that owns each key group."""
    return (groups.astype(np.int64) * parallelism // max_parallelism).astype(np.int32)


def key_group_range(subtask_index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """The first and last key group (inclusive) of a subtask; first > last when it has none."""
    first = -(-subtask_index * max_parallelism // parallelism)
    last = -(-(subtask_index + 1) * max_parallelism // parallelism) - 1
    return first, last


# -- one column ---------------------------------------------------------------------------


def _hash_fixed(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        doubles = values.astype(np.float64) + 0.0  # −0.0 + 0.0 is 0.0
        doubles[np.isnan(doubles)] = np.nan
        return fmix64(doubles.view(np.uint64) ^ _SEED_FLOAT)
    return fmix64(values.astype(np.int64).view(np.uint64) ^ _SEED_INT)


def _hash_arrow(column: Column) -> np.ndarray:
    array = column.values
    match column.type:
        case t.CharType() | t.VarCharType() | t.BinaryType() | t.VarBinaryType() | t.VariantType():
            offsets, data = offsets_and_bytes(array)
            return _hash_bytes(data, offsets.astype(np.int64))
        case t.DecimalType():
            low, high = decimal128_words(array)
            out = _hash_fixed(low)
            wide = np.flatnonzero(high != low >> 63)
            if len(wide):
                out[wide] = fmix64(out[wide] * _COMBINE + high[wide].view(np.uint64))
            return out
        case t.RowType(fields=fields):
            return hash_columns([column.child(i) for i in range(len(fields))])
        case t.ArrayType(element=element):
            return _hash_list(array, element)
    raise UnsupportedError(
        f"{column.type} cannot be a key",
        expected="a key of a scalar, ROW or ARRAY type",
        got=str(column.type),
        remedy="key by an expression of such a type, for example CAST(… AS STRING)",
    )


def _hash_bytes(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    n = len(offsets) - 1
    if not n:
        return np.zeros(0, np.uint64)
    base = int(offsets[0])
    starts = offsets[:-1] - base
    lengths = np.diff(offsets)
    size = int(offsets[-1]) - base
    # With eight spare bytes every word can be read whole; bytes outside the string are masked.
    padded = np.zeros(size + 8, np.uint8)
    padded[:size] = data[base : base + size]
    words = np.lib.stride_tricks.as_strided(padded[:8].view(np.uint64), (size + 1,), (1,))
    counts = np.maximum((lengths + 7) >> 3, 1)
    most = int(counts.max())
    if most <= _SHORT_WORDS:
        total = np.zeros(n, np.uint64)
        for j in range(most):
            rest = lengths - 8 * j
            word = words[np.minimum(starts + 8 * j, size)] & _KEEP_BYTES[np.clip(rest, 0, 8)]
            word = fmix64(word + np.uint64(((j + 1) * _GOLDEN) & _U64))
            total += word if j == 0 else np.where(rest > 0, word, np.uint64(0))
    else:
        first = np.cumsum(counts) - counts
        position = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(first, counts)
        rest = np.repeat(lengths, counts) - 8 * position
        at = np.repeat(starts, counts) + 8 * position
        word = words[np.minimum(at, size)] & _KEEP_BYTES[np.clip(rest, 0, 8)]
        word = fmix64(word + (position + 1).astype(np.uint64) * np.uint64(_GOLDEN))
        total = np.add.reduceat(word, first)
    total ^= _SEED_BYTES
    total += lengths.astype(np.uint64) * _COMBINE
    return fmix64(total)


def _hash_list(array: pa.ListArray, element: t.LogicalType) -> np.ndarray:
    n = len(array)
    offsets = value_offsets(array).astype(np.int64)
    lengths = np.diff(offsets)
    valid = validity(array)
    if valid is not None:
        # A NULL list may span elements; its own hash is replaced by NULL's afterwards.
        lengths = np.where(valid, lengths, 0)
    items = hash_column(Column.from_arrow(element, array.values))
    starts = np.repeat(offsets[:-1], lengths)
    first = np.cumsum(lengths) - lengths
    position = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(first, lengths)
    mixed = fmix64(items[starts + position] + (position + 1).astype(np.uint64) * np.uint64(_GOLDEN))
    total = np.zeros(n, np.uint64)
    np.add.at(total, np.repeat(np.arange(n), lengths), mixed)
    total ^= _SEED_LIST
    total += lengths.astype(np.uint64) * _COMBINE
    return fmix64(total)


def _hash_objects(values: np.ndarray) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    for i, value in enumerate(values):
        out[i] = _hash_object(value)
    return out


def _hash_object(value: Any) -> np.uint64:
    match value:
        case None:
            return NULL_HASH
        case bool() | int() if -(2**63) <= value < 2**63:
            return _hash_fixed(np.array([value], np.int64))[0]
        case float():
            return _hash_fixed(np.array([value], np.float64))[0]
        case str() | bytes():
            raw = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
            return _hash_bytes(raw, np.array([0, len(raw)], np.int64))[0]
        case tuple() | list():
            out = np.array([_SEED_LIST])
            for item in value:
                out *= _COMBINE
                out += _hash_object(item)
                fmix64(out)
            return out[0]
    plain = python_number(value)
    if plain is not value:
        return _hash_object(plain)
    return _hash_object(canonical(value))
