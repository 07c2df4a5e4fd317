"""Nodes that stand in an expression until the table is known: columns by rule, window times, functions."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class ColumnRange(exp.Expression):
    """``range_(start, end)``: columns by name or by position, from 1."""

    arg_types: ClassVar[dict[str, bool]] = {"start": True, "end": True}


class ColumnChoice(exp.Expression):
    """``with_columns``, or, with ``without``, all columns but these."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False, "without": False}


class Flattened(exp.Expression):
    """The fields of a ROW, each a column."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class WindowTime(exp.Expression):
    """START, END, ROWTIME or PROCTIME of a group window; ``this``: the column that names it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class RowCount(exp.Expression):
    """``row_interval(n)``"""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Bound(exp.Expression):
    """UNBOUNDED or CURRENT ROW, of an OVER window's ``kind`` ROWS or RANGE."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}
