"""Binds calls of aggregate functions, the user's own included, with FILTER, DISTINCT and IGNORE NULLS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.aggregates import canonical_aggregate, infer_aggregate, is_aggregate
from penstock.functions.expr import Expr, Literal
from penstock.sql.ordered_aggregates import collected_row, order_of
from penstock.sql.reading import function_name
from penstock.sql.syntax import JsonCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sql.expressions import ExpressionBinder
    from penstock.sql.queries import QueryBinder
    from penstock.types import logical as t

_CONSTANT_TAIL = {"LISTAGG": 1}
#: Clause → the aggregates that it may follow. FIRST_VALUE and LAST_VALUE always skip NULLs.
_NULL_TREATMENT = {
    "IGNORE NULLS": ("FIRST_VALUE", "LAST_VALUE", "ARRAY_AGG"),
    "RESPECT NULLS": ("ARRAY_AGG",),
}


@dataclass(frozen=True, slots=True)
class AggregateDraft:
    """An aggregate call whose arguments are still expressions; in a plan they are columns."""

    function: str
    args: tuple[Expr, ...]
    type: t.LogicalType
    distinct: bool = False
    filter: Expr | None = None
    ignore_nulls: bool = False
    constants: tuple[Any, ...] = ()
    python: str | None = None
    #: (LISTAGG or ARRAY_AGG, directions of ORDER BY, separator): what is made of the collected rows.
    ordered: tuple[str, str, str] | None = None


def is_aggregate_node(ctx: QueryBinder, node: exp.Expression) -> bool:
    """Whether the syntax node is a call of an aggregate function."""
    if isinstance(node, exp.Filter):
        return True
    if isinstance(node, (exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        return True
    if isinstance(node, JsonCall):
        return node.args["name"] in ("JSON_OBJECTAGG", "JSON_ARRAYAGG")
    if not isinstance(node, exp.Anonymous):
        return False
    name = function_name(node)
    return is_aggregate(name.upper()) or ctx.catalog.functions.aggregate(name) is not None


def aggregate_nodes(ctx: QueryBinder, root: exp.Expression) -> Iterator[exp.Expression]:
    """Yields the outermost aggregate calls below ``root``. Does not search subqueries. The function of an
    OVER window is not yielded, but aggregate calls in its arguments are."""
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if node is None or isinstance(node, (exp.Select, exp.SetOperation, exp.Subquery)):
            continue
        if isinstance(node, exp.Window):
            inner = node.this
            while isinstance(inner, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
                inner = inner.this
            partition = node.args.get("partition_by") or []
            below = [*partition, node.args.get("order"), *inner.iter_expressions()]
        elif is_aggregate_node(ctx, node):
            yield node
            continue
        else:
            below = [*node.iter_expressions()]
        waiting += reversed(below)


def draft(
    ctx: QueryBinder,
    node: exp.Expression,
    binder: ExpressionBinder,
    *,
    grouped: bool = False,
    over: bool = False,
) -> AggregateDraft:
    """The aggregate that ``node`` means, with its FILTER, DISTINCT and IGNORE NULLS. ``over``: the aggregate
    has an OVER clause, so its arguments may be aggregates of a group."""
    condition: Expr | None = None
    ignore_nulls = False
    within: exp.Order | None = None
    call = node
    while not isinstance(call, (exp.Anonymous, JsonCall)):
        if isinstance(call, exp.Filter):
            condition = binder.condition(call.expression.this, "FILTER")
        elif isinstance(call, exp.IgnoreNulls):
            ignore_nulls = True
        elif isinstance(call, exp.WithinGroup):
            within = call.expression
        elif not isinstance(call, exp.RespectNulls):
            raise ctx.source.error(
                "FILTER belongs to an aggregate", node, expected="COUNT(*) FILTER (WHERE …)"
            )
        if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)):
            _check_null_treatment(ctx, call)
        call = call.this
    if isinstance(call, JsonCall):
        return _json_draft(ctx, call, condition, binder)
    if not is_aggregate_node(ctx, call):
        raise ctx.source.error("FILTER belongs to an aggregate", node, got=function_name(call))
    name = canonical_aggregate(function_name(call))
    arguments = list(call.expressions)
    distinct = False
    order = order_of(ctx, name, arguments, within)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        distinct, arguments = True, list(arguments[0].expressions)
    if name == "COUNT" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    elif not arguments:
        raise ctx.source.error(f"{name} needs an argument", call, expected=f"{name}(expression)")
    for argument in arguments:
        if isinstance(argument, (exp.IgnoreNulls, exp.RespectNulls)):
            raise ctx.source.error(
                "IGNORE NULLS and RESPECT NULLS stand behind the parentheses",
                argument,
                expected=f"{name}(expression) IGNORE NULLS",
            )
        nested = next(aggregate_nodes(ctx, argument), None)
        if nested is not None and not over:
            raise ctx.source.error(
                "an aggregate inside an aggregate", nested, expected="an ordinary expression"
            )
    bound = [binder.bind(a) for a in arguments]
    user = ctx.catalog.functions.aggregate(function_name(call))
    if user is not None:
        bound = binder.arguments_of(user, bound, call)
        return AggregateDraft(
            user.name, tuple(bound), user.result, distinct, condition, ignore_nulls, python=user.name
        )
    if name == "COUNT" and len(bound) > 1:
        raise ctx.source.unsupported("COUNT of several columns", call, remedy="COUNT a ROW(…) of them")
    if order is not None:
        if over:
            raise ctx.source.unsupported(
                f"{name} with ORDER BY and OVER", node, remedy="leave one of them out"
            )
        return _ordered_draft(ctx, name, order, bound, binder, AggregateDraft(
            "ARRAY_AGG", (), bound[0].type, distinct, condition, ignore_nulls
        ))  # fmt: skip
    given = [b.type for b in bound]
    constants: tuple[Any, ...] = ()
    tail = _CONSTANT_TAIL.get(name, 0)
    if tail and len(bound) > 1:
        last = bound[-1]
        if not isinstance(last, Literal):
            raise ctx.source.error(f"the last argument of {name} is a constant", arguments[-1])
        constants, bound = (last.value,), bound[:-1]
    if name == "COUNT" and bound and not bound[0].type.nullable and not distinct:
        bound = []
    place = ctx.source.position(call)
    type_ = infer_aggregate(
        name,
        given,
        distinct=distinct,
        grouped=grouped and condition is None,
        line=place.line,
        column=place.column,
    )
    return AggregateDraft(name, tuple(bound), type_, distinct, condition, ignore_nulls, constants)


def _ordered_draft(
    ctx: QueryBinder,
    name: str,
    order: exp.Order,
    bound: list[Expr],
    binder: ExpressionBinder,
    made: AggregateDraft,
) -> AggregateDraft:
    """The draft that collects the rows of LISTAGG or ARRAY_AGG with ORDER BY."""
    value, *rest = bound
    separator = ","
    if rest:
        (last,) = rest
        if not isinstance(last, Literal) or not isinstance(last.value, str):
            raise ctx.source.error(f"the last argument of {name} is a constant text", order)
        separator = last.value
    place = ctx.source.position(order)
    infer_aggregate(
        name,
        [b.type for b in bound[: 1 + len(rest)]][:1],
        distinct=made.distinct,
        line=place.line,
        column=place.column,
    )
    if made.ignore_nulls:
        is_there = ctx.call("IS NOT NULL", [value], order)
        kept = is_there if made.filter is None else ctx.call("AND", [made.filter, is_there], order)
        made = replace(made, filter=kept, ignore_nulls=False)
    row, directions = collected_row(ctx, order, value, binder, made.distinct)
    type_ = infer_aggregate(
        "ARRAY_AGG", [row.type], distinct=made.distinct, line=place.line, column=place.column
    )
    return replace(made, args=(row,), type=type_, ordered=(name, directions, separator))


def _check_null_treatment(ctx: QueryBinder, node: exp.Expression) -> None:
    inner = node.this
    while isinstance(inner, exp.Filter):
        inner = inner.this
    name = canonical_aggregate(function_name(inner)) if isinstance(inner, exp.Anonymous) else ""
    words = "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "RESPECT NULLS"
    if name not in _NULL_TREATMENT[words]:
        raise ctx.source.error(
            f"{words} does not belong to {name or 'this expression'}",
            node,
            expected=f"{words} behind " + ", ".join(_NULL_TREATMENT[words]),
            remedy=f"leave it out; FILTER (WHERE x IS NOT NULL) leaves rows out of {name or 'an aggregate'}",
        )


def _json_draft(
    ctx: QueryBinder, call: JsonCall, condition: Expr | None, binder: ExpressionBinder
) -> AggregateDraft:
    name = call.args["name"]
    bound = [binder.bind(e) for e in call.expressions]
    place = ctx.source.position(call)
    types = [b.type for b in bound]
    type_ = infer_aggregate(name, types, distinct=False, line=place.line, column=place.column)
    function = f"{name}_{call.meta['options']['on_null']}_ON_NULL"
    return AggregateDraft(function, tuple(bound), type_, False, condition)
