"""Rows by primary key, as Arrow tables: the last change of each key, and the rows whose keys have changed."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from penstock.errors import ConnectorError
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The column of row kinds beside the columns of a table.
KIND = "__penstock_kind"
_ROW = "__penstock_row"


def check_keys(schema: pa.Schema, keys: Sequence[str], where: str) -> None:
    """Raises ConnectorError for a key column of a type whose equality is not that of SQL in every reader."""
    for name in keys:
        type_ = schema.field(name).type
        if at.is_floating(type_) or at.is_nested(type_):
            raise ConnectorError(
                f"column '{name}' cannot be in the primary key of this table",
                expected="a text, BYTES, BOOLEAN, a whole number, DECIMAL, DATE, TIME or TIMESTAMP",
                got=str(type_),
                where=where,
                remedy="CAST it, or take another key",
            )


def last_changes(changes: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """(The rows that are there afterwards, the keys of all changes). ``changes``: in order, with the column ``KIND``; of
    each key the last change counts. The columns of both are those of ``changes`` without ``KIND``, and ``keys``."""
    numbered = changes.select(list(keys)).append_column(_ROW, pa.array(np.arange(changes.num_rows)))
    newest = numbered.group_by(list(keys), use_threads=False).aggregate([(_ROW, "max")])
    last = changes.take(np.sort(newest.column(f"{_ROW}_max").to_numpy()))
    kinds = last.column(KIND)
    added = pc.or_(pc.equal(kinds, int(RowKind.INSERT)), pc.equal(kinds, int(RowKind.UPDATE_AFTER)))
    return last.drop_columns([KIND]).filter(added), last.select(list(keys))


def rows_with(found: pa.Table, gone: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """For each row of ``found``, a boolean: whether ``gone`` has its key."""
    mask = np.zeros(found.num_rows, bool)
    numbered = found.select(list(keys)).append_column(_ROW, pa.array(np.arange(found.num_rows)))
    hit = numbered.join(gone.select(list(keys)), list(keys), join_type="left semi", use_threads=False)
    mask[hit.column(_ROW).to_numpy()] = True
    return mask


class KeyRanges:
    """Tells of a file by its least and greatest values whether it may hold one of the keys ``gone``."""

    def __init__(self, gone: pa.Table, keys: Sequence[str]) -> None:
        self._values: dict[str, list[Any]] = {
            name: sorted(pc.unique(gone.column(name)).to_pylist())
            for name in keys
            if at.is_integer(gone.schema.field(name).type) or at.is_string(gone.schema.field(name).type)
        }

    def may_have(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """``bounds``: column → (least, greatest) of a file; a column without bounds may hold every value."""
        for name, values in self._values.items():
            if name not in bounds:
                continue
            low, high = bounds[name]
            first = bisect.bisect_left(values, low)
            if first == len(values) or values[first] > high:
                return False
        return True
