"""Tables between ``group_by`` or ``window`` and ``select``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.table.selecting import expression, refuse_rows
from penstock.table.syntax import column, identifier
from penstock.table.udf import UserDefinedFunction
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.table.expression import Expression
    from penstock.table.table import Table
    from penstock.table.windows import GroupWindow, OverWindow

#: The name of the column that holds a function's ROW, until the ROW's fields become columns.
RECORD = "$record"


class GroupedTable:
    """A table whose rows are grouped: ``select`` or ``aggregate`` follows. ``table`` gives the rows."""

    def __init__(self, table: Table, keys: tuple[Expression, ...], window: GroupWindow | None = None) -> None:
        self._window = window
        self._table, self._keys = _with_named_keys(table, keys)

    def select(self, *fields: Expression) -> Table:
        """A table with a row for each group: keys, aggregates, and times of the window."""
        return self._selected(fields, "select")

    def _selected(self, fields: tuple[Any, ...], what: str) -> Table:
        if self._window is not None and self._window.rows is not None:
            from penstock.table.count_windows import select_windows

            return select_windows(self._table, self._keys, self._window, fields)
        selecting = self._table._selecting(self._window)
        items = selecting.named(selecting.items(fields, what))
        keys = [selecting.node(key) for key in self._keys]
        if self._window is not None:
            keys.append(self._window.call())
        group = {"group": exp.Group(expressions=keys)} if keys else {}
        return self._table._queried(what, exp.Select(expressions=items, **group))

    def aggregate(self, func: Any) -> AggregatedTable:
        """Apply one aggregate function, whose ROW becomes columns: ``select`` follows.

        ``func``: a result of ``udaf``, which then gets whole rows, or a call of one.
        """
        return AggregatedTable(self, func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """Apply one table aggregate function, which gives any number of rows of a group: ``select`` follows.

        ``func``: a result of ``udtaf``, which then gets whole rows, or a call of one.
        """
        return FlatAggregateTable(self, func)


class AggregatedTable:
    """A grouped table with an aggregate function: ``select`` follows. ``grouped`` has the groups."""

    #: Whether the function gives several rows of a group.
    _several = False

    def __init__(self, grouped: GroupedTable, func: Any) -> None:
        self._grouped = grouped
        self._func = func

    def select(self, *fields: Expression) -> Table:
        """A table with a row for each group: its keys and the columns of the aggregate."""
        from penstock.table.expressions import col

        grouped, window = self._grouped, self._grouped._window
        call, names = over_rows(grouped._table, self._func)
        refuse_rows(call, "aggregate", several=self._several)
        keys = list(grouped._keys)
        made: list[Any] = [*keys, call.alias(RECORD)]
        if window is not None and window.rows is None:
            w = col(window.name)
            made += [
                w.start.alias(f"{window.name}$start"),
                w.end.alias(f"{window.name}$end"),
                w.rowtime.alias(f"{window.name}$rowtime"),
            ]
        inner = grouped._selected(tuple(made), "aggregate")
        unpacked = self._unpacked(inner, names)
        if window is None or window.rows is not None:
            return unpacked.select(*fields)
        return unpacked.select(*(_from_columns(field, window.name) for field in fields))

    def _unpacked(self, inner: Table, names: tuple[str, ...]) -> Table:
        return unpack(inner, names)


class FlatAggregateTable(AggregatedTable):
    """A grouped table with a table aggregate function: ``select`` follows."""

    _several = True

    def _unpacked(self, inner: Table, names: tuple[str, ...]) -> Table:
        return unnest(inner, names)


def _from_columns(field: Any, window: str) -> Any:
    """The expression with the times of a window replaced by the columns in which an inner query has them."""
    from penstock.table.expression import Expression
    from penstock.table.marks import WindowTime

    def placed(node: exp.Expression) -> exp.Expression:
        if isinstance(node, WindowTime) and isinstance(node.this, exp.Column) and node.this.name == window:
            return column(f"{window}${str(node.args['kind']).lower()}")
        return node

    given = expression(field, "select")
    return Expression(given._node.copy().transform(placed, copy=False), given._names)


def over_rows(table: Table, func: Any) -> tuple[Expression, tuple[str, ...]]:
    """The call of ``func``, and the names of its columns. A function without arguments gets the whole row."""
    from penstock.table.expression import Expression
    from penstock.table.expressions import col, row
    from penstock.table.types import DataType

    names: tuple[str, ...] = ()
    if isinstance(func, Expression):
        names = func._names
        inner = func._node.meta.get("function")
        if not func._node.meta.get("rows") or inner is None:
            return Expression(func._node), names
        func = inner
    if not isinstance(func, UserDefinedFunction):
        raise SpecError(
            "not a function", expected="what udf, udtf or udaf made, or a call of it", got=repr(func)
        )
    fields = t.RowType(tuple(table._schema.fields))
    return func.over_rows()(row(*(col(f.name) for f in fields.fields)).cast(DataType(fields))), names


def unpack(table: Table, names: tuple[str, ...]) -> Table:
    """The table with the fields of the column RECORD as columns in its place."""
    from penstock.table.expressions import col

    index = table._schema.names.index(RECORD)
    type_ = table._schema.types[index]
    others = [col(name) for name in table._schema.names]
    if not isinstance(type_, t.RowType):
        others[index] = others[index].alias(names[0] if names else "f0")
        return table.select(*others)
    record = col(RECORD)
    given = names or tuple(f.name for f in type_.fields)
    if len(given) != len(type_.fields):
        raise SpecError(
            "names of a function's columns", expected=f"{len(type_.fields)} names", got=", ".join(names)
        )
    fields = [record.get(f.name).alias(name) for f, name in zip(type_.fields, given, strict=True)]
    return table.select(*others[:index], *fields, *others[index + 1 :])


def unnest(table: Table, names: tuple[str, ...]) -> Table:
    """The table with a row for each element of the column RECORD, whose fields are columns in its place."""
    from penstock.table.expressions import col

    index = table._schema.names.index(RECORD)
    array = table._schema.types[index]
    if not isinstance(array, t.ArrayType):
        raise AssertionError(f"a table aggregate function gives an ARRAY, not {array}")
    row = array.element
    own = tuple(f.name for f in row.fields) if isinstance(row, t.RowType) else ("f0",)
    given = names or own
    if len(given) != len(own):
        raise SpecError("names of a function's columns", expected=f"{len(own)} names", got=", ".join(names))
    # Names that no column of the table has; an outer join would give rows for empty arrays, too.
    apart = [f"{RECORD}{i}" for i in range(len(own))]
    rows = exp.Unnest(
        expressions=[column(RECORD)],
        alias=exp.TableAlias(this=identifier("$rows"), columns=[identifier(name) for name in apart]),
    )
    joined = table._queried(
        "flat_aggregate", exp.Select(expressions=[exp.Star()], joins=[exp.Join(this=rows, kind="CROSS")])
    )
    others = [col(name) for name in table._schema.names]
    fields = [col(a).alias(name) for a, name in zip(apart, given, strict=True)]
    return joined.select(*others[:index], *fields, *others[index + 1 :])


def _with_named_keys(table: Table, keys: tuple[Expression, ...]) -> tuple[Table, tuple[Expression, ...]]:
    """The table with a column for each key that ``alias`` named, so that ``select`` finds it; the keys."""
    from penstock.table.expressions import col

    named = [key for key in keys if expression(key, "group_by")._names]
    if not named:
        return table, keys
    added = table.add_columns(*named)
    return added, tuple(col(key._names[0]) if key._names else key for key in keys)


class GroupWindowedTable:
    """A table with a group window: ``group_by`` follows. ``table`` gives the rows."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: Expression) -> WindowGroupedTable:
        """Group by the window, ``col('w')``, and other columns."""
        name = self._window.name
        keys = tuple(
            f for f in fields
            if not (isinstance(expression(f, "group_by")._node, exp.Column) and f._node.name == name)
        )  # fmt: skip
        if len(keys) == len(fields):
            raise SpecError(
                "group_by behind window(…) without the window",
                expected=f"col({name!r}) among the columns",
                got=", ".join(map(str, fields)) or "nothing",
            )
        return WindowGroupedTable(self._table, keys, self._window)


class WindowGroupedTable(GroupedTable):
    """A table whose rows are grouped by a window: ``select`` or ``aggregate`` follows."""


class OverWindowedTable:
    """A table with OVER windows: ``select`` follows. ``table`` gives the rows."""

    def __init__(self, table: Table, windows: tuple[OverWindow, ...]) -> None:
        self._table = table
        self._windows = windows

    def select(self, *fields: Expression) -> Table:
        """A row for each row, with aggregates over its windows: ``col('a').sum.over(col('w'))``."""
        selecting = self._table._selecting()
        items = selecting.named(selecting.items(fields, "select"))
        used = {
            window.args["alias"].name
            for item in items
            for window in item.find_all(exp.Window)
            if window.args.get("alias")
        }
        windows = [window.node() for window in self._windows if window.name in used]
        return self._table._queried("select", exp.Select(expressions=items, windows=windows))
