"""``LISTAGG`` and ``ARRAY_AGG`` with ORDER BY: the rows are collected, and put in order when the result is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.expr import Expr, Literal
from penstock.functions.sorted_values import SORTED_TEXT, SORTED_VALUES
from penstock.sql.ordering import sort_item
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.expressions import ExpressionBinder
    from penstock.sql.queries import QueryBinder

_FUNCTIONS = ("LISTAGG", "ARRAY_AGG")
_TEXT = t.VarCharType(nullable=False)


def order_of(ctx: QueryBinder, name: str, arguments: list[Any], within: exp.Order | None) -> exp.Order | None:
    """The ORDER BY inside the parentheses, which is taken out of ``arguments``, or that of WITHIN GROUP; None if the
    call has none."""
    inside = next((a for a in arguments if isinstance(a, exp.Order)), None)
    if inside is not None:
        arguments[arguments.index(inside)] = inside.this
    order = within or inside
    if order is None:
        return None
    if name not in _FUNCTIONS:
        raise ctx.source.unsupported(
            f"ORDER BY in {name}", order, expected="LISTAGG or ARRAY_AGG", remedy="leave ORDER BY out"
        )
    if within is not None and inside is not None:
        raise ctx.source.error(f"{name} has two ORDER BY", within, expected="one of them")
    return order


def collected_row(
    ctx: QueryBinder, order: exp.Order, value: Expr, binder: ExpressionBinder, distinct: bool
) -> tuple[Expr, str]:
    """(the row of the sort keys and ``value``, the directions of the keys)."""
    keys = [sort_item(ctx, item, binder) for item in order.expressions]
    for item, (key, _, _) in zip(order.expressions, keys, strict=True):
        if isinstance(key.type, (t.ArrayType, t.MapType, t.MultisetType, t.RowType)):
            raise ctx.source.error(
                "ORDER BY in an aggregate needs values with an order", item, got=str(key.type)
            )
        if distinct and key != value:
            raise ctx.source.error(
                "ORDER BY of a DISTINCT aggregate names its argument",
                item,
                expected="the aggregated expression",
            )
    directions = "".join(("D" if d else "A") + ("F" if first else "L") for _, d, first in keys)
    return ctx.call("ROW", [*(key for key, _, _ in keys), value], order), directions


def in_order(ctx: QueryBinder, function: str, rows: Expr, directions: str, separator: str) -> Expr:
    """The aggregate's value, from the collected rows."""
    given: list[Expr] = [rows, Literal(directions, _TEXT)]
    if function == "LISTAGG":
        return ctx.call(SORTED_TEXT, [*given, Literal(separator, _TEXT)])
    return ctx.call(SORTED_VALUES, given)
