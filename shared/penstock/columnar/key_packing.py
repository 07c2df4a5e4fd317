"""Packs key columns of whole numbers into one int64 per row, and unpacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType


class KeyPacking:
    """Packs one column unchanged, or two or three columns side by side if their values are small."""

    def __init__(self, types: Sequence[LogicalType]) -> None:
        self._types = list(types)
        #: Bits of a key column in the packed int64.
        self._bits = 64 // max(len(self._types), 1)

    @staticmethod
    def suits(types: Sequence[LogicalType]) -> bool:
        """Whether keys of these types can be packed: one to three columns of integer or boolean storage."""
        dtypes = [numpy_dtype(x) for x in types]
        return 0 < len(dtypes) <= 3 and all(d is not None and d.kind in "iub" for d in dtypes)

    def packed(self, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray | None] | None:
        """(int64 keys, mask of the keys that are not NULL or None); None if the values do not fit.

        Among several columns, NULL is the lowest number of the column's bits, which no value may have. The
        mask is then None.
        """
        if len(columns) == 1:
            return columns[0].values.astype(np.int64, copy=False), columns[0].valid
        limit = 1 << (self._bits - 1)
        out: np.ndarray | None = None
        for column in columns:
            values, valid = column.values, column.valid
            if not len(values):
                return np.empty(0, np.int64), None
            if valid is not None:
                values = np.where(valid, values, values.dtype.type(0))
            if values.dtype.itemsize * 8 >= self._bits and not (
                -limit < int(values.min()) and int(values.max()) < limit
            ):
                return None
            if valid is not None:
                values = np.where(valid, values, np.int64(-limit))
            if out is None:
                out = values.astype(np.int64)
            else:
                out <<= self._bits
                out |= values.astype(np.int64, copy=False) & ((1 << self._bits) - 1)
        assert out is not None
        return out, None

    def unpacked(self, keys: np.ndarray, valid: np.ndarray | None) -> list[Column]:
        """The key columns of int64 keys. ``valid`` is the mask of keys that are not NULL (None: all)."""
        if len(self._types) == 1:
            return [Column(self._types[0], keys.astype(_dtype(self._types[0])), valid)]
        columns, left = [], 64 - self._bits * len(self._types)
        null = -(1 << (self._bits - 1))
        for position, type_ in enumerate(self._types):
            part = keys << (left + self._bits * position)
            part >>= 64 - self._bits
            there = part != null
            if there.all():
                columns.append(Column(type_, part.astype(_dtype(type_))))
            else:
                columns.append(Column(type_, np.where(there, part, 0).astype(_dtype(type_)), there))
        return columns


def _dtype(type_: LogicalType) -> np.dtype:
    dtype = numpy_dtype(type_)
    assert dtype is not None
    return dtype
