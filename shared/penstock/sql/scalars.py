"""Plans each scalar subquery at its place, as a join with the subquery's one row.

A SELECT has up to three places: below its aggregation (arguments and keys), below its OVER functions, and above
both. Only binders over a place's own relation know its values, so a column can never be looked up in another
node's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SqlError
from penstock.functions.expr import Expr, InputRef, Literal
from penstock.sql.correlated import correlated_scalar
from penstock.sql.joins import make_join
from penstock.sql.marks import counted, exists_value, in_value
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

#: Gives the value that a syntax node has at a place; None for an ordinary expression.
Special = Callable[[exp.Expression], Expr | None]
ValueQuery = exp.Subquery | exp.Exists | exp.In


def with_scalars(
    ctx: QueryBinder,
    relation: Relation,
    nodes: Iterable[ValueQuery],
    special: Special | None = None,
    *,
    outer: Relation | None = None,
) -> tuple[Relation, Special]:
    """``relation`` joined with the subqueries in ``nodes``, and a ``Special`` that gives their values.

    ``special``: gives the values of other nodes over ``relation``. ``outer``: the relation whose names the
    whole query knows, if these differ from the names of ``relation``.
    """
    found: dict[int, Expr] = {}

    def meaning(node: exp.Expression) -> Expr | None:
        known = found.get(id(node))
        return known if known is not None or special is None else special(node)

    for node in nodes:
        if isinstance(node, exp.In):
            relation, found[id(node)] = in_value(ctx, relation, node, meaning)
        elif isinstance(node, exp.Exists):
            relation, count = _joined(ctx, relation, counted(ctx, node), outer or relation)
            found[id(node)] = exists_value(ctx, count, node)
        else:
            relation, found[id(node)] = _joined(ctx, relation, node, outer or relation)
    return relation, meaning


def value_subqueries(root: exp.Expression, apart: Iterable[exp.Expression] = ()) -> list[ValueQuery]:
    """The subqueries below ``root`` that are used as values, inner ones first. Leaves out
    subqueries of ANY and ALL, subqueries inside another query, and subqueries inside the nodes
    ``apart``, which are planned elsewhere."""
    skipped = {id(node) for node in apart}

    found: list[ValueQuery] = []
    # (node, whether the nodes below it have been searched)
    waiting: list[tuple[Any, bool]] = [(root, False)]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            found.append(node)
        elif id(node) in skipped or isinstance(node, (exp.Select, exp.SetOperation, exp.Any, exp.All)):
            continue
        elif isinstance(node, (exp.Subquery, exp.Exists)):
            found.append(node)
        elif isinstance(node, exp.In) and node.args.get("query"):
            waiting += ((node, True), (node.this, False))
        else:
            waiting += ((child, False) for child in reversed([*node.iter_expressions()]))
    return found


def _joined(ctx: QueryBinder, left: Relation, node: exp.Subquery, outer: Relation) -> tuple[Relation, Expr]:
    """The subquery's value beside every row. The subquery must give one row at most."""
    correlated = correlated_scalar(ctx, left, node)
    if correlated is not None:
        return correlated
    try:
        right = ctx.query(node)
    except SqlError as err:
        qualified = {f"{c.table}.{c.name}" for c in outer.visible if c.table}
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
