"""The rows of a result, each with its row kind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import to_python
from penstock.columnar.rows import Row, make_row, shown_plain
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.types import Batch

__all__ = ["Row", "RowKind", "changes", "result_row"]


def result_row(names: tuple[str, ...], values: Iterable[Any], kind: int) -> Row:
    """A row of columns ``names``: ``row.name``, ``row[0]``, ``row.get_row_kind()``.

    In a program that has imported ``pyflink`` it is shown without the names, as PyFlink shows it.
    """
    row = make_row(names, values)
    row = row.with_kind(RowKind(kind)) if kind else row
    if "pyflink" in sys.modules:
        row = shown_plain(row)
    return row


def changes(batch: Batch) -> Iterator[Row]:
    """The rows of a batch of a changelog."""
    names = tuple(batch.schema.names)
    columns = [to_python(column) for column in batch.columns]
    values = zip(*columns, strict=True) if columns else [()] * len(batch)
    kinds = [0] * len(batch) if batch.kinds is None else batch.kinds.tolist()
    for kind, row in zip(kinds, values, strict=True):
        yield result_row(names, row, kind)
