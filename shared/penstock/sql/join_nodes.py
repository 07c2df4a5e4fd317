"""The plan node of a join of two relations, on a condition and on USING columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef
from penstock.plan import nodes as n
from penstock.sql.scope import Relation, joined, joined_schema

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder


def make_join(
    ctx: QueryBinder,
    left: Relation,
    right: Relation,
    kind: str,
    *,
    condition: exp.Expression | None = None,
    bound: Expr | None = None,
    using: list[str] | None = None,
    node: exp.Expression | None = None,
) -> Relation:
    """Joins two relations on ``condition``, or on ``bound`` if the condition is bound already. The optimizer
    extracts equalities and time bounds from the condition."""
    plain = joined_schema(left.node.schema, right.node.schema, left_null=False, right_null=False)
    if bound is None and condition is not None:
        scope = joined(left, right, n.Values(schema=plain, data=""))
        bound = ctx.expressions(scope).condition(condition, "ON")
    for name in using or []:
        bound = _and(ctx, bound, _using(ctx, left, right, name, node))
    if kind in ("semi", "anti"):
        schema = left.node.schema
        return left.over(
            n.Join(
                left=left.node,
                right=right.node,
                kind=kind,  # type: ignore[arg-type]
                left_keys=(),
                right_keys=(),
                condition=bound,
                schema=schema,
            )
        )
    schema = joined_schema(
        left.node.schema,
        right.node.schema,
        left_null=kind in ("right", "full"),
        right_null=kind in ("left", "full"),
    )
    result = n.Join(
        left=left.node,
        right=right.node,
        kind=kind,  # type: ignore[arg-type]
        left_keys=(),
        right_keys=(),
        condition=bound,
        schema=schema,
    )
    relation = joined(left, right, ctx.hints.hinted(result, left, right))
    if using:
        relation = _merge_using(ctx, relation, using, kind, len(left.node.schema))
    return relation


def _and(ctx: QueryBinder, a: Expr | None, b: Expr) -> Expr:
    if a is None:
        return b
    return ctx.call("AND", [a, b])


def _using(ctx: QueryBinder, left: Relation, right: Relation, name: str, node: exp.Expression | None) -> Expr:
    width = len(left.node.schema)
    anchor = node if node is not None else exp.Null()
    a, _ = left.resolve([name], anchor, ctx.source)
    b, _ = right.resolve([name], anchor, ctx.source)
    return ctx.call("=", [left.ref(a), InputRef(b.index + width, b.type)], node)


def _merge_using(ctx: QueryBinder, relation: Relation, using: list[str], kind: str, width: int) -> Relation:
    """The join with each USING column once: these columns come first and have no table's name. The columns of the two sides
    are found by their table's name only."""
    outputs: list[tuple[str, Expr, str | None]] = []
    for name in using:
        a = next(c for c in relation.columns if c.name == name and c.index < width)
        b = next(c for c in relation.columns if c.name == name and c.index >= width)
        first, second = (b, a) if kind == "right" else (a, b)
        value: Expr = relation.ref(first)
        if kind == "full":
            value = ctx.call("COALESCE", [value, relation.ref(second)])
        outputs.append((name, value, None))
    outputs += [(c.name, relation.ref(c), c.table) for c in relation.visible if c.name not in using]
    shown = len(outputs)
    outputs += [(c.name, relation.ref(c), c.table) for c in relation.visible if c.name in using and c.table]
    merged = ctx.project_qualified(relation, outputs)
    columns = tuple(replace(c, hidden=i >= shown, qualified=i >= shown) for i, c in enumerate(merged.columns))
    return replace(merged, columns=columns)
