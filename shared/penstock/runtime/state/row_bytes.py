"""Rows of columns ↔ one byte string a row, for the row-by-row tier on disk.

Fixed-width columns first, as they lie in memory, each with a byte that says whether it is
NULL; then the rest, each with its length, in the codec of its type.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.state.codec import codec
from penstock.runtime.state.values import from_python, to_python
from penstock.types.column import Column, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

_LENGTH = struct.Struct("<I")


class RowBytes:
    """``canonical``: equal values have equal bytes (for keys: −0.0 is 0.0, one NaN)."""

    def __init__(self, types: Sequence[LogicalType], *, canonical: bool = False) -> None:
        self._types = list(types)
        self._canonical = canonical
        dtypes = [numpy_dtype(x) for x in self._types]
        self._fixed = [i for i, d in enumerate(dtypes) if d is not None and not d.hasobject]
        self._rest = [i for i in range(len(self._types)) if i not in self._fixed]
        fields: list[Any] = []
        for i in self._fixed:
            fields += [(f"null{i}", np.bool_), (f"value{i}", dtypes[i])]
        self._dtype = np.dtype(fields)

    def encode(self, columns: Sequence[Column], n: int) -> list[bytes]:
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
        raw, width = block.tobytes(), self._dtype.itemsize
        rows = [raw[at : at + width] for at in range(0, n * width, width)] if width else [b""] * n
        for i in self._rest:
            encode = codec(self._types[i]).encode
            parts = [encode(value) for value in to_python(columns[i])]
            rows = [row + _LENGTH.pack(len(part)) + part for row, part in zip(rows, parts, strict=True)]
        return rows

    def decode(self, rows: Sequence[bytes]) -> list[Column]:
        width = self._dtype.itemsize
        block = np.frombuffer(b"".join(row[:width] for row in rows), self._dtype) if width else None
        out: list[Column | None] = [None] * len(self._types)
        for i in self._fixed:
            assert block is not None
            null = block[f"null{i}"]
            valid = ~null if null.any() else None
            out[i] = Column(self._types[i], np.ascontiguousarray(block[f"value{i}"]), valid)
        at = [width] * len(rows)
        for i in self._rest:
            decode = codec(self._types[i]).decode
            values = []
            for k, row in enumerate(rows):
                start = at[k] + _LENGTH.size
                at[k] = start + _LENGTH.unpack_from(row, at[k])[0]
                values.append(decode(row[start : at[k]]))
            out[i] = from_python(self._types[i], values)
        return [column for column in out if column is not None]
