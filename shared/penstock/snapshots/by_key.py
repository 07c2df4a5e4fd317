"""Rows of a snapshot that are identified by their key: a newer row replaces an older one with the same key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.key_index import KeyIndex
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The size of a namespace, which is a window: its start and its end, two int64 in µs.
NAMESPACE_BYTES = 16
#: The last column of a delta's rows: whether the key was removed.
REMOVED_COLUMN = "__removed"


def without_keys(
    rows: pa.RecordBatch, newer: Sequence[pa.RecordBatch], schema: Mapping[str, Any]
) -> pa.RecordBatch:
    """The rows whose identity does not occur in ``newer``. ``schema``: the ``KeyedBlock.schema`` of the
    state."""
    if not rows.num_rows or not any(b.num_rows for b in newer):
        return rows
    types = _identity_types(schema)
    index = KeyIndex(types)
    for batch in newer:
        index.upsert(_identity(batch, types), batch.num_rows)
    kept = index.lookup(_identity(rows, types), rows.num_rows) < 0
    return rows if kept.all() else rows.take(pa.array(np.flatnonzero(kept)))


def without_removed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are not marked as removed, without the column of marks."""
    if REMOVED_COLUMN not in batch.schema.names:
        return batch
    removed = batch.column(REMOVED_COLUMN).to_numpy(zero_copy_only=False)
    rows = batch.drop_columns([REMOVED_COLUMN])
    return rows if not removed.any() else rows.take(pa.array(np.flatnonzero(~removed)))


def _identity_types(schema: Mapping[str, Any]) -> list[t.LogicalType]:
    types = [t.type_from_json(x).with_nullable(True) for x in schema["key_types"]]
    for name in schema["identity"][len(types) :]:
        binary = name == "namespace"
        type_ = t.BinaryType(NAMESPACE_BYTES) if binary else t.type_from_json(schema["types"][name])
        types.append(type_.with_nullable(True))
    return types


def _identity(batch: pa.RecordBatch, types: Sequence[t.LogicalType]) -> list[Column]:
    """The leading columns that identify a row."""
    return [Column.from_arrow(type_, batch.column(i)) for i, type_ in enumerate(types)]
