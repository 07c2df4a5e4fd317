"""Plans each scalar subquery at its place, as a join with the subquery's one row.

A SELECT has up to three places: below its aggregation (arguments and keys), below its OVER functions, and above
both. Only binders over a place's own relation know its values, so a column can never be looked up in another
node's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.sql.beside import checked_value, compared_rows, exists_beside, value_beside
from penstock.sql.correlated import correlated_scalar
from penstock.sql.join_nodes import make_join
from penstock.sql.marks import counted, exists_value, in_value, unwrapped
from penstock.sql.outer import OuterScope, free_columns
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

#: Gives the value that a syntax node has at a place; None for an ordinary expression.
Special = Callable[[exp.Expression], Expr | None]
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
ValueQuery = exp.Subquery | exp.Exists | exp.In | exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE


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
        scope = OuterScope(ctx, relation, outer or relation, meaning)
        if (
            isinstance(node, exp.In)
            and not _names_outer(ctx, scope, node.args["query"])
            and (member := in_value(ctx, relation, node, meaning)) is not None
        ):
            relation, found[id(node)] = member
        elif isinstance(node, exp.In):
            relation, found[id(node)] = _joined(
                ctx, scope, compared_rows(ctx, node, node.args["query"], every=False)
            )
        elif isinstance(node, exp.Exists) and (grouped := exists_beside(ctx, scope, node)) is not None:
            relation, found[id(node)] = grouped
        elif isinstance(node, exp.Exists):
            relation, count = _joined(ctx, scope, counted(ctx, node))
            found[id(node)] = exists_value(ctx, count, node)
        elif isinstance(node, exp.Subquery):
            relation, found[id(node)] = _joined(ctx, scope, node)
        else:
            quantifier = node.expression
            every = isinstance(quantifier, exp.All)
            relation, found[id(node)] = _joined(
                ctx, scope, compared_rows(ctx, node, quantifier.this, every=every)
            )
    return relation, meaning


def _names_outer(ctx: QueryBinder, outer: OuterScope, query: exp.Expression) -> bool:
    return bool(free_columns(ctx, outer, unwrapped(query)))


def value_subqueries(root: exp.Expression, apart: Iterable[exp.Expression] = ()) -> list[ValueQuery]:
    """The subqueries below ``root`` that are used as values, inner ones first. Leaves out
    subqueries inside another query, and subqueries inside the nodes ``apart``, which are planned elsewhere."""
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
        elif isinstance(node, _COMPARED) and isinstance(node.expression, (exp.Any, exp.All)):
            waiting += ((node, True), (node.this, False))
        elif isinstance(node, (exp.Subquery, exp.Exists)):
            found.append(node)
        elif isinstance(node, exp.In) and node.args.get("query"):
            waiting += ((node, True), (node.this, False))
        else:
            waiting += ((child, False) for child in reversed([*node.iter_expressions()]))
    return found


def _joined(ctx: QueryBinder, outer: OuterScope, node: exp.Subquery) -> tuple[Relation, Expr]:
    """The subquery's value beside every row. A subquery of several rows fails the job."""
    left = outer.relation
    correlated = correlated_scalar(ctx, left, node)
    if correlated is not None:
        return correlated
    select = unwrapped(node)
    if isinstance(select, exp.Select):
        beside = value_beside(ctx, outer, select) if not node.args.get("with_") else None
        if beside is not None:
            return beside
    right = ctx.query(node)
    if len(right.visible) != 1:
        raise ctx.source.error(
            "a subquery used as a value gives one column", node, got=f"{len(right.visible)} columns"
        )
    if frozenset() not in ctx.analysis.of(right.node).unique:
        return checked_value(ctx, left, node)
    relation = make_join(
        ctx, left, right, "left", bound=Literal(True, t.BooleanType(nullable=False)), node=node
    )
    column = right.visible[0]
    index = column.index + len(left.node.schema)
    hidden = Relation(relation.node, relation.columns[: len(left.columns)])
    return hidden, InputRef(index, relation.node.schema.types[index])
