"""FROM and JOIN: inner, outer, semi, anti, temporal, lateral."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.plan import nodes as n
from penstock.sql.expressions import ExpressionBinder, column_parts
from penstock.sql.scope import Relation, joined, joined_schema
from penstock.sql.syntax import AsOf, TableFunction
from penstock.sql.temporal import bind_temporal_join
from penstock.sql.windows import WINDOW_FUNCTIONS
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

_KINDS = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left", ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right", ("FULL", ""): "full",
    ("FULL", "OUTER"): "full", ("", "SEMI"): "semi", ("LEFT", "SEMI"): "semi", ("", "ANTI"): "anti",
    ("LEFT", "ANTI"): "anti",
}  # fmt: skip

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip


def bind_join(ctx: QueryBinder, left: Relation, join: exp.Join) -> Relation:
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
    if _lateral(ctx, target):
        return bind_correlate(ctx, left, target, how, join)
    right = ctx.table_item(target)
    using = [u.name for u in join.args.get("using") or []]
    if method == "NATURAL":
        using = [c.name for c in left.visible if any(r.name == c.name for r in right.visible)]
    condition = join.args.get("on")
    if condition is None and not using and how != "inner":
        raise ctx.source.error(f"a {how} join needs ON or USING", join, expected="ON condition")
    return make_join(ctx, left, right, how, condition=condition, using=using, node=join)


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
    """``condition`` over both relations (or already ``bound``); the optimiser takes the
    equalities and time bounds out of it."""
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
            )  # type: ignore[arg-type]
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
        schema=schema,  # type: ignore[arg-type]
    )
    relation = joined(left, right, result)
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
    """USING columns appear once, unqualified, first."""
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
    return ctx.project_qualified(relation, outputs)


# -- subqueries as conditions ------------------------------------------------------------------


def bind_condition_subquery(ctx: QueryBinder, left: Relation, node: exp.Expression) -> Relation | None:
    """A WHERE conjunct that is [NOT] IN (query) or [NOT] EXISTS (query) → a semi or anti
    join; None when it is neither."""
    negate = False
    while isinstance(node, (exp.Not, exp.Paren)):
        negate ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return _in_query(ctx, left, node, negate)
    if isinstance(node, exp.Exists):
        return _exists(ctx, left, node, negate)
    if type(node) in _COMPARISONS and isinstance(node.expression, (exp.Any, exp.All)):
        return _quantified(ctx, left, node, negate)
    return None


def _quantified(ctx: QueryBinder, left: Relation, node: exp.Expression, negate: bool) -> Relation:
    """``x > ANY (query)`` and ``x > ALL (query)``."""
    every = isinstance(node.expression, exp.All)
    query = node.expression.this
    right = ctx.query(query.this if isinstance(query, exp.Paren) else query)
    if len(right.visible) != 1:
        raise ctx.source.error(
            "the query behind ANY or ALL gives one column", node, got=f"{len(right.visible)} columns"
        )
    value = ctx.expressions(left).bind(node.this)
    column = right.visible[0]
    holds = ctx.call(
        _COMPARISONS[type(node)], [value, InputRef(column.index + len(left.node.schema), column.type)], node
    )
    # NOT (x > ALL q) is x <= ANY q, also with NULLs in WHERE: what is unknown does not pass.
    if every != negate:
        how = "IS NOT TRUE" if every else "IS NOT FALSE"
        return make_join(ctx, left, right, "anti", bound=ctx.call(how, [holds], node), node=node)
    bound = ctx.call("IS FALSE", [holds], node) if negate else holds
    return make_join(ctx, left, right, "semi", bound=bound, node=node)


def _in_query(ctx: QueryBinder, left: Relation, node: exp.In, negate: bool) -> Relation:
    right = ctx.query(node.args["query"])
    tested = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    binder = ctx.expressions(left)
    values = [binder.bind(e) for e in tested]
    columns = right.visible
    if len(columns) != len(values):
        raise ctx.source.error(
            "IN compares a different number of columns",
            node,
            expected=f"{len(values)}",
            got=f"{len(columns)}",
        )
    width = len(left.node.schema)
    condition: Expr | None = None
    for value, column in zip(values, columns, strict=True):
        equal = ctx.call("=", [value, InputRef(column.index + width, column.type)], node)
        condition = equal if condition is None else ctx.call("AND", [condition, equal], node)
    assert condition is not None
    if negate and condition.type.nullable:
        # NOT IN is unknown, so not true, as soon as a comparison is unknown.
        condition = ctx.call("IS NOT FALSE", [condition], node)
    return make_join(ctx, left, right, "anti" if negate else "semi", bound=condition, node=node)


def _exists(ctx: QueryBinder, left: Relation, node: exp.Exists, negate: bool) -> Relation:
    select = node.this
    while isinstance(select, (exp.Subquery, exp.Paren)):
        select = select.this
    simple = isinstance(select, exp.Select) and not any(
        select.args.get(k) for k in ("group", "having", "limit", "offset", "with_")
    )
    if not simple:
        right = ctx.query(select)
        return make_join(ctx, left, right, "anti" if negate else "semi", node=node)
    right = ctx.from_clause(select)
    where = select.args.get("where")
    bound = None
    if where is not None:
        bound = _correlated(ctx, left, right, where.this)
    return make_join(ctx, left, right, "anti" if negate else "semi", bound=bound, node=node)


def _correlated(ctx: QueryBinder, left: Relation, right: Relation, condition: exp.Expression) -> Expr:
    """A condition over the inner relation that may name columns of the outer one."""
    width = len(left.node.schema)
    plain = joined_schema(left.node.schema, right.node.schema, left_null=False, right_null=False)
    scope = joined(left, right, n.Values(schema=plain, data=""))
    inner = Relation(scope.node, tuple(c for c in scope.columns if c.index >= width))

    def special(node: exp.Expression) -> Expr | None:
        if isinstance(node, exp.Column) and inner.find(column_parts(node), node, ctx.source):
            return ExpressionBinder(inner, ctx.source, zone=ctx.zone).bind(node)
        return None

    return ctx.expressions(scope, special).condition(condition, "WHERE")


def scalar_subquery(ctx: QueryBinder, left: Relation, node: exp.Subquery) -> tuple[Relation, InputRef]:
    """A subquery used as a value: joined to every row. It must give one row at most."""
    right = ctx.query(node)
    if len(right.visible) != 1:
        raise ctx.source.error(
            "a subquery used as a value gives one column", node, got=f"{len(right.visible)} columns"
        )
    if frozenset() not in ctx.analysis.of(right.node).unique:
        raise ctx.source.unsupported(
            "a scalar subquery that may give several rows",
            node,
            remedy="aggregate in it without GROUP BY, e.g. (SELECT MAX(x) FROM t)",
        )
    relation = make_join(
        ctx, left, right, "left", bound=Literal(True, t.BooleanType(nullable=False)), node=node
    )
    column = right.visible[0]
    index = column.index + len(left.node.schema)
    hidden = Relation(relation.node, relation.columns[: len(left.columns)])
    return hidden, InputRef(index, relation.node.schema.types[index])


# -- lateral -------------------------------------------------------------------------------------


def _lateral(ctx: QueryBinder, node: exp.Expression) -> bool:
    if isinstance(node, (exp.Unnest, exp.Lateral)):
        return True
    return isinstance(node, TableFunction) and not ctx.is_window_function(node)


def bind_correlate(
    ctx: QueryBinder, left: Relation, target: exp.Expression, how: str, join: exp.Expression
) -> Relation:
    """LATERAL TABLE(f(…)) and CROSS JOIN UNNEST(…)."""
    if how not in ("inner", "left"):
        raise ctx.source.unsupported(f"a {how} join with a table function", join)
    alias = target.args.get("alias")
    inner = target.this if isinstance(target, exp.Lateral) else target
    if isinstance(target, exp.Lateral) and alias is None:
        alias = inner.args.get("alias")
    binder = ctx.expressions(left)
    if isinstance(inner, exp.Unnest):
        if len(inner.expressions) != 1:
            raise ctx.source.unsupported("UNNEST of several arrays", inner)
        argument = binder.bind(inner.expressions[0])
        fields = _unnested(ctx, inner, argument.type)
        function = "UNNEST"
        if inner.args.get("offset"):
            function = "UNNEST_WITH_ORDINALITY"
            # The last of the alias's column names, where it has one for it, is taken for its name.
            offset = inner.args["offset"]
            name = offset.name if isinstance(offset, exp.Identifier) else "ORDINALITY"
            fields = [*fields, t.Field(name, t.IntType(nullable=False))]
        args, builtin, per, asynchronous = (argument,), True, "record", False
    elif isinstance(inner, TableFunction):
        name = inner.args["name"]
        user = ctx.catalog.functions.table(name)
        if user is None:
            raise ctx.catalog.unknown(
                name, ctx.source.where(inner), [*ctx.catalog.functions.names(), "UNNEST", *sorted(WINDOW_FUNCTIONS)],
                "table function",
            )
        bound = [binder.bind(e) for e in inner.expressions]
        args = tuple(binder.arguments_of(user, bound, inner))  # type: ignore[assignment]
        result = user.result
        fields = list(result.fields) if isinstance(result, t.RowType) else [t.Field("EXPR$0", result)]
        function, builtin, per, asynchronous = user.name, False, user.per, user.asynchronous
    else:
        raise ctx.source.unsupported(
            "this LATERAL form", target, remedy="use LATERAL TABLE(f(…)) or UNNEST(…)"
        )
    names = [c.name for c in (alias.args.get("columns") or [])] if alias is not None else []
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
        schema=schema,  # type: ignore[arg-type]
    )
    right = Relation.of(n.Values(schema=right_schema, data=""), alias.name if alias is not None else None)
    return joined(left, right, node)


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
