"""Subqueries as conditions and values: IN, EXISTS, ANY, ALL and scalar ones, as joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import SqlError
from penstock.functions.expr import Expr, InputRef, Literal
from penstock.plan import nodes as n
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.expressions import ExpressionBinder, column_parts
from penstock.sql.joins import make_join
from penstock.sql.scope import Relation, joined, joined_schema
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.queries import QueryBinder

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip


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
    right, correlation = _subquery(ctx, left, node.args["query"])
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
    if correlation is not None:
        condition = ctx.call("AND", [correlation, condition], node)
    return make_join(ctx, left, right, "anti" if negate else "semi", bound=condition, node=node)


def _subquery(ctx: QueryBinder, left: Relation, query: exp.Expression) -> tuple[Relation, Expr | None]:
    """A subquery's rows, and its WHERE over (left, its own columns) where that names columns of
    the outer query."""
    select = query
    while isinstance(select, (exp.Subquery, exp.Paren)):
        select = select.this
    if not isinstance(select, exp.Select):
        return ctx.query(query), None
    where = select.args.get("where")
    grouped = any(
        select.args.get(k) for k in ("group", "having", "limit", "offset", "with_", "distinct", "order")
    )
    if where is None or grouped or next(aggregate_nodes(ctx, select), None) is not None:
        return ctx.query(query), None
    inner = ctx.from_clause(select)
    if not _names_outer(ctx, left, inner, where.this):
        return ctx.query(query), None
    # The columns of WHERE stay beside those that are selected.
    plain = select.copy()
    plain.set("where", None)
    width = len(inner.node.schema)
    outputs = [(c.name, inner.ref(c), c.table) for c in inner.columns]
    chosen = ctx.query(plain).visible
    binder = ctx.expressions(inner)
    selected: list[tuple[str, Expr, str | None]] = []
    for item, column in zip(_selected(ctx, select, inner), chosen, strict=True):
        bound = item if not isinstance(item, exp.Expression) else binder.bind(item)
        selected.append((column.name, bound, None))
    right = ctx.project_qualified(inner, [*outputs, *selected])
    shown = tuple(replace(c, hidden=c.index < width) for c in right.columns)
    scope = Relation(right.node, tuple(c for c in right.columns if c.index < width))
    bound_where = _correlated(ctx, left, scope, where.this)
    return Relation(right.node, shown), bound_where


def _selected(ctx: QueryBinder, select: exp.Select, inner: Relation) -> list[exp.Expression | Expr]:
    """What a SELECT list names, stars spelt out."""
    out: list[exp.Expression | Expr] = []
    for item in select.expressions:
        if isinstance(item, exp.Star):
            out += [inner.ref(c) for c in inner.visible]
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            out += [inner.ref(c) for c in inner.visible if c.table == item.table]
        else:
            out.append(item.this if isinstance(item, exp.Alias) else item)
    return out


def _names_outer(ctx: QueryBinder, left: Relation, inner: Relation, condition: exp.Expression) -> bool:
    """Whether a column of the condition is none of the inner query's, but one of the outer's."""
    return any(
        not inner.find(column_parts(c), c, ctx.source) and bool(left.find(column_parts(c), c, ctx.source))
        for c in condition.find_all(exp.Column)
    )


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
    try:
        right = ctx.query(node)
    except SqlError as err:
        qualified = {f"{c.table}.{c.name}" for c in left.visible if c.table}
        if any(isinstance(x, exp.Column) and x.sql() in qualified for x in node.find_all(exp.Column)):
            raise ctx.source.unsupported(
                "a scalar subquery that reads columns of the outer query",
                node,
                remedy="LEFT JOIN the subquery with GROUP BY on those columns",
            ) from err
        raise
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


# -- in WHERE and in expressions ----------------------------------------------------------------


def bind_where(ctx: QueryBinder, relation: Relation, condition: exp.Expression) -> Relation:
    plain: list[exp.Expression] = []
    for part in _conjuncts(condition):
        subquery = bind_condition_subquery(ctx, relation, part)
        if subquery is not None:
            relation = subquery
        else:
            plain.append(part)
    bound: list[Expr] = []
    width = len(relation.columns)
    for part in plain:
        relation, special = _scalars_in(ctx, relation, [part])
        nested = next(aggregate_nodes(ctx, part), None)
        if nested is not None:
            raise ctx.source.error(
                "an aggregate cannot stand in WHERE",
                nested,
                expected="HAVING",
                remedy="move it to HAVING",
            )
        bound.append(ctx.expressions(relation, special).condition(part, "WHERE"))
    if not bound:
        return relation
    whole = bound[0] if len(bound) == 1 else ctx.call("AND", bound)
    return Relation(filtered(relation.node, whole), relation.columns[:width])


def scalar_subqueries(ctx: QueryBinder, relation: Relation, select: exp.Select) -> tuple[Relation, Callable]:
    roots = [*select.expressions, *([select.args["having"]] if select.args.get("having") else [])]
    return _scalars_in(ctx, relation, roots)


def _scalars_in(
    ctx: QueryBinder, relation: Relation, roots: list[exp.Expression]
) -> tuple[Relation, Callable]:
    found: dict[int, InputRef] = {}
    for root in roots:
        for node in _value_subqueries(root):
            relation, ref = scalar_subquery(ctx, relation, node)
            found[id(node)] = ref
    return relation, lambda node: found.get(id(node))


def filtered(node: n.Node, condition: Expr) -> n.Filter:
    return n.Filter(input=node, condition=condition, schema=node.schema)


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    if isinstance(node, exp.And):
        return _conjuncts(node.this) + _conjuncts(node.expression)
    return [node]


def _value_subqueries(root: exp.Expression) -> list[exp.Subquery]:
    """Subqueries used as values: not those of IN and EXISTS, none inside another query."""
    if isinstance(root, exp.Subquery):
        return [root]
    if isinstance(root, (exp.Exists, exp.Select)):
        return []
    children = [root.this] if isinstance(root, exp.In) and root.args.get("query") else root.iter_expressions()
    return [found for child in children if child is not None for found in _value_subqueries(child)]
