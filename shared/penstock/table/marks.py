"""Nodes that stand in an expression until its table is known: chosen columns, window times, bounds."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class ColumnRange(exp.Expression):
    """``range_(start, end)``: columns by name, or by position from 1."""

    arg_types: ClassVar[dict[str, bool]] = {"start": True, "end": True}


class ColumnChoice(exp.Expression):
    """``with_columns``, or ``without_columns`` if ``without`` is True."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False, "without": False}


class Flattened(exp.Expression):
    """The fields of a ROW, which become columns."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class FieldAt(exp.Expression):
    """A field of a ROW by its position from 0, until the type of the ROW is known."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "index": True}


class WindowTime(exp.Expression):
    """START, END, ROWTIME or PROCTIME of a group window. ``this``: the column that names the window."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class RowCount(exp.Expression):
    """The number of rows of ``row_interval(n)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Bound(exp.Expression):
    """UNBOUNDED or CURRENT ROW, as a bound of an OVER window's frame. ``kind``: ROWS or RANGE."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}
