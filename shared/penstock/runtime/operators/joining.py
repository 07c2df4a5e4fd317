"""What all joins share: NULL keys, output rows, bounded expansion of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.types.logical import Schema

#: Pairs that one probe may expand to before they are emitted.
PAIR_LIMIT = 65_536


def matchable_rows(batch: Batch, keys: Sequence[int], null_safe: Sequence[bool]) -> np.ndarray | None:
    """Mask of rows whose key can equal another's: no NULL, but in null-safe columns.
    None = all of them."""
    mask: np.ndarray | None = None
    for position, index in enumerate(keys):
        if position < len(null_safe) and null_safe[position]:
            continue
        valid = batch.columns[index].valid
        if valid is not None:
            mask = valid if mask is None else mask & valid
    return None if mask is None or mask.all() else mask


def bounded_slices(counts: np.ndarray, limit: int = PAIR_LIMIT) -> Iterator[slice]:
    """Row slices whose counts add up to at most ``limit`` (a single row may exceed it)."""
    n = len(counts)
    total = np.cumsum(counts)
    start = 0
    while start < n:
        base = int(total[start - 1]) if start else 0
        end = max(int(np.searchsorted(total, base + limit, "right")), start + 1)
        yield slice(start, end)
        start = end


def joined(
    schema: Schema, left: Sequence[Column], right: Sequence[Column], kinds: np.ndarray | None = None
) -> Batch:
    """Left and right columns side by side, under the output's names and types."""
    columns = [
        c if c.type == f.type else c.cast_type(f.type)
        for c, f in zip((*left, *right), schema.fields, strict=True)
    ]
    return Batch(schema, columns, kinds=kinds)


def null_columns(schema: Schema, n: int) -> list[Column]:
    """n rows of NULLs: the padded side of an outer join."""
    return [Column.nulls(f.type.with_nullable(True), n) for f in schema.fields]


def take_all(columns: Sequence[Column], indices: np.ndarray) -> list[Column]:
    return [c.take(indices) for c in columns]
