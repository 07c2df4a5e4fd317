"""Converts rows of columns to one byte string for each row, and back, for state on disk.

First the columns of fixed width in their memory form, each with a byte that tells whether it is NULL, and
the length of each other column. Then these other columns: texts as they are, the rest in the codec of
their type. Both directions work column by column, without a Python step for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columnar.python_values import from_python, to_python
from penstock.state.codec import codec
from penstock.types import logical as t
from penstock.types.arrow_buffers import (
    binary_array_of_width,
    recut,
    structured_rows,
    value_offsets,
)
from penstock.types.column import Column
from penstock.types.storage import arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

_TEXTS = (*t.STRINGS, *t.BINARIES)
_NOTHING = pa.scalar(b"", pa.binary())


class RowBytes:
    """The byte form of rows with columns of ``types``.

    ``canonical``: equal values have equal bytes, as keys need (−0.0 becomes 0.0, and there is one NaN).
    """

    def __init__(self, types: Sequence[LogicalType], *, canonical: bool = False) -> None:
        self._types = list(types)
        self._canonical = canonical
        dtypes = [numpy_dtype(x) for x in self._types]
        self._fixed = [i for i, d in enumerate(dtypes) if d is not None and not d.hasobject]
        self._rest = [i for i in range(len(self._types)) if i not in self._fixed]
        fields: list[Any] = []
        for i in self._fixed:
            fields += [(f"null{i}", np.bool_), (f"value{i}", dtypes[i])]
        #: The length of a value in bytes; -1 for NULL.
        fields += [(f"length{i}", np.int32) for i in self._rest]
        self._dtype = np.dtype(fields)

    @property
    def width(self) -> int:
        """The bytes of a row before its values of variable length."""
        return self._dtype.itemsize

    @property
    def has_texts(self) -> bool:
        """Whether rows differ in length."""
        return bool(self._rest)

    def encode(self, columns: Sequence[Column], n: int) -> pa.BinaryArray:
        """``n`` rows, none of them NULL."""
        block = np.zeros(n, self._dtype)
        for i in self._fixed:
            column = columns[i]
            values = column.values
            if self._canonical and values.dtype.kind == "f":
                values = np.where(np.isnan(values), np.nan, values + 0.0)
            if column.valid is not None:
                block[f"null{i}"] = ~column.valid
                values = np.where(column.valid, values, np.zeros(1, values.dtype))
            block[f"value{i}"] = values
        parts = []
        for i in self._rest:
            parts.append(_encoded(columns[i]))
            block[f"length{i}"] = _lengths(parts[-1])
        fixed = binary_array_of_width(block, n, self.width)
        if not parts:
            return fixed
        return pc.binary_join_element_wise(
            fixed, *parts, _NOTHING, null_handling="replace", null_replacement=""
        )

    def decode(self, rows: pa.BinaryArray) -> list[Column]:
        """The columns of ``rows``, which contain no NULL and are no slice."""
        n, width = len(rows), self.width
        heads = pc.binary_slice(rows, 0, width) if self._rest else rows
        block = structured_rows(heads, self._dtype) if width else np.zeros(n, self._dtype)
        out: list[Column | None] = [None] * len(self._types)
        for i in self._fixed:
            null = block[f"null{i}"]
            valid = ~null if null.any() else None
            out[i] = Column(self._types[i], np.ascontiguousarray(block[f"value{i}"]), valid)
        if self._rest:
            # The rows are contiguous, and so are their parts: with the offsets of the parts they are one
            # array.
            parts = 1 + len(self._rest)
            lengths = np.empty((n, parts), np.int64)
            lengths[:, 0] = width
            for place, i in enumerate(self._rest, 1):
                lengths[:, place] = np.maximum(block[f"length{i}"], 0)
            first = value_offsets(rows)[:1]
            ends = np.cumsum(lengths.reshape(-1)) + int(first[0])
            whole = recut(rows, np.concatenate((first, ends)).astype(np.int32))
            for place, i in enumerate(self._rest, 1):
                null = block[f"length{i}"] < 0
                at = np.arange(place, n * parts, parts)
                chosen = pa.array(at, mask=null) if null.any() else pa.array(at)
                out[i] = _decoded(self._types[i], whole.take(chosen))
        return [column for column in out if column is not None]


def _encoded(column: Column) -> pa.BinaryArray:
    if isinstance(column.type, _TEXTS):
        return column.values.view(pa.binary())
    encode = codec(column.type).encode
    return pa.array([None if value is None else encode(value) for value in to_python(column)], pa.binary())


def _decoded(type_: LogicalType, values: pa.BinaryArray) -> Column:
    if isinstance(type_, _TEXTS):
        return Column(type_, values.view(arrow_type(type_)))
    decode = codec(type_).decode
    return from_python(type_, [None if value is None else decode(value) for value in values.to_pylist()])


def _lengths(values: pa.BinaryArray) -> np.ndarray:
    lengths = pc.binary_length(values)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, -1)
    return lengths.to_numpy(zero_copy_only=False)
