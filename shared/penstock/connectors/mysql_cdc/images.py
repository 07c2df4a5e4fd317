"""The rows of events, cut into the bytes of their values.

A row has no length, so the rows of an event can only be found one after another. All events are stepped through at
once: step k takes the k-th row of each event, column by column, with NumPy, so that no Python object is made for a
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.connectors.mysql_cdc import events as ev
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Bytes of a value of a fixed size.
_FIXED = {
    ev.TINY: 1, ev.SHORT: 2, ev.LONG: 4, ev.FLOAT: 4, ev.DOUBLE: 8, ev.LONGLONG: 8, ev.INT24: 3, ev.DATE: 3, ev.YEAR: 1,
}  # fmt: skip
#: Bytes of up to nine decimal digits.
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_bytes(precision: int, scale: int) -> int:
    """Bytes of a packed decimal."""
    whole = precision - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


def real_type(type_: int, meta: int) -> tuple[int, int]:
    """A column's type and size: the type STRING stands for CHAR, BINARY, ENUM and SET."""
    if type_ != ev.STRING:
        return type_, meta
    first, second = meta >> 8, meta & 0xFF
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def shape(type_: int, meta: int) -> tuple[int, int]:
    """The size of a value in bytes and 0, or 0 and the size of the length before it. InternalError for a type
    that is not known."""
    type_, meta = real_type(type_, meta)
    if type_ in _FIXED:
        return _FIXED[type_], 0
    match type_:
        case ev.VARCHAR | ev.VAR_STRING | ev.STRING:
            return 0, 2 if meta > 255 else 1
        case ev.BLOB | ev.JSON | ev.GEOMETRY:
            return 0, meta
        case ev.DECIMAL:
            return decimal_bytes(meta >> 8, meta & 0xFF), 0
        case ev.TIME2:
            return 3 + (meta + 1) // 2, 0
        case ev.DATETIME2:
            return 5 + (meta + 1) // 2, 0
        case ev.TIMESTAMP2:
            return 4 + (meta + 1) // 2, 0
        case ev.BIT:
            return (meta >> 8) + (meta & 0xFF > 0), 0
        case ev.ENUM | ev.SET:
            return meta, 0
    raise InternalError("the binary log: a column of an unknown type", got=str(type_))


@dataclass(frozen=True, slots=True)
class RawColumn:
    """Where the values of a column lie. ``begin``, ``end``: int64; ``there``: False for NULL."""

    data: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    there: np.ndarray

    def take(self, rows: np.ndarray) -> RawColumn:
        """The values at ``rows``."""
        return RawColumn(self.data, self.begin[rows], self.end[rows], self.there[rows])


@dataclass(frozen=True, slots=True)
class Images:
    """The rows of events in their order; of an update the old row, then the new one.

    Args:
        event: int64: the event that each row comes from.
        step: int64: the place of the row in its event.
        columns: For each column that is present its values.
    """

    event: np.ndarray
    step: np.ndarray
    columns: list[RawColumn]


def images(bodies: Sequence[bytes], columns: Sequence[tuple[int, int]]) -> Images:
    """The rows of ``bodies``, the parts of events behind ``events.rows_body``, with ``columns``: type and
    metadata of those that are present. InternalError for bytes that are no rows."""
    joined = b"".join(bodies)
    data = np.frombuffer(joined + bytes(64), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)))
    at = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    alive = np.flatnonzero(at < ends)
    at = at[alive]
    shapes = [shape(*column) for column in columns]
    nulls = (len(columns) + 7) // 8
    found: list[tuple[np.ndarray, int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]] = []
    step = 0
    while len(alive):
        flags, at = at, at + nulls
        row = []
        for i, (size, prefix) in enumerate(shapes):
            there = (data[flags + (i >> 3)] >> (i & 7)) & 1 == 0
            if prefix:
                length = np.zeros(len(at), np.int64)
                for byte in range(prefix):
                    length |= data[np.minimum(at + byte, len(joined))].astype(np.int64) << (8 * byte)
                begin = np.where(there, at + prefix, at)
                end = np.where(there, begin + length, at)
            else:
                begin, end = at, np.where(there, at + size, at)
            row.append((begin, end, there))
            at = end
            if (at > ends[alive]).any():
                raise InternalError("the binary log: a row is longer than its event")
        found.append((alive, step, row))
        step += 1
        more = at < ends[alive]
        alive, at = alive[more], at[more]
    if not found:
        none = np.zeros(0, np.int64)
        return Images(none, none, [RawColumn(data, none, none, none.astype(np.bool_)) for _ in columns])
    event = np.concatenate([part[0] for part in found])
    steps = np.concatenate([np.full(len(part[0]), part[1]) for part in found])
    order = np.argsort(event, kind="stable")
    raw = [
        RawColumn(data, *(np.concatenate([part[2][i][k] for part in found])[order] for k in range(3)))
        for i in range(len(columns))
    ]
    return Images(event[order], steps[order], raw)
