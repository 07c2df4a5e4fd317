"""Plans a scalar subquery that names columns of the outer query as an aggregate by key, joined on the key.

``(SELECT AVG(x) + 1 FROM u WHERE u.k = t.k AND …)`` is computed for a row of ``t`` from the aggregates of its
group in ``SELECT k, AVG(x) FROM u WHERE … GROUP BY k``, or from the aggregates of no rows if it has no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.consumption import consume, variant
from penstock.sql.join_nodes import make_join
from penstock.sql.marks import is_one_match
from penstock.sql.outer import tables_of
from penstock.sql.reading import column_parts, conjuncts, function_name
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sql.queries import QueryBinder

#: Aggregates whose value over no rows is known: 0 for COUNT, NULL for the others.
_OF_NO_ROWS = frozenset(
    ("AVG", "COUNT", "MAX", "MIN", "STDDEV_POP", "STDDEV_SAMP", "SUM", "VAR_POP", "VAR_SAMP", "VARIANCE")
)
_NOT_PLAIN = ("group", "having", "limit", "offset", "with_", "distinct", "order")


def correlated_scalar(ctx: QueryBinder, left: Relation, node: exp.Expression) -> tuple[Relation, Expr] | None:
    """``left`` joined with the subquery's aggregates, and the subquery's value as an expression over them.
    None if the subquery names no column of ``left``, or has another form."""
    query = node
    while isinstance(query, (exp.Subquery, exp.Paren)):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    select = query
    where = select.args.get("where")
    if where is None or any(select.args.get(k) for k in _NOT_PLAIN) or len(select.expressions) != 1:
        return None
    item = select.expressions[0].unalias()
    if next(aggregate_nodes(ctx, item), None) is None:
        return None
    inner = tables_of(ctx, left, select)
    outer: list[exp.Expression] = []
    own: list[exp.Expression] = []
    for part in factored(where.this):
        (outer if _columns(ctx, left, inner, part)[1] else own).append(part)
    if not outer:
        return None
    sides = [side for part in outer if (side := _sides(ctx, left, inner, part)) is not None]
    if len(sides) < len(outer):
        return None
    keys, values = zip(*sides, strict=True)
    calls = list(aggregate_nodes(ctx, item))
    if any(_columns(ctx, left, inner, call)[1] for call in calls):
        return None
    check_value(ctx, inner, item, calls)
    # No result shows the alias, so ignoring it drops no clause.
    consume(select.expressions[0].args.get("alias"))
    right = ctx.query(_grouped(select, calls, keys, own))
    width = len(left.node.schema)
    bound: Expr | None = None
    columns = right.visible
    for value, column, part in zip(values, columns, outer, strict=False):
        key = InputRef(column.index + width, column.type)
        equal = ctx.call("=", [ctx.expressions(left).bind(value), key], part)
        if not is_one_match(equal):
            return None
        bound = equal if bound is None else ctx.call("AND", [bound, equal], part)
    relation = make_join(ctx, left, right, "left", bound=bound, node=node)
    relation = Relation(relation.node, relation.columns[: len(left.columns)])
    types = relation.node.schema.types
    found: dict[int, Expr] = {}
    for call, column in zip(calls, columns[len(outer) :], strict=True):
        index = column.index + width
        result: Expr = InputRef(index, types[index])
        if counted_function(call) == "COUNT":
            zero = Literal(0, t.BigIntType(nullable=False))
            result = ctx.call("COALESCE", [result, zero], call)
        found[id(call)] = result
    return relation, ctx.expressions(relation, lambda x: found.get(id(x))).bind(item)


def counted_function(call: exp.Expression) -> str:
    """The name of the aggregate function inside FILTER, IGNORE NULLS and RESPECT NULLS."""
    while isinstance(call, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        call = call.this
    return function_name(call).upper() if isinstance(call, exp.Anonymous) else type(call).__name__


def check_value(ctx: QueryBinder, inner: Relation, item: exp.Expression, calls: list[exp.Expression]) -> None:
    """Checks that the value can be computed outside of the subquery, from its aggregates: their values over no
    rows must be known, and the value may name nothing else of the subquery's rows."""
    for call in calls:
        if counted_function(call) not in _OF_NO_ROWS:
            raise ctx.source.unsupported(
                f"{counted_function(call)} in a scalar subquery that reads columns of the outer query",
                call,
                expected="one of " + ", ".join(sorted(_OF_NO_ROWS)),
                remedy="LEFT JOIN the subquery with GROUP BY on those columns",
            )
    inside = {id(call) for call in calls}

    def left_alone(node: exp.Expr) -> bool:
        return id(node) in inside or isinstance(node, exp.Subquery)

    for node in item.dfs(prune=left_alone):
        if (
            isinstance(node, exp.Column)
            and not left_alone(node)
            and inner.find(column_parts(node), node, ctx.source)
        ):
            raise ctx.source.error(
                "a column beside an aggregate", node, expected="the column inside an aggregate function"
            )


