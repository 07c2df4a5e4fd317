"""Binds QUALIFY: the rows of a query that a condition over OVER functions keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.sql.subqueries import bind_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import Expr
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scalars import Special
    from penstock.sql.scope import Relation


def qualified(
    ctx: QueryBinder,
    select: exp.Select,
    qualify: exp.Expression,
    relation: Relation,
    special: Special | None,
    windows: Sequence[exp.Expression],
) -> tuple[Relation, Special | None]:
    """The rows that QUALIFY keeps. It may name a selected expression by its alias."""
    if not windows:
        raise ctx.source.error(
            "QUALIFY without an OVER function",
            qualify,
            expected="a condition over a function with OVER",
            remedy="WHERE or HAVING",
        )
    items = {item.alias: item.this for item in select.expressions if isinstance(item, exp.Alias)}

    def meaning(node: exp.Expression) -> Expr | None:
        alias = node.name if isinstance(node, exp.Column) and not node.table else None
        if alias in items and not relation.find([alias], node, ctx.source):
            return ctx.expressions(relation, special).bind(items[alias])
        return None if special is None else special(node)

    return bind_condition(ctx, relation, qualify.this, "QUALIFY", meaning, outer=relation), special


def either(first: Special, second: Special) -> Special:
    """What ``first`` says of a node, or else ``second``."""

    def special(node: exp.Expression) -> Expr | None:
        known = first(node)
        return second(node) if known is None else known

    return special
