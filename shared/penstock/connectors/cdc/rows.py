"""Rules for the rows of changes that hold for every followed database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import RecordError
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from penstock.types import logical as t
    from penstock.types.column import Column


def changelog_kinds(
    kinds: np.ndarray, old: np.ndarray, same_key: np.ndarray, *, upserts: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The kinds of rows, and a mask of the rows to deliver.

    An update that changes the key becomes a deletion and an insertion, because the two rows belong to different
    keys.

    Args:
        kinds: uint8 RowKind; the new row of an update follows its old row, if there is one.
        old: Places of the old rows of updates.
        same_key: For each of them, whether the new row has the same key.
        upserts: The changelog has the newest row of each key, and deletions.
    """
    kinds, kept = kinds.copy(), np.ones(len(kinds), np.bool_)
    moved = old[~same_key]
    kinds[moved], kinds[moved + 1] = RowKind.DELETE, RowKind.INSERT
    if upserts:
        kept[old[same_key]] = False
        kinds[kinds == RowKind.UPDATE_AFTER] = RowKind.INSERT
    return kinds, kept


def check_digits(column: Column, precision: int) -> None:
    """Raises ValueError if a time has more digits after its second than the type."""
    step = 10 ** max(0, 6 - precision)
    values = column.values if column.valid is None else column.values[column.valid]
    if step > 1 and (values % step).any():
        raise ValueError(f"more than {precision} digits behind the second")


def check_not_null(field: t.Field, column: Column, key_only: np.ndarray | None, owner: str) -> None:
    """RecordError for NULL in a column declared NOT NULL, except in rows that have only the key (a mask; None:
    none). ``owner``: the connector, for the error."""
    if field.type.nullable or column.valid is None:
        return
    missing = ~column.valid if key_only is None else ~column.valid & ~key_only
    if missing.any():
        raise RecordError(
            f"column '{field.name}' is NULL",
            expected=str(field.type),
            got="NULL",
            where=owner,
            remedy="declare the column without NOT NULL",
        )