def factored(node: exp.Expression) -> list[exp.Expression]:
    """The conjuncts of the condition; an equality that every branch of an OR contains becomes a conjunct of its
    own."""
    parts = conjuncts(node)
    return [made for part in parts for made in (_factored_or(part) if isinstance(part, exp.Or) else [part])]


def _factored_or(node: exp.Or) -> list[exp.Expression]:
    branches = [conjuncts(branch) for branch in _disjuncts(node)]
    shared: list[exp.Expression] = [
        part
        for part in branches[0]
        if isinstance(part, exp.EQ)
        and all(isinstance(side, exp.Column) for side in (part.this, part.expression))
        and all(part in branch for branch in branches[1:])
    ]
    if not shared:
        return [node]
    rests = []
    for branch in branches:
        for part in branch:
            if part in shared:
                consume(part)
        rests.append([part for part in branch if part not in shared])
    if not all(rests):
        # One branch consists of shared conditions only, so they alone decide the OR.
        for part in (part for rest in rests for part in rest):
            consume(part)
        return shared
    rest: exp.Expression = exp.Or(this=_joined(rests[0]), expression=_joined(rests[1]))
    for more in rests[2:]:
        rest = exp.Or(this=rest, expression=_joined(more))
    return [*shared, rest]


def _joined(parts: list[exp.Expression]) -> exp.Expression:
    """The conjunction of ``parts``."""
    made = parts[0]
    for part in parts[1:]:
        made = exp.And(this=made, expression=part)
    return made


def _disjuncts(node: exp.Expression) -> list[exp.Expression]:
    """The conditions that ``node`` joins by OR."""
    if isinstance(node, exp.Paren):
        return _disjuncts(node.this)
    if isinstance(node, exp.Or):
        return _disjuncts(node.this) + _disjuncts(node.expression)
    return [node]


def _columns(ctx: QueryBinder, left: Relation, inner: Relation, node: exp.Expression) -> tuple[bool, bool]:
    """Whether a condition names columns of the inner query, and of the outer one. Names inside a nested query
    belong to that query."""
    of_inner = of_outer = False
    for part in own_parts(node):
        if isinstance(part, exp.Column):
            names = column_parts(part)
            if inner.find(names, part, ctx.source):
                of_inner = True
            else:
                of_outer = of_outer or bool(left.find(names, part, ctx.source))
    return of_inner, of_outer


def own_parts(node: exp.Expression) -> Iterator[exp.Expr]:
    """All parts of a condition except those of queries nested in it."""
    queries = (exp.Select, exp.SetOperation, exp.Subquery)
    return node.dfs(prune=lambda part: isinstance(part, (exp.Column, *queries)))


def _sides(
    ctx: QueryBinder, left: Relation, inner: Relation, part: exp.Expression
) -> tuple[exp.Expression, exp.Expression] | None:
    """(side of the inner query, side of the outer query) of an equality between the two; None for another
    condition."""
    if isinstance(part, exp.EQ):
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            if _columns(ctx, left, inner, mine) == (True, False) and _columns(ctx, left, inner, other) == (
                False,
                True,
            ):
                return mine, other
    return None


def _grouped(
    select: exp.Select,
    calls: list[exp.Expression],
    keys: tuple[exp.Expression, ...],
    own: list[exp.Expression],
) -> exp.Select:
    """The subquery's aggregates by group, without the conditions that name the outer query."""
    named = [
        *((f"$key{i}", key) for i, key in enumerate(keys)),
        *((f"$value{i}", c) for i, c in enumerate(calls)),
    ]

    def change(args: dict[str, Any]) -> None:
        args["expressions"] = [exp.alias_(node, name, quoted=True, copy=False) for name, node in named]
        args["where"] = exp.Where(this=exp.and_(*own, copy=False)) if own else None
        args["group"] = exp.Group(expressions=list(keys))

    return variant(select, change)
