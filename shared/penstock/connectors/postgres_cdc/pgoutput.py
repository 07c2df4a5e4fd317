"""The messages of PostgreSQL's output plugin ``pgoutput``, version 1, decoded column by column.

A message of a row holds its values one after another, each with its length. All messages of a table are
concatenated, and NumPy steps through them one column at a time, so that no Python object is made for a value.

Source: the PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import InternalError
from penstock.types.arrow_buffers import binary_array
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, COMMIT, ORIGIN, RELATION, TYPE = ord("B"), ord("C"), ord("O"), ord("R"), ord("Y")
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = ord("I"), ord("U"), ord("D"), ord("T"), ord("M")
#: The kinds of messages that describe a row.
ROWS = frozenset((INSERT, UPDATE, DELETE))
_NEW, _OLD, _KEY = ord("N"), ord("O"), ord("K")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
#: The offset of the first tuple's letter: it follows the message's own letter and the table's id.
_TUPLE_AT = 5

_BEGIN = struct.Struct(">qqI")
_COMMIT = struct.Struct(">bqqq")


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it. ``type_id``: the type's OID; ``modifier``: −1 for none."""

    name: str
    type_id: int
    modifier: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """The description of a table that holds from here on in the stream. ``identity``: ``d`` (primary key), ``f`` (full), ``n``, ``i``."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


def begin(payload: bytes) -> tuple[int, int]:
    """The id of the transaction that a message ``B`` begins, and the time of its commit: µs since 2000-01-01 UTC."""
    _, time_us, xid = _BEGIN.unpack_from(payload, 1)
    return xid, time_us


def commit_end(payload: bytes) -> int:
    """The LSN after the transaction that a message ``C`` ends."""
    return int(_COMMIT.unpack_from(payload, 1)[2])


def relation(payload: bytes) -> Relation:
    """Decode a message ``R``."""
    id_ = int.from_bytes(payload[1:5], "big")
    schema, at = _text(payload, 5)
    name, at = _text(payload, at)
    identity, count = chr(payload[at]), int.from_bytes(payload[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        in_key = bool(payload[at] & 1)
        column, at = _text(payload, at + 1)
        type_id, modifier = struct.unpack_from(">Ii", payload, at)
        columns.append(RelationColumn(column, type_id, modifier, in_key))
        at += 8
    return Relation(id_, schema or "pg_catalog", name, identity, tuple(columns))


def truncated(payload: bytes) -> list[int]:
    """The ids of the tables that a message ``T`` empties."""
    count = int.from_bytes(payload[1:5], "big")
    return list(struct.unpack_from(f">{count}I", payload, 6))


def _text(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(0, at)
    return payload[at:end].decode(), end + 1


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of one table in the order of the stream, the old row of an update before the new one.

    Args:
        kinds: uint8 RowKind of each row.
        message: int64: the index of the message that each row comes from.
        columns: For each column of the table its values as text (binary in UTF-8), NULL for NULL.
        unchanged: For each column a mask of values that the server did not send and that no old row has:
            values stored out of line (TOAST) that did not change. None if there are none.
        key_only: Mask of rows that have only the columns of the key; None if there are none.
    """

    kinds: np.ndarray
    message: np.ndarray
    columns: list[pa.BinaryArray]
    unchanged: list[np.ndarray | None]
    key_only: np.ndarray | None

    def __len__(self) -> int:
        return len(self.kinds)


