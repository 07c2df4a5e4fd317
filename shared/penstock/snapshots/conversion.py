"""Converts state to the columns of the operator that restores it.

Aggregations store the accumulators of each function side by side. A job with fewer functions, or with
another order of them, takes the accumulators of its own functions. A job with more functions was refused
before it started (``snapshots.matching``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import InternalError
from penstock.snapshots.reading import RestoredRows

if TYPE_CHECKING:
    from penstock.jobgraph.identity import OperatorIdentity
    from penstock.snapshots.contract import RestoredState

#: The name of the table with the accumulators. Functions that keep entries have further tables.
CELLS = "cells"


def convert(restored: RestoredState, stored: OperatorIdentity | None, own: OperatorIdentity) -> None:
    """Converts ``restored`` in place. ``stored``: the identity of the operator that wrote it (None: it was
    written by a version without identities, which has the same columns)."""
    if stored is None or CELLS not in stored.columns or stored.columns == own.columns:
        return
    there, wanted = stored.columns[CELLS], own.columns.get(CELLS, ())
    missing = [column for column in wanted if column not in there]
    if missing and stored.layout == own.layout:
        return  # the user asked to keep the state unchanged (--keep-state)
    if missing:
        raise InternalError(
            "the savepoint does not hold state that the job restores",
            expected=", ".join(there),
            got=", ".join(missing),
        )
    order = [there.index(column) for column in wanted]
    keyed = {name: rows for name, rows in restored.keyed.items() if _function(name) is None}
    if CELLS in keyed:
        cells = keyed[CELLS]
        assert isinstance(cells, RestoredRows)
        keyed[CELLS] = cells.mapped(lambda batch: _cells(batch, order))
    for new, old in enumerate(order):
        for name, rows in restored.keyed.items():
            if _function(name) == old:
                keyed[_renamed(name, new)] = rows
    restored.keyed = keyed


def _cells(batch: pa.RecordBatch, order: list[int]) -> pa.RecordBatch:
    """Keys and other leading columns, the wanted accumulators, and the trailing columns."""
    names = batch.schema.names
    functions = [_function(name) for name in names]
    first = next((i for i, f in enumerate(functions) if f is not None), len(names))
    last = max((i for i, f in enumerate(functions) if f is not None), default=first - 1)
    taken = [(i, names[i]) for i in range(first)]
    for new, old in enumerate(order):
        taken += [(i, _renamed(names[i], new)) for i, f in enumerate(functions) if f == old]
    taken += [(i, names[i]) for i in range(last + 1, len(names))]
    return pa.RecordBatch.from_arrays([batch.column(i) for i, _ in taken], names=[name for _, name in taken])


def _function(name: str) -> int | None:
    """The number 3 of ``agg3.0`` (a column) or ``agg3.values`` (a table); None for other names."""
    head, dot, _ = name.partition(".")
    number = head.removeprefix("agg")
    return int(number) if dot and number != head and number.isdigit() else None


def _renamed(name: str, function: int) -> str:
    return f"agg{function}.{name.partition('.')[2]}"
