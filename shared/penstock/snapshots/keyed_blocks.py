"""Converts keyed rows to snapshot blocks, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.columnar.hashing import HASH_VERSION, hash_columns, key_groups
from penstock.snapshots.contract import KeyedBlock
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

#: The last column of a block whose rows are identified by slot number.
SLOT_COLUMN = "__slot"


def keyed_block(
    keys: Sequence[Column],
    payload: Sequence[Column],
    names: Sequence[str],
    *,
    n: int,
    max_parallelism: int,
    kind: str,
    in_order: bool = False,
    slots: np.ndarray | None = None,
    sort: bool = True,
) -> KeyedBlock:
    """A snapshot block of ``n`` rows, sorted by the key group of ``keys``. It holds ``keys`` and ``payload``
    under ``names``; all arrays are private copies. Without key columns all rows are in key group 0.

    ``in_order``: the rows are already sorted (``in_group_order``) and private, and are not copied.
    ``slots``: the slot number of each row, by which a later delta identifies the row. ``sort`` False: the
    rows keep their order, and a reader of some key groups hashes the keys. ``kind``: the kind of table,
    for readers without the engine.
    """
    columns = [*keys, *payload]
    groups: np.ndarray | None = None
    if (
        sort or not keys or any(_is_raw(c) for c in keys)
    ):  # a RAW value can only be hashed as a Python object, which a reader does not have
        groups = key_groups(hash_columns(keys) if keys else np.zeros(n, np.uint64), max_parallelism)
    if groups is not None and keys and not in_order:
        order = group_order(groups)
        columns, groups = [_taken(c, order) for c in columns], groups[order]
        slots = slots if slots is None else slots[order]
    schema = {
        "kind": kind,
        "hash_version": HASH_VERSION,
        "columns": {name: str(c.type) for name, c in zip(names, columns, strict=True)},
        "key_columns": list(names[: len(keys)]),
    }
    arrays, labels = [c.to_arrow() for c in columns], list(names)
    if not columns:
        arrays, labels = [pa.nulls(n)], ["__rows"]
    if slots is not None:
        small = not len(slots) or int(slots.max()) < 1 << 31
        arrays = [*arrays, pa.array(slots.astype(np.int32) if small else slots)]
        labels = [*labels, SLOT_COLUMN]
    batch = pa.RecordBatch.from_arrays(arrays, names=labels)
    block = KeyedBlock(batch, groups, schema, identity="" if slots is None else "slot")
    if groups is None:
        block.hashed_by = tuple(c.type for c in keys), max_parallelism
    return block


def in_group_order(slots: np.ndarray, keys: Sequence[Column], max_parallelism: int) -> np.ndarray:
    """``slots`` sorted by the key group of their ``keys``, so that wide rows are copied only once."""
    if not keys:
        return slots
    return slots[group_order(key_groups(hash_columns(keys), max_parallelism))]


def _is_raw(column: Column) -> bool:
    return isinstance(column.values, np.ndarray) and column.values.dtype.hasobject


def group_order(groups: np.ndarray) -> np.ndarray:
    """The stable order of rows by key group. Key groups are below 2^15, and numbers of 16 bits are sorted by
    counting."""
    return np.argsort(groups.astype(np.uint16), kind="stable")


def _taken(column: Column, order: np.ndarray) -> Column:
    """``Column.take`` for a permutation, without its checks."""
    values = column.values
    if not isinstance(values, np.ndarray):
        return column.take(order)
    valid = column.valid
    return Column(
        column.type,
        values.take(order, mode="clip"),
        None if valid is None else valid.take(order, mode="clip"),
    )


def restored_columns(
    batches: Sequence[pa.RecordBatch], types: Sequence[LogicalType]
) -> tuple[list[Column], int]:
    """(columns in the order of ``keyed_block``, number of rows) of all batches together."""
    batches = [b for b in batches if b.num_rows]
    n = sum(b.num_rows for b in batches)
    if not n:
        return [Column.nulls(x, 0) for x in types], 0
    columns = [Column.concat([_column(b, i, x) for b in batches]) for i, x in enumerate(types)]
    return columns, n


def _column(batch: pa.RecordBatch, i: int, type_: LogicalType) -> Column:
    """Column ``i``; NULLs if an older version did not write it."""
    if i < batch.num_columns and batch.schema.names[i] != SLOT_COLUMN:
        return Column.from_arrow(type_, batch.column(i))
    return Column.nulls(type_, batch.num_rows)
