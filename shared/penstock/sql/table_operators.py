"""Operators that an expression of the Table API wrote: a program may replace them, and ``+`` joins texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.functions.expr import Expr
    from penstock.sql.expressions import ExpressionBinder

#: Key in a node's meta: an operator of the Table API wrote it.
OF_TABLE = "of_table"
#: Flink's names of the operators, by which a function of the program takes their place.
_NAMED: dict[type, str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "times",
    exp.Div: "divide",
    exp.Mod: "mod",
}


def of_table(binder: ExpressionBinder, node: exp.Expression, args: list[Expr]) -> Expr | None:
    """The value of an operator with two sides of the Table API, where it differs from SQL's; None where it does not."""
    name = _NAMED.get(type(node))
    if name is None or not node.meta.get(OF_TABLE):
        return None
    user = binder.functions.scalar(name) if binder.functions is not None else None
    if user is not None:
        return binder.user_call(user, args, node)
    if isinstance(node, exp.Add) and all(isinstance(a.type, t.STRINGS) for a in args):
        return binder.call("||", args, node)
    return None
