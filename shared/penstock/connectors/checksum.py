"""A checksum of rows that depends neither on their order nor on their batches.

The checksum reads every byte but is cheap, so that a benchmark measures the job and not its sink. It adds up
a 64-bit hash of each row, over the fixed-width values and the lengths of strings and lists (which ties values
to their row), and for each column the sum of all string bytes. All sums are modulo 2**64. The storage of NULL
values does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.types.arrow_buffers import unsigned_words, validity, value_bytes, value_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types import Column

MASK = 2**64 - 1
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0x9E3779B97F4A7C15)
_S = np.uint64(32)
_NULL = np.uint64(0x452821E638D01377)
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def rows_checksum(columns: Sequence[Column], num_rows: int) -> int:
    """The checksum of ``num_rows`` rows; 0 if there are none."""
    if not num_rows:
        return 0
    state = _State(num_rows)
    for column in columns:
        values = column.values
        if isinstance(values, np.ndarray):
            state.add_fixed(values, column.valid)
        else:
            state.add_arrow(values)
    return state.result()


class _State:
    def __init__(self, n: int) -> None:
        self._rows = np.full(n, 0x243F6A8885A308D3, np.uint64)
        self._bytes = 0
        self._columns = 0

    def result(self) -> int:
        rows = self._rows
        rows ^= rows >> _S
        rows *= _M1
        rows ^= rows >> _S
        return (int(rows.sum(dtype=np.uint64)) + self._bytes) & MASK

    def add_word(self, word: np.ndarray, valid: np.ndarray | None) -> None:
        """Fold one uint64 a row into the row hashes."""
        if valid is not None:
            word = np.where(valid, word, _NULL)
        rows = self._rows
        rows *= _M2
        rows ^= rows >> _S
        rows += word * _M1
        self._columns += 1

    def add_fixed(self, values: np.ndarray, valid: np.ndarray | None) -> None:
        if values.dtype.hasobject:
            words = np.array([len(repr(v)) for v in values], np.uint64)
            self._bytes += sum(sum(repr(v).encode()) for v in values)
            self.add_word(words, valid)
            return
        if values.dtype.kind == "f":
            values = values + 0.0  # -0.0 becomes 0.0
        bits = np.ascontiguousarray(values).view(_UNSIGNED[values.dtype.itemsize])
        self.add_word(bits.astype(np.uint64, copy=False), valid)

    def add_arrow(self, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_struct(kind):
            self.add_word(_valid_words(array), None)
            for child in array.flatten():
                self.add_arrow(child)
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            self._add_list(array)
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._add_text(array)
        elif pa.types.is_boolean(kind):
            self.add_word(array.cast(pa.uint8()).fill_null(2).to_numpy().astype(np.uint64), None)
        elif pa.types.is_null(kind):
            self.add_word(np.full(len(array), _NULL), None)
        else:
            self._add_fixed_arrow(array)

    def _add_fixed_arrow(self, array: pa.Array) -> None:
        valid = validity(array)
        for word in unsigned_words(array).T:
            self.add_word(word.astype(np.uint64), valid)

    def _add_text(self, array: pa.Array) -> None:
        lengths = np.diff(value_offsets(array))
        valid = validity(array)
        if valid is not None and lengths[~valid].any():
            array = array.drop_null()
        self.add_word(lengths.astype(np.uint64), valid)
        data = value_bytes(array)
        # uint32 sums of uint8 are the fast path; 16 MiB of 255 fit.
        for at in range(0, len(data), 1 << 24):
            self._bytes += int(data[at : at + (1 << 24)].sum(dtype=np.uint32)) * (self._columns + 1)

    def _add_list(self, array: pa.Array) -> None:
        lengths = np.diff(value_offsets(array))
        valid = validity(array)
        self.add_word(lengths.astype(np.uint64), valid)
        if pa.types.is_map(array.type):
            array = array.drop_null()
            start, end = value_offsets(array)[[0, -1]] if len(array) else (0, 0)
            children = [array.keys[start:end], array.items[start:end]]
        else:
            children = [array.flatten()]
        for child in children:
            inner = _State(len(child))
            if len(child):
                inner.add_arrow(child)
                self._bytes += inner.result() * (self._columns + 1)


def _valid_words(array: pa.Array) -> np.ndarray:
    valid = validity(array)
    return np.ones(len(array), np.uint64) if valid is None else valid.astype(np.uint64)
