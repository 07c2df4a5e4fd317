"""SQL types, columns and batches: the data model of all of Penstock.

``Batch``, ``Column`` and ``RowKind`` are imported when they are first used, so that services, which need only
logical types, start without NumPy and Arrow.
"""

from typing import TYPE_CHECKING

from penstock.types.logical import Field, LogicalType, RowType, Schema

if TYPE_CHECKING:
    from penstock.types.batch import Batch, RowKind
    from penstock.types.column import Column

__all__ = ["Batch", "Column", "Field", "LogicalType", "RowKind", "RowType", "Schema"]


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        if name in ("Batch", "RowKind"):
            from penstock.types import batch

            return getattr(batch, name)
        if name == "Column":
            from penstock.types.column import Column

            return Column
        raise AttributeError(f"module 'penstock.types' has no attribute {name!r}")
