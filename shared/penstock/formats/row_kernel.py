"""The compiled way from columns to messages (``penstock.native``): one call writes the rows of a batch, and no Python
object is made for a field. The formats say what stands before each value and for NULL."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.formats.by_kernel import MAX_BYTES
from penstock.native import library
from penstock.native.columns import address
from penstock.types.arrow_buffers import binary_array, offsets_and_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.batch import Batch
    from penstock.types.column import Column

CONSTANT, NUMBER, FLAG, TEXT, TIMESTAMP, DATE, ZIGZAG, BYTE, FIXED, BYTES = range(10)
#: The most bytes that a value of a kind takes, apart from the bytes of texts.
_MOST = {
    CONSTANT: 0,
    NUMBER: 20,
    FLAG: 5,
    TEXT: 2,
    TIMESTAMP: 29,
    DATE: 12,
    ZIGZAG: 10,
    BYTE: 1,
    FIXED: 8,
    BYTES: 10,
}


@dataclass(frozen=True, slots=True)
class Part:
    """One column of each row. ``lead``: the bytes before a value; ``null``: those for NULL, None where NULL has no form;
    ``unit``: see encode.c."""

    kind: int
    lead: bytes
    null: bytes | None
    unit: int = 1


class _Part(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32), ("width", ctypes.c_int32), ("lead_at", ctypes.c_int32), ("lead_len", ctypes.c_int32),
        ("null_at", ctypes.c_int32), ("null_len", ctypes.c_int32), ("unit", ctypes.c_int64),
        ("valid", ctypes.c_void_p), ("values", ctypes.c_void_p), ("offsets", ctypes.c_void_p),
    ]  # fmt: skip


class RowKernel:
    """Use ``kernel_of``."""

    def __init__(self, found: ctypes.CDLL, parts: Sequence[Part], tail: bytes) -> None:
        self._encode, self._escapes = found.penstock_encode, found.penstock_escapes
        self._encode.restype = self._escapes.restype = ctypes.c_int64
        self._parts = parts
        self._constants = b""
        self._made = (_Part * (len(parts) + 1))()
        for made, part in zip(self._made, [*parts, Part(CONSTANT, tail, None)], strict=True):
            null = part.null or b""
            made.kind, made.unit = part.kind, part.unit
            made.lead_at, made.lead_len = len(self._constants), len(part.lead)
            made.null_at, made.null_len = len(self._constants) + len(part.lead), len(null)
            self._constants += part.lead + null
        #: Bytes of a row beside those of its texts, at most.
        self._most = sum(max(len(p.lead) + _MOST[p.kind], len(p.null or b"")) for p in parts) + len(tail)

    def encode(self, batch: Batch) -> list[bytes] | None:
        """A message for each row; None if a value has no form here, or the messages are very long."""
        rows = len(batch)
        size = rows * self._most
        held: list[np.ndarray] = []  # arrays whose addresses the kernel gets
        for made, part, column in zip(self._made, self._parts, batch.columns, strict=False):
            valid = column.valid
            if valid is not None and part.null is None:
                return None
            if valid is not None:
                held.append(np.ascontiguousarray(valid))
                made.valid = held[-1].ctypes.data
            else:
                made.valid = None
            if part.kind in (TEXT, BYTES):
                size += self._texts(made, part, column, held)
            else:
                held.append(np.ascontiguousarray(column.values))
                made.width, made.values = held[-1].itemsize, held[-1].ctypes.data
        if size > MAX_BYTES:
            return None
        out, offsets = np.empty(size, np.uint8), np.zeros(rows + 1, np.int32)
        done = self._encode(
            self._made, ctypes.c_int32(len(self._made)), ctypes.c_int64(rows), self._constants, address(out),
            address(offsets[1:]),
        )  # fmt: skip
        if done < rows:
            return None
        found: list[bytes] = binary_array(pa.binary(), offsets, out).to_pylist()
        return found

    def _texts(self, made: _Part, part: Part, column: Column, held: list[np.ndarray]) -> int:
        """Gives the kernel the texts of a column; returns how many bytes they take at most."""
        offsets, data = offsets_and_bytes(column.values)
        if offsets.dtype != np.int32:
            return MAX_BYTES + 1
        used = data[offsets[0] : offsets[-1]]
        held += [offsets, data]
        made.values, made.offsets = data.ctypes.data, offsets.ctypes.data
        more = 5 * self._escapes(address(used), ctypes.c_int64(len(used))) if part.kind == TEXT else 0
        return len(used) + int(more)


def kernel_of(parts: Sequence[Part | None], tail: bytes = b"") -> RowKernel | None:
    """An encoder of rows of these columns, with ``tail`` at the end of each; None where the library is missing, there is
    no column, or one is not known to it (None)."""
    found = library()
    known = [part for part in parts if part is not None]
    if found is None or not parts or len(known) < len(parts):
        return None
    return RowKernel(found, known, tail)
