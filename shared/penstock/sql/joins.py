"""Binds joins: inner, outer, semi, anti, temporal and lateral."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import SqlError
from penstock.functions.expr import Literal
from penstock.plan import nodes as n
from penstock.sql.beside import rows_beside
from penstock.sql.join_nodes import make_join
from penstock.sql.reading import column_parts
from penstock.sql.scope import Relation, joined, joined_schema
from penstock.sql.subqueries import bind_condition, bind_on
from penstock.sql.syntax import WINDOW_FUNCTIONS, AsOf, TableFunction
from penstock.sql.temporal import bind_temporal_join
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

_KINDS = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left", ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right", ("FULL", ""): "full",
    ("FULL", "OUTER"): "full", ("", "SEMI"): "semi", ("LEFT", "SEMI"): "semi", ("", "ANTI"): "anti",
    ("LEFT", "ANTI"): "anti",
}  # fmt: skip


def bind_join(ctx: QueryBinder, left: Relation, join: exp.Join) -> Relation:
    """The relation of ``left`` joined as the clause ``join`` says."""
    side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
    if (side, kind) not in _KINDS:
        raise ctx.source.unsupported(f"{side} {kind} JOIN".strip(), join)
    method = (join.args.get("method") or "").upper()
    if method not in ("", "NATURAL"):
        raise ctx.source.unsupported(f"{method} JOIN", join)
    how = _KINDS[side, kind]
    target = join.this
    if isinstance(target, AsOf):
        return bind_temporal_join(ctx, left, join, target, how)
    if isinstance(target, exp.Lateral) and isinstance(target.this, (exp.Subquery, exp.Select)):
        return _lateral_query(ctx, left, target, how, join)
    if _lateral(ctx, target):
        return bind_correlate(ctx, left, target, how, join)
    right = _beside_nothing(ctx, left, target)
    using = [u.name for u in join.args.get("using") or []]
    if method == "NATURAL":
        using = [c.name for c in left.visible if any(r.name == c.name for r in right.visible)]
    condition = join.args.get("on")
    if condition is None and not using and how != "inner":
        raise ctx.source.error(f"a {how} join needs ON or USING", join, expected="ON condition")
    if condition is None or condition.find(exp.Select, exp.SetOperation) is None:
        return make_join(ctx, left, right, how, condition=condition, using=using, node=join)
    left, right, plain, above = bind_on(ctx, left, right, how, condition)
    whole: exp.Expression = exp.Boolean(this=True)
    for i, part in enumerate(plain):
        whole = exp.And(this=whole, expression=part) if i else part
    relation = make_join(ctx, left, right, how, condition=whole, using=using, node=join)
    for part in above:
        relation = bind_condition(ctx, relation, part, "ON")
    return relation


def _beside_nothing(ctx: QueryBinder, left: Relation, target: exp.Expression) -> Relation:
    """The relation of a join's right side. Raises SqlError that names LATERAL if it is a query that reads a column of
    the left side."""
    try:
        return ctx.table_item(target)
    except SqlError as err:
        if not err.message.startswith("unknown column"):
            raise
        for column in target.find_all(exp.Column) if isinstance(target, exp.Subquery) else ():
            parts = column_parts(column)
            if ctx.source.where(column) == err.where and left.find(parts, column, ctx.source):
                raise ctx.source.error(
                    f"a query in FROM reads '{'.'.join(parts)}', a column of what stands before it",
                    column,
                    expected="LATERAL in front of the query, or columns of its own tables only",
                    got="a query without LATERAL",
                    remedy="write CROSS JOIN LATERAL (SELECT …) AS t, or LEFT JOIN LATERAL (SELECT …) AS t ON TRUE",
                ) from None
        raise


def _lateral_query(
    ctx: QueryBinder, left: Relation, target: exp.Lateral, how: str, join: exp.Expression
) -> Relation:
    """The relation of ``left`` joined with LATERAL (SELECT …)."""
    for part in ("view", "outer"):
        target.args.get(part)
    if how not in ("inner", "left"):
        raise ctx.source.unsupported(f"a {how} join with LATERAL", join)
    on = join.args.get("on") if isinstance(join, exp.Join) else None
    if how == "left" and not (isinstance(on, exp.Boolean) and on.this):
        raise ctx.source.unsupported(
            "LEFT JOIN LATERAL (SELECT …) with a condition",
            on if on is not None else join,
            expected="LEFT JOIN LATERAL (SELECT …) AS t ON TRUE",
            remedy="put the condition into the WHERE of the subquery",
        )
    alias = target.args.get("alias")
    select: exp.Expression = target.this
    while isinstance(select, exp.Subquery) and not select.args.get("with_"):
        select = select.this
    relation = rows_beside(ctx, left, select, alias, how, join) if isinstance(select, exp.Select) else None
    if relation is None:
        right = ctx._aliased(ctx.query(target.this), alias)
        always = Literal(True, t.BooleanType(nullable=False))
        relation = make_join(ctx, left, right, how, bound=None if how == "inner" else always, node=join)
    if on is None or how == "left":
        return relation
    return bind_condition(ctx, relation, on, "ON")


# -- lateral -------------------------------------------------------------------------------------


def _lateral(ctx: QueryBinder, node: exp.Expression) -> bool:
    if isinstance(node, (exp.Unnest, exp.Lateral)):
        return True
    return isinstance(node, TableFunction) and not ctx.is_window_function(node)


def bind_correlate(
    ctx: QueryBinder, left: Relation, target: exp.Expression, how: str, join: exp.Expression
) -> Relation:
    """The relation of ``left`` joined with LATERAL TABLE(f(…)) or UNNEST(…)."""
    if how not in ("inner", "left"):
        raise ctx.source.unsupported(f"a {how} join with a table function", join)
    alias = target.args.get("alias")
    inner = target.this if isinstance(target, exp.Lateral) else target
    if isinstance(target, exp.Lateral) and alias is None:
        alias = inner.args.get("alias")
    binder = ctx.expressions(left)
    if isinstance(inner, exp.Unnest):
        args = tuple(binder.bind(e) for e in inner.expressions)
        parts = [_unnested(ctx, inner, arg.type) for arg in args]
        fields = parts[0]
        if len(parts) > 1:
            # A shorter collection is padded with NULLs.
            fields = [t.Field(f.name, f.type.with_nullable(True)) for part in parts for f in part]
            fields = [
                t.Field(f"EXPR${i}" if f.name == "EXPR$0" else f.name, f.type) for i, f in enumerate(fields)
            ]
        function = "UNNEST"
        if inner.args.get("offset"):
            function = "UNNEST_WITH_ORDINALITY"
            fields = [*fields, t.Field("ORDINALITY", t.IntType(nullable=False))]
        builtin, per, asynchronous = True, "record", False
    elif isinstance(inner, TableFunction):
        name = inner.args["name"]
        user = ctx.catalog.functions.table(name)
        if user is None:
            raise ctx.catalog.unknown(
                name,
                ctx.source.where(inner),
                [*ctx.catalog.functions.names(), "UNNEST", *sorted(WINDOW_FUNCTIONS)],
                "table function",
            )
        bound = [binder.bind(e) for e in inner.expressions]
        args = tuple(binder.arguments_of(user, bound, inner))
        result = user.result
        fields = list(result.fields) if isinstance(result, t.RowType) else [t.Field("EXPR$0", result)]
        function, builtin, per, asynchronous = user.name, False, user.per, user.asynchronous
    else:
        raise ctx.source.unsupported(
            "this LATERAL form", target, remedy="use LATERAL TABLE(f(…)) or UNNEST(…)"
        )
    names = [c.name for c in (alias.args.get("columns") or [])] if alias is not None else []
    if isinstance(inner, exp.Unnest) and isinstance(inner.args.get("offset"), exp.Identifier):
        names.append(inner.args["offset"].name)  # The parser takes it from the alias's columns.
    right_fields = [t.Field(names[i] if i < len(names) else f.name, f.type) for i, f in enumerate(fields)]
    right_schema = t.Schema(tuple(right_fields))
    schema = joined_schema(left.node.schema, right_schema, left_null=False, right_null=how == "left")
    node = n.Correlate(
        input=left.node,
        function=function,
        args=args,
        kind=how,  # type: ignore[arg-type]
        builtin=builtin,
        per=per,  # type: ignore[arg-type]
        asynchronous=asynchronous,
        schema=schema,
    )
    right = Relation.of(n.Values(schema=right_schema, data=""), alias.name if alias is not None else None)
    relation = joined(left, right, node)
    on = join.args.get("on") if isinstance(join, exp.Join) else None
    if on is None:
        return relation
    condition = ctx.expressions(relation).condition(on, "ON")
    if condition == Literal(True, t.BooleanType(nullable=False)):
        return relation
    if how == "left":
        raise ctx.source.unsupported(
            "LEFT JOIN of a table function with a condition",
            on,
            expected="LEFT JOIN … ON TRUE",
            remedy="put the condition into the function's argument, or CASE over its columns",
        )
    return relation.over(n.Filter(input=relation.node, condition=condition, schema=relation.node.schema))


def _unnested(ctx: QueryBinder, node: exp.Expression, type_: t.LogicalType) -> list[t.Field]:
    match type_:
        case t.ArrayType(element=t.RowType(fields=fields)) | t.MultisetType(element=t.RowType(fields=fields)):
            return list(fields)
        case t.ArrayType(element=element) | t.MultisetType(element=element):
            return [t.Field("EXPR$0", element)]
        case t.MapType(key=key, value=value):
            return [t.Field("KEY", key), t.Field("VALUE", value)]
    raise ctx.source.error(
        "UNNEST needs a collection", node, expected="ARRAY, MAP or MULTISET", got=str(type_)
    )