def changes(messages: Sequence[bytes], width: int) -> Changes:
    """The rows of ``messages`` (``I``, ``U``, ``D``) of one table of ``width`` columns. InternalError for
    other bytes."""
    joined = b"".join(messages)
    data = np.frombuffer(joined, np.uint8)
    starts = np.zeros(len(messages), np.int64)
    np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages))[:-1], out=starts[1:])
    letter, mark = data[starts], data[starts + _TUPLE_AT]
    first = _Tuples(joined, data, starts + _TUPLE_AT, width)
    has_old = (letter == UPDATE) & (mark != _NEW)
    which = np.flatnonzero(has_old)
    second = _Tuples(joined, data, first.ends[which], width) if len(which) else None
    kinds = np.full(len(messages), RowKind.INSERT, np.uint8)
    kinds[letter == UPDATE] = RowKind.UPDATE_AFTER
    kinds[letter == DELETE] = RowKind.DELETE
    kinds[has_old] = RowKind.UPDATE_BEFORE
    index = np.arange(len(messages))
    key_only = mark == _KEY
    if second is None:
        unchanged = [mask if mask.any() else None for mask in first.unchanged]
        return Changes(kinds, index, first.columns, unchanged, key_only if key_only.any() else None)
    # First all first tuples, then the second ones of updates; ``order`` puts each new row after its old row.
    order = np.argsort(np.concatenate([index * 2, which * 2 + 1]), kind="stable")
    full_old = ~key_only[which]
    columns: list[pa.BinaryArray] = []
    masks: list[np.ndarray | None] = []
    for i in range(width):
        old, new, missing = first.columns[i], second.columns[i], second.unchanged[i]
        known = missing & full_old
        if known.any():
            # The old row of REPLICA IDENTITY FULL has the value.
            places = np.where(known, which, len(old) + np.arange(len(which)))
            new = pa.concat_arrays([old, new]).take(pa.array(places))
            missing = missing & ~known
        columns.append(pa.concat_arrays([old, new]).take(pa.array(order)))
        mask = np.concatenate([first.unchanged[i], missing])[order]
        masks.append(mask if mask.any() else None)
    all_kinds = np.concatenate([kinds, np.full(len(which), RowKind.UPDATE_AFTER, np.uint8)])[order]
    only = np.concatenate([key_only, np.zeros(len(which), np.bool_)])[order]
    return Changes(
        all_kinds, np.concatenate([index, which])[order], columns, masks, only if only.any() else None
    )


class _Tuples:
    """The tuples whose letters are at the offsets ``at`` of ``data``. ``ends``: the offsets after the
    tuples."""

    def __init__(self, joined: bytes, data: np.ndarray, at: np.ndarray, width: int) -> None:
        mark = data[at]
        if not np.isin(mark, (_NEW, _OLD, _KEY)).all():
            raise InternalError("pgoutput: a row begins with an unknown letter", got=repr(set(mark.tolist())))
        counts = (data[at + 1].astype(np.int64) << 8) | data[at + 2]
        if (counts != width).any():
            raise InternalError(
                "pgoutput: a row has another width than its table",
                expected=f"{width} columns",
                got=str(sorted(set(counts.tolist()))),
            )
        at = at + 3
        self.columns: list[pa.BinaryArray] = []
        self.unchanged: list[np.ndarray] = []
        padded = np.concatenate([data, np.zeros(5, np.uint8)])
        buffer = pa.py_buffer(joined)
        for _ in range(width):
            kind = padded[at]
            there = kind == _TEXT
            if not (there | (kind == _NULL) | (kind == _UNCHANGED)).all():
                raise InternalError("pgoutput: a value of unknown kind", got=repr(set(kind.tolist())))
            size = np.zeros(len(at), np.int64)
            for byte in range(1, 5):
                size = (size << 8) | padded[at + byte]
            size = np.where(there, size, 0)
            begin_ = np.where(there, at + 5, at + 1)
            end = begin_ + size
            self.columns.append(_slices(buffer, begin_, end, there))
            self.unchanged.append(kind == _UNCHANGED)
            at = end
        self.ends = at


def _slices(buffer: pa.Buffer, begin_: np.ndarray, end: np.ndarray, there: np.ndarray) -> pa.BinaryArray:
    """The bytes between each begin and end, both ascending; NULL where ``there`` is False."""
    n = len(begin_)
    offsets = np.empty(2 * n + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begin_, end
    offsets[-1] = end[-1] if n else 0
    # Every second entry of this array is a value; the others are the bytes in between.
    every = binary_array(pa.binary(), offsets, buffer)
    places = pa.array(np.arange(n, dtype=np.int64) * 2, mask=~there)
    return every.take(places)
