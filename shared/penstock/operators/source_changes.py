"""Changelogs as sources give them: deletions of which only the key is known, and old rows nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.equality import equal_or_both_null
from penstock.errors import ConnectorError
from penstock.operators.changes import AFTER, BEFORE, DELETE, INSERT
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types.logical import Schema

    Computed = Sequence[Callable[[Batch], Column]]


def computed_upserts(batch: Batch, schema: Schema, computed: Computed, known: Sequence[int]) -> Batch:
    """The columns ``computed`` of an upsert changelog. Of a deletion only those at ``known`` are computed, since
    the others depend on columns that it lacks; they are NULL.

    Expressions over the missing columns would see NULL in columns that allow none.
    """
    deleted = np.zeros(len(batch), np.bool_) if batch.kinds is None else batch.kinds == DELETE
    if not deleted.any():
        return batch.with_columns(schema, [f(batch) for f in computed])
    rows, gone = batch.filter(~deleted), batch.filter(deleted)
    whole = rows.with_columns(schema, [f(rows) for f in computed])
    partial = [
        f(gone) if i in known else Column.nulls(schema.types[i], len(gone)) for i, f in enumerate(computed)
    ]
    order = np.empty(len(batch), np.int64)
    order[np.concatenate((np.flatnonzero(~deleted), np.flatnonzero(deleted)))] = np.arange(len(batch))
    return Batch.concat([whole, gone.with_columns(schema, partial)]).take(order)


def check_updates(batch: Batch, where: str) -> None:
    """Raises ConnectorError unless every −U of a source's batch has its +U directly behind it. Without the new row it
    is not known whether the key has changed. ``where`` names the source."""
    if batch.kinds is None:
        return
    before = np.flatnonzero(batch.kinds == BEFORE)
    alone = before[np.append(batch.kinds, INSERT)[before + 1] != AFTER]
    if len(alone):
        raise ConnectorError(
            "the connector parts the old row of an update from the new one",
            expected="in each batch, every -U directly before its +U",
            got=f"a -U at row {alone[0]} of {len(batch)}, and no +U behind it",
            where=where,
            remedy="cut batches with penstock.connectors.api.first_rows, or give deletions and insertions",
        )


def by_key(batch: Batch, keys: Sequence[int], *, drops_before: bool) -> Batch:
    """The changelog of a table whose rows have the key ``keys``, of a batch whose updates were whole.

    A −U and its +U, the next row, with another key become a −D and a +I: an operator that keeps rows by key sees two
    rows. A −U whose +U was set aside by ``on-error`` is a −D. ``drops_before``: the other −U rows are left out, for
    consumers that replace rows by the key.
    """
    if batch.kinds is None or not (batch.kinds == BEFORE).any():
        return batch
    before = np.flatnonzero(batch.kinds == BEFORE)
    after = np.minimum(before + 1, len(batch) - 1)
    paired = batch.kinds[after] == AFTER
    same = paired.copy()
    for key in keys:
        column = batch.columns[key]
        same &= equal_or_both_null(column.take(before), column.take(after))
    kinds = batch.kinds.copy()
    kinds[before[~same]] = DELETE
    kinds[after[paired & ~same]] = INSERT
    out = batch.with_kinds(kinds)
    return out.filter(kinds != BEFORE) if drops_before else out
