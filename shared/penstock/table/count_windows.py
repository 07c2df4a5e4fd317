"""Group windows of a number of rows: ``Tumble.over(row_interval(n))``, ``Slide.over(row_interval(n)).every(row_interval(m))``.

A window of ``size`` rows of a key closes with its last row. Its aggregates are therefore those of an OVER frame that ends with this
row, and only the rows that close a window remain: state is bounded by the windows' size, and rows are only ever added. Windows that
never fill give no row, as in Flink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.functions.aggregates import is_aggregate
from penstock.sql.reading import function_name
from penstock.table.marks import WindowTime
from penstock.table.syntax import call, identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sql.functions import UserFunctions
    from penstock.table.expression import Expression
    from penstock.table.table import Table
    from penstock.table.windows import GroupWindow

#: The column that numbers the rows of a key.
_NUMBER = "$number"


def select_windows(
    table: Table, keys: Sequence[Expression], window: GroupWindow, fields: Sequence[Any]
) -> Table:
    """The table with one row for each full window of each key.

    Raises:
        SpecError: A field asks for the window's start or end, which are no times.
    """
    from penstock.table.expressions import col

    assert window.rows is not None
    size, slide = window.rows
    selecting = table._selecting()
    for node in (node for field in fields if hasattr(field, "_node") for node in field._node.walk()):
        if isinstance(node, WindowTime):
            raise SpecError(
                "the start or end of a window of rows",
                expected="keys and aggregates: such a window has no times",
                got=f"{str(node.args['kind']).lower()} of '{window.name}'",
            )
    items = selecting.named(selecting.items(tuple(fields), "select"))
    partition = [selecting.node(key) for key in keys]
    functions = table._env.functions

    def over(node: exp.Expression, preceding: int | None) -> exp.Window:
        ordered = exp.Ordered(this=window.time.copy(), nulls_first=True)
        start = "UNBOUNDED" if preceding is None else exp.Literal.number(str(preceding))
        frame = exp.WindowSpec(kind="ROWS", start=start, start_side="PRECEDING", end="CURRENT ROW")
        parts = {"partition_by": [p.copy() for p in partition]} if partition else {}
        return exp.Window(this=node, order=exp.Order(expressions=[ordered]), spec=frame, **parts)

    made = [_over_frames(item, functions, lambda node: over(node, size - 1)) for item in items]
    number = exp.Alias(this=over(call("COUNT", [exp.Star()]), None), alias=identifier(_NUMBER))
    rows = table._queried("select", exp.Select(expressions=[*made, number]))
    names = [name for name in rows._schema.names if name != _NUMBER]
    closes = (col(_NUMBER) >= size) & ((col(_NUMBER) - size) % slide == 0)
    return rows.where(closes).select(*(col(name) for name in names))


def _over_frames(node: exp.Expression, functions: UserFunctions, over: Any) -> exp.Expression:
    """``node`` with its outermost aggregates over the frame."""
    if isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and _aggregates(node, functions)):
        return over(node.copy())  # type: ignore[no-any-return]
    made = node.copy()
    for child in list(made.iter_expressions()):
        new = _over_frames(child, functions, over)
        child.replace(new)
    return made


def _aggregates(node: exp.Anonymous, functions: UserFunctions) -> bool:
    name = function_name(node)
    return functions.aggregate(name) is not None or (not functions.has(name) and is_aggregate(name))
