"""Helpers of all joins: NULL keys, conditions, output rows, and probes that expand in bounded steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.functions.expr import input_refs, shift_refs
from penstock.operators.calc import compile_condition
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.functions.expr import Expr
    from penstock.operators.operator import OperatorContext

#: The most pairs that a probe expands to before they are emitted.
PAIR_LIMIT = 65_536


def matchable_rows(batch: Batch, keys: Sequence[int], null_safe: Sequence[bool]) -> np.ndarray | None:
    """Mask of the rows whose key can equal another: no NULL, except in null-safe columns. None: all rows."""
    mask: np.ndarray | None = None
    for position, index in enumerate(keys):
        if position < len(null_safe) and null_safe[position]:
            continue
        valid = batch.columns[index].valid
        if valid is not None:
            mask = valid if mask is None else mask & valid
    return None if mask is None or mask.all() else mask


def bounded_slices(counts: np.ndarray, limit: int = PAIR_LIMIT) -> Iterator[slice]:
    """Slices of the rows whose counts add up to at most ``limit`` each; a single row may exceed it."""
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
    """``n`` rows of NULLs: the padded side of an outer join."""
    return [Column.nulls(f.type.with_nullable(True), n) for f in schema.fields]


class Fetches(Protocol):
    """Stored rows from which single columns can be read."""

    def take_some(self, entries: np.ndarray, indices: Sequence[int]) -> list[Column]:
        """The columns ``indices`` of the rows of ``entries``."""


class PairCondition:
    """A join's residual condition over (left columns, right columns). It reads only the columns that it needs."""

    def __init__(self, condition: Expr | None, left: Schema, right: Schema, ctx: OperatorContext) -> None:
        self._holds: Callable[[Batch], np.ndarray] | None = None
        if condition is None:
            return
        fields = (*left.fields, *right.fields)
        read = sorted(input_refs(condition))
        #: For each side: the columns that the condition reads.
        self._columns = (
            [i for i in read if i < len(left.fields)],
            [i - len(left.fields) for i in read if i >= len(left.fields)],
        )
        self._schema = Schema(tuple(fields[i] for i in read))
        narrow = shift_refs(condition, {index: place for place, index in enumerate(read)})
        self._holds = compile_condition(narrow, ctx)

    def meeting(
        self, side: int, batch: Batch, rows: np.ndarray, other: Fetches, entries: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The (row, entry) pairs for which the condition holds. ``batch`` belongs to ``side``, ``entries`` to
        ``other``."""
        if self._holds is None:
            return rows, entries
        mine = [batch.columns[i].take(rows) for i in self._columns[side]]
        theirs = other.take_some(entries, self._columns[1 - side])
        pair = [*theirs, *mine] if side else [*mine, *theirs]
        mask = self._holds(Batch(self._schema, pair, num_rows=len(rows)))
        return (rows, entries) if mask.all() else (rows[mask], entries[mask])


def take_all(columns: Sequence[Column], indices: np.ndarray) -> list[Column]:
    """The rows ``indices`` of each column."""
    return [c.take(indices) for c in columns]
