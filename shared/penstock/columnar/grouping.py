"""Groups of equal keys within one batch. The local phase of an aggregate groups by them.

No state lasts between batches, so no table is probed. Each key becomes a code; the codes of several columns
become one number per row. Groups are numbered by counting, or by one packed sort if the range is wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import order_codes, stable_argsort
from penstock.types import logical as t
from penstock.types.arrow_buffers import equal_length_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.column import Column

#: Codes are counted, not sorted, if their range is at most _DENSE or at most _DENSE_TIMES the rows.
_DENSE, _DENSE_TIMES = 1 << 16, 8
_WIDEST = 1 << 62


def group_rows(columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
    """(group of each of the ``n`` rows, first row of each group), both int64.

    Groups are numbered from 0. NULL is a key of its own. Without columns all rows are one group.
    """
    codes, span = np.zeros(n, np.int64), 1
    for column in columns:
        found = _codes(column)
        if found is None:
            return _by_table(columns, n)
        more, size = found
        if size == 1:
            continue
        if span > _WIDEST // size:
            codes, span = _compact(codes)
            more, size = _compact(more)
        codes = more if span == 1 else codes * size + more
        span *= size
    return group_codes(codes, span)


def group_codes(codes: np.ndarray, span: int) -> tuple[np.ndarray, np.ndarray]:
    """``group_rows`` of int64 codes with 0 <= code < ``span``."""
    n = len(codes)
    if span == 1 or n == 0:
        return np.zeros(n, np.int64), np.zeros(min(n, 1), np.int64)
    if span <= max(_DENSE, _DENSE_TIMES * n):
        # Of several writes to one place the last stays: written backwards, that is the code's first row.
        place = np.empty(span, np.int32)
        rows = np.arange(n, dtype=np.int32)
        place[codes[::-1]] = rows[::-1]
        first = place[codes]
        is_first = first == rows
        return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)
    order = stable_argsort(codes)
    ordered = codes[order]
    starts = np.empty(n, np.bool_)
    starts[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    groups = np.empty(n, np.int64)
    groups[order] = np.cumsum(starts) - 1
    return groups, order[starts]


def distinct_slots(slots: np.ndarray, high: int) -> np.ndarray:
    """The distinct slots, ascending. All ``slots`` must be below ``high``."""
    if high > _DENSE_TIMES * len(slots) + 1024:
        return distinct(slots)
    seen = np.zeros(high, np.bool_)
    seen[slots] = True
    return np.flatnonzero(seen)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The distinct values, ascending. A plain sort is five times as fast as ``np.unique``."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _codes(column: Column) -> tuple[np.ndarray, int] | None:
    """(int64 code of each row, one above the highest code); None for a type without a cheap code."""
    values, valid = column.values, column.valid
    if isinstance(values, np.ndarray):
        if values.dtype.hasobject:
            return None
        if not len(values):
            return np.zeros(0, np.int64), 1
        numbers = order_codes(column)
        if valid is not None and not valid.all():
            numbers = np.where(valid, numbers, numbers[int(valid.argmax())])
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= _WIDEST:
            codes, span = _compact(numbers)
        else:
            codes, span = numbers - low, high - low + 1
    elif isinstance(column.type, (*t.STRINGS, *t.BINARIES)):
        if _constant(values):
            return np.zeros(len(values), np.int64), 1
        encoded = pc.dictionary_encode(values)
        span = max(len(encoded.dictionary), 1)
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        return None
    if valid is None or valid.all():
        return codes, span
    return np.where(valid, codes, span), span + 1


def _compact(codes: np.ndarray) -> tuple[np.ndarray, int]:
    distinct, dense = np.unique(codes, return_inverse=True)
    return dense, max(len(distinct), 1)


def _constant(values: pa.Array) -> bool:
    """Whether all strings are equal (a day, a country …). This test needs no hashing."""
    rows = equal_length_bytes(values)
    return rows is not None and bool((rows == rows[0]).all())


def _by_table(columns: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray]:
    groups, _ = KeyIndex([c.type for c in columns]).upsert(columns, n)
    return group_codes(groups, int(groups.max()) + 1 if n else 1)
