"""Builds changelog batches: the changes of each key as adjacent −U / +U pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.equality import equal_or_both_null
from penstock.columnar.sorting import stable_argsort
from penstock.types.batch import Batch, RowKind
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import Schema

INSERT, BEFORE, AFTER, DELETE = (np.uint8(k) for k in RowKind)


def typed(schema: Schema, columns: Sequence[Column]) -> list[Column]:
    """The columns under the schema's types, which must have the same storage."""
    return [
        c if c.type == f.type else c.cast_type(f.type) for c, f in zip(columns, schema.fields, strict=True)
    ]


def differs(a: Sequence[Column], b: Sequence[Column], n: int) -> np.ndarray:
    """A boolean per row: whether any column of ``a`` is distinct from the same column of ``b``."""
    out = np.zeros(n, np.bool_)
    for x, y in zip(a, b, strict=True):
        out |= ~equal_or_both_null(x, y)
    return out


def change_batch(
    schema: Schema,
    old: Sequence[Column],
    new: Sequence[Column],
    had: np.ndarray,
    has: np.ndarray,
    *,
    emit_before: bool,
) -> Batch | None:
    """The changelog from the rows ``old`` to the rows ``new``, position by position; None if nothing changed.

    ``had`` and ``has`` are masks: whether a row existed before, and exists now. An unchanged row gives nothing; a
    changed row −U, +U (only +U without ``emit_before``); a new row +I; a removed row −D with its old values.
    """
    n = len(had)
    old, new = typed(schema, old), typed(schema, new)
    both = had & has
    if both.any():
        changed = differs(old, new, n)
        both &= changed
    gone = np.flatnonzero(had & ~has)
    come = np.flatnonzero(has & ~had)
    stay = np.flatnonzero(both)
    first = np.concatenate((gone, stay)) if emit_before else gone
    second = np.concatenate((come, stay))
    if not len(first) + len(second):
        return None
    if not len(first) and not len(stay):
        rows = come if len(come) < n else None
        return Batch(schema, new if rows is None else [c.take(rows) for c in new], num_rows=len(come))
    kinds = np.concatenate((
        np.full(len(gone), DELETE), np.full(len(first) - len(gone), BEFORE),
        np.full(len(come), INSERT), np.full(len(stay), AFTER),
    ))  # fmt: skip
    place = np.concatenate((2 * first, 2 * second + 1))
    order = stable_argsort(place)
    columns = [
        Column.concat([x.take(first), y.take(second)]).take(order) for x, y in zip(old, new, strict=True)
    ]
    return Batch(schema, columns, kinds=kinds[order], num_rows=len(order))
