"""Rows of a result: named tuples that know what they mean in a changelog."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import to_python
from penstock.columnar.rows import row_class
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.types import Batch

__all__ = ["RowKind", "changes", "result_row"]


class _Kind:
    """What ``get_row_kind`` answers; every row of a result has its own."""

    _kind: RowKind

    def get_row_kind(self) -> RowKind:
        """INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Let the row mean ``row_kind``."""
        self._kind = RowKind(row_kind)


@lru_cache(maxsize=1024)
def _result_class(names: tuple[str, ...]) -> type[Any]:
    return type("Row", (_Kind, row_class(names)), {})


def result_row(names: tuple[str, ...], values: Iterable[Any], kind: int) -> Any:
    """A row of columns ``names``: ``row.name``, ``row[0]``, ``row.get_row_kind()``."""
    row = tuple.__new__(_result_class(names), values)
    row._kind = RowKind(kind)
    return row


def changes(batch: Batch) -> Iterator[Any]:
    """The rows of a batch of a changelog."""
    names = tuple(batch.schema.names)
    columns = [to_python(column) for column in batch.columns]
    values = zip(*columns, strict=True) if columns else [()] * len(batch)
    kinds = [0] * len(batch) if batch.kinds is None else batch.kinds.tolist()
    for kind, row in zip(kinds, values, strict=True):
        yield result_row(names, row, kind)
