"""UNION, INTERSECT and EXCEPT: casts the columns of both sides to common types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, Literal
from penstock.functions.registry import make_call
from penstock.plan import nodes as n
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder


def set_operation(ctx: QueryBinder, node: exp.SetOperation) -> Relation:
    """The relation of UNION, INTERSECT or EXCEPT."""
    inputs = [ctx.query(node.this), ctx.query(node.expression)]
    inputs = [ctx.compact(r) for r in inputs]
    left, right = inputs
    if len(left.visible) != len(right.visible):
        raise ctx.source.error(
            f"{type(node).__name__.upper()} of queries with different numbers of columns",
            node.expression,
            expected=f"{len(left.visible)} columns",
            got=f"{len(right.visible)} columns",
        )
    types = []
    for i, (a, b) in enumerate(zip(left.visible, right.visible, strict=True)):
        null = Literal(False, t.BooleanType(nullable=False))
        try:
            types.append(make_call("CASE", [null, left.ref(a), right.ref(b)]).type)
        except Exception as err:
            raise ctx.source.error(
                f"column {i + 1} of {type(node).__name__.upper()} has two types that do not go together",
                node.expression, expected=str(a.type), got=str(b.type),
            ) from err  # fmt: skip
    types = [
        ty.with_nullable(a.type.nullable or b.type.nullable)
        for ty, a, b in zip(types, left.visible, right.visible, strict=True)
    ]
    left, right = _cast_all(ctx, left, types), _cast_all(ctx, right, types)
    schema = t.Schema(tuple(t.Field(c.name, ty) for c, ty in zip(left.visible, types, strict=True)))
    distinct = bool(node.args.get("distinct"))
    if isinstance(node, exp.Union):
        parts = (left.node, right.node)
        if isinstance(left.node, n.Union_) and isinstance(node.this, exp.Union) and not distinct:
            parts = (*left.node.inputs, right.node)  # type: ignore[assignment]
        result: n.Node = n.Union_(inputs=parts, schema=schema)
        rowtimes = ctx.analysis.of(result).rowtimes
        if rowtimes:
            schema = t.Schema(schema.fields, schema.names[min(rowtimes)])
            result = n.Union_(inputs=parts, schema=schema)
        if distinct:
            keys = tuple(range(len(schema)))
            result = n.Aggregate(input=result, keys=keys, aggregates=(), schema=t.Schema(schema.fields))
    else:
        kind = "intersect" if isinstance(node, exp.Intersect) else "except"
        result = n.SetOperation(
            left=left.node,
            right=right.node,
            kind=kind,  # type: ignore[arg-type]
            all=not distinct,
            schema=schema,
        )
    return Relation.of(result)


def _cast_all(ctx: QueryBinder, relation: Relation, types: list[t.LogicalType]) -> Relation:
    if [c.type for c in relation.visible] == types:
        return relation
    outputs = []
    for column, type_ in zip(relation.visible, types, strict=True):
        ref: Expr = relation.ref(column)
        if column.type.with_nullable(True) != type_.with_nullable(True):
            within = f"column '{column.name}' of a set operation"
            ref = make_call(
                "CAST",
                [ref],
                type=type_.with_nullable(column.type.nullable),
                within=within,
                zone=ctx.zone,
            )
        outputs.append((column.name, ref))
    return ctx.project(relation, outputs)
