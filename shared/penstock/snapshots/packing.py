"""Packs columns of whole numbers into fewer bytes for a snapshot, and unpacks them.

Counters, sums and slot numbers rarely need 8 bytes. A packed column holds the differences to its smallest
value, in the narrowest unsigned integers that fit. A column with one value takes no space (Arrow's null
type). The metadata of the field records this (``penstock.type``, ``penstock.base``), so that any Arrow
library can read it. Packing costs a tenth of the time of LZ4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.types.arrow_buffers import fixed_values

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPE, _BASE = b"penstock.type", b"penstock.base"
_WIDE: dict[pa.DataType, type] = {pa.int64(): np.int64, pa.int32(): np.int32}
_NAMES = {str(x).encode(): x for x in _WIDE}
#: Shorter batches are not packed, because the metadata would outweigh the gain.
_LEAST_ROWS = 64


def pack(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with whole numbers (int32, int64) without NULLs as narrow as possible."""
    if batch.num_rows < _LEAST_ROWS:
        return batch
    arrays, fields = [], []
    for array, field in zip(batch.columns, batch.schema, strict=True):
        packed, base = _narrow(array)
        if packed is not None:
            metadata = {_TYPE: str(array.type).encode(), _BASE: str(base).encode()}
            array, field = packed, pa.field(field.name, packed.type, metadata=metadata)
        arrays.append(array)
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _narrow(array: pa.Array) -> tuple[pa.Array | None, int]:
    dtype = _WIDE.get(array.type)
    if dtype is None or array.null_count:
        return None, 0
    values = fixed_values(array, np.dtype(dtype))
    low = int(values.min())
    span = int(values.max()) - low
    if not span:
        return pa.nulls(len(values)), low
    for narrow in (np.uint8, np.uint16, np.uint32):
        if np.dtype(narrow).itemsize < values.itemsize and span <= np.iinfo(narrow).max:
            out = np.empty(len(values), narrow)
            np.subtract(values, low, out=out, casting="unsafe")
            return pa.array(out), low
    return None, 0


def unpack(batch: pa.RecordBatch, columns: Sequence[int] | None = None) -> pa.RecordBatch:
    """The original rows. ``columns``: the indices of the wanted columns, in this order; None: all."""
    wanted = range(batch.num_columns) if columns is None else columns
    fields = [batch.schema.field(i) for i in wanted]
    if columns is None and not any(f.metadata and _TYPE in f.metadata for f in fields):
        return batch
    arrays = []
    for n, i in enumerate(wanted):
        array, metadata = batch.column(i), fields[n].metadata or {}
        if _TYPE in metadata:
            type_, base = _NAMES[metadata[_TYPE]], int(metadata[_BASE])
            array = pa.array(_widened(array, _WIDE[type_], base))
            fields[n] = pa.field(fields[n].name, type_)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _widened(array: pa.Array, dtype: type, base: int) -> np.ndarray:
    if pa.types.is_null(array.type):
        return np.full(len(array), base, dtype)
    # A difference of 32 bits may exceed int32. It wraps around, and the addition wraps back.
    out: np.ndarray = fixed_values(array, np.dtype(array.type.to_pandas_dtype())).astype(dtype)
    if base:
        out += dtype(base)
    return out
