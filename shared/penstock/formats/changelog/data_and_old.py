"""Records with rows as they are now (``data``), and of updates the fields that were different (``old``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.compute as pc

from penstock.errors import RecordError
from penstock.formats.changelog.dialect import (
    AFTER,
    BEFORE,
    DELETE,
    INSERT,
    Changes,
    children,
    codes,
    missing,
    present,
    unknown,
)
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.batch import Batch


class _Row(msgspec.Struct):
    old: dict[str, msgspec.Raw] | None = None


class _Rows(msgspec.Struct):
    old: list[dict[str, msgspec.Raw] | None] | None = None


def data_and_old(
    records: Batch, messages: Sequence[bytes], words: Mapping[str, str], *, lists: bool
) -> Changes:
    """The rows of records with a field ``type`` that says what happened.

    A field that ``old`` lacks did not change; one that is null in it was NULL before.

    Args:
        records: The records.
        messages: Their bytes.
        words: Values of ``type`` → ``insert``, ``update``, ``delete``, or nothing for a record without rows.
        lists: ``data`` and ``old`` are lists of rows; else a row each.
    """
    kind, names = records.column("type"), list(words)
    found = codes(kind, names)
    did = np.array([*words.values(), ""], object)[found]
    data, data_of = _flat(records.column("data"), lists)
    old, old_of = _flat(records.column("old"), lists)
    counts, olds = np.bincount(data_of, minlength=len(records)), np.bincount(old_of, minlength=len(records))
    rejected: dict[int, RecordError] = {}
    for i in np.flatnonzero(found < 0).tolist():
        rejected[i] = unknown(kind, i, "type", names)
    changed = (did == "insert") | (did == "update") | (did == "delete")
    for i in np.flatnonzero(changed & (counts == 0)).tolist():
        rejected[i] = missing("data", "a change")
    for i in np.flatnonzero((did == "update") & (counts > 0) & (olds == 0)).tolist():
        rejected[i] = missing("old", "an update")
    for i in np.flatnonzero((did == "update") & (olds > 0) & (olds != counts)).tolist():
        rejected[i] = RecordError(
            "the record's 'data' and 'old' differ in length",
            expected=f"{counts[i]} rows in 'old'",
            got=str(olds[i]),
        )
    counted = changed & ~np.isin(np.arange(len(records)), list(rejected))
    kept = np.flatnonzero(counted[data_of])
    message = data_of[kept]
    number = kept - (np.cumsum(counts) - counts)[message]
    update = did[message] == "update"
    at_old = np.where(update, (np.cumsum(olds) - olds)[message] + number, -1)
    now = [c.take(kept) for c in children(data)]
    named = _named(data, now, old, at_old, message, number, messages, lists)
    before = [
        Column.concat([was, new]).take(_choice(was, at_old, named[i], len(old)))
        for i, (was, new) in enumerate(zip(children(old), now, strict=True))
    ]
    n, deleted = len(kept), did[message] == "delete"
    olds_, news = np.flatnonzero(update), np.arange(n)
    kinds = np.concatenate((
        np.full(len(olds_), BEFORE), np.where(update, AFTER, np.where(deleted, DELETE, INSERT))
    ))  # fmt: skip
    # Both rows of an update side by side, the old one first.
    order = np.argsort(np.concatenate((2 * olds_, 2 * news + 1)), kind="stable")
    pool = [Column.concat(pair) for pair in zip(before, now, strict=True)]
    take = np.concatenate((olds_, n + news))[order]
    of = np.concatenate((message[olds_], message))[order]
    return Changes(pool, take, kinds[order].astype(np.uint8), of, rejected)


def _flat(column: Column, lists: bool) -> tuple[Column, np.ndarray]:
    """The rows of all records one after another, and the record of each."""
    if not lists:
        there = np.flatnonzero(present(column))
        return column.take(there), there
    assert isinstance(column.type, t.ArrayType)
    lengths = pc.fill_null(pc.list_value_length(column.values), 0).to_numpy(zero_copy_only=False)
    return Column(column.type.element, column.values.flatten()), np.repeat(np.arange(len(column)), lengths)


def _choice(was: Column, at_old: np.ndarray, named: np.ndarray, olds: int) -> np.ndarray:
    """For each row, where its old value is: in ``was``, or behind it among the new values."""
    rows = np.arange(len(at_old))
    if not olds:
        return rows
    taken = (at_old >= 0) & (present(was)[np.maximum(at_old, 0)] | named)
    return np.where(taken, at_old, olds + rows)


def _named(
    data: Column,
    now: Sequence[Column],
    old: Column,
    at_old: np.ndarray,
    message: np.ndarray,
    number: np.ndarray,
    messages: Sequence[bytes],
    lists: bool,
) -> np.ndarray:
    """(field, row): whether ``old`` names the field, where it is null there and not in ``data``. Such rows are
    read a second time, since columns cannot tell a null from a field that is not there."""
    assert isinstance(data.type, t.RowType)
    out = np.zeros((len(now), len(at_old)), np.bool_)
    updated = np.flatnonzero(at_old >= 0)
    doubtful = np.zeros(len(updated), np.bool_)
    for was, new in zip(children(old), now, strict=True):
        doubtful |= ~present(was)[at_old[updated]] & present(new)[updated]
    for row in updated[doubtful].tolist():
        bytes_ = messages[int(message[row])]
        if lists:
            rows = msgspec.json.decode(bytes_, type=_Rows).old or []
            names = rows[int(number[row])] or {}
        else:
            names = msgspec.json.decode(bytes_, type=_Row).old or {}
        for i, field in enumerate(data.type.fields):
            out[i, row] = field.name in names
    return out
