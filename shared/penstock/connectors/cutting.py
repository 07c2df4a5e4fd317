"""Cuts a batch of a source so that the old and the new row of an update stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from penstock.types.batch import Batch


def first_rows(batch: Batch, limit: int) -> Batch:
    """The first ``limit`` rows of a batch (at least one); one fewer where the last would be the old row of an update
    whose new row comes next, or two if it is the only one."""
    count = max(1, limit)
    kinds = batch.kinds
    if kinds is None or count >= len(batch) or kinds[count - 1] != RowKind.UPDATE_BEFORE:
        return batch.slice(0, count)
    return batch.slice(0, count - 1 if count > 1 else 2)
