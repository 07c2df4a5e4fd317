"""ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr
from penstock.jobgraph.specs import SortKey
from penstock.plan import nodes as n
from penstock.plan.rewriting import plain, position
from penstock.sql.reading import column_parts, literal_number
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.expressions import ExpressionBinder
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scope import Relation


def sort_item(ctx: QueryBinder, item: exp.Ordered, binder: ExpressionBinder) -> tuple[Expr, bool, bool]:
    """(expression, whether descending, whether NULLs come first) of an ORDER BY item."""
    descending = bool(item.args.get("desc"))
    nulls_first = (
        bool(item.args.get("nulls_first")) if item.args.get("nulls_first") is not None else not descending
    )
    bound = plain(binder.bind(item.this))
    _check_ordered(ctx, bound, item)
    return bound, descending, nulls_first


def _check_ordered(ctx: QueryBinder, bound: Expr, item: exp.Ordered) -> None:
    if t.holds_variant(bound.type):
        raise ctx.source.error(
            "a VARIANT has no order", item, expected="a value of a known type", got=str(bound.type),
            remedy="CAST it, for example to BIGINT or STRING",
        )  # fmt: skip


def order_keys(
    ctx: QueryBinder,
    order: exp.Order,
    outputs: list[tuple[str, Expr, str | None]],
    binder: ExpressionBinder,
    distinct: bool,
) -> tuple[list[SortKey], list[tuple[str, Expr, str | None]]]:
    """(sort keys, outputs) of ORDER BY. An expression that is not selected is added to the outputs."""
    keys = []
    for item in order.expressions:
        descending = bool(item.args.get("desc"))
        nulls_first = item.args.get("nulls_first")
        nulls_first = not descending if nulls_first is None else bool(nulls_first)
        index = output_index(ctx, item.this, outputs)
        if index is None:
            bound = binder.bind(item.this)
            index = position(bound, [e for _, e, _ in outputs])
            if index is None:
                if distinct:
                    raise ctx.source.error(
                        "ORDER BY of a SELECT DISTINCT names a selected column",
                        item,
                        expected="a selected column",
                    )
                outputs = [*outputs, ("$order", bound, None)]
                index = len(outputs) - 1
        _check_ordered(ctx, outputs[index][1], item)
        keys.append(SortKey(index, descending, nulls_first))
    return keys, outputs


def output_index(
    ctx: QueryBinder, node: exp.Expression, outputs: list[tuple[str, Expr, str | None]]
) -> int | None:
    """The output that an ORDER BY item names by its number or name; None if it is another expression."""
    number = literal_number(node)
    if number is not None:
        if not 1 <= number <= len(outputs):
            raise ctx.source.error(
                "ORDER BY position is out of range", node, expected=f"1 to {len(outputs)}", got=str(number)
            )
        return number - 1
    if isinstance(node, exp.Column) and len(column_parts(node)) == 1:
        found = [i for i, (name, _, _) in enumerate(outputs) if name == node.name]
        if len(found) == 1:
            return found[0]
    return None


def ordered(ctx: QueryBinder, node: exp.Expression, relation: Relation) -> Relation:
    """ORDER BY and LIMIT of a set operation or a subquery in parentheses."""
    order = node.args.get("order")
    keys: list[SortKey] = []
    relation = ctx.compact(relation)
    if order is not None:
        outputs = [(c.name, relation.ref(c), None) for c in relation.visible]
        keys, extended = order_keys(ctx, order, list(outputs), ctx.expressions(relation), True)
        if len(extended) != len(outputs):
            raise ctx.source.error("ORDER BY names a column of the result here", order)
    return limited(ctx, node, relation, tuple(keys))


def limited(
    ctx: QueryBinder, node: exp.Expression, relation: Relation, keys: tuple[SortKey, ...]
) -> Relation:
    """The relation sorted and cut as ORDER BY, LIMIT and OFFSET say."""
    limit = count(ctx, node.args.get("limit"), "LIMIT")
    offset = count(ctx, node.args.get("offset"), "OFFSET") or 0
    schema = relation.node.schema
    if keys:
        return relation.over(
            n.Sort(input=relation.node, order=keys, offset=offset, limit=limit, schema=schema)
        )
    if limit is not None:
        return relation.over(n.Limit(input=relation.node, offset=offset, limit=limit, schema=schema))
    if offset:
        raise ctx.source.error("OFFSET needs ORDER BY or LIMIT", node.args["offset"])
    return relation


def _check_options(ctx: QueryBinder, clause: exp.Expression, options: exp.Expression) -> None:
    """Raise UnsupportedError for PERCENT and WITH TIES. ROWS has no meaning;
    reading it marks it as translated."""
    options.args.get("rows")
    for option, name, remedy in (
        ("with_ties", "WITH TIES", "WHERE r <= n over RANK() OVER (ORDER BY …) AS r"),
        ("percent", "PERCENT", "WHERE r <= 0.1 over PERCENT_RANK() OVER (ORDER BY …) AS r"),
    ):
        if options.args.get(option):
            raise ctx.source.unsupported(
                f"FETCH FIRST … {name}", clause, expected="FETCH FIRST 10 ROWS ONLY", remedy=remedy
            )


def count(ctx: QueryBinder, clause: exp.Expression | None, what: str) -> int | None:
    """The number of a LIMIT, FETCH or OFFSET clause; None without one. ``what`` names the clause in errors."""
    if clause is None:
        return None
    value = clause.args.get("expression") or clause.args.get("count")
    if value is None and isinstance(clause, exp.Fetch):
        value = exp.Literal.number(1)  # FETCH NEXT ROW ONLY has no number
    options = clause.args.get("limit_options")
    if options is not None:
        _check_options(ctx, clause, options)
    number = literal_number(value) if value is not None else None
    if number is None or number < 0:
        raise ctx.source.error(f"{what} needs a whole number", clause, expected=f"{what} 10")
    return number
