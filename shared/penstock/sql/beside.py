"""Plans subqueries that name columns of the outer query beside the outer rows: their value, or their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.functions.single_value import SINGLE_VALUE
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.consumption import consume, variant
from penstock.sql.correlated import check_value, counted_function
from penstock.sql.decorrelation import counted_rows, keyed
from penstock.sql.join_nodes import make_join
from penstock.sql.marks import asks_for_a_row, exists_value, unwrapped
from penstock.sql.ordering import count
from penstock.sql.outer import OUTER_MARK, OuterScope, OuterValue, free_columns, tables_of
from penstock.sql.reading import natural_name
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from typing import Any

    from penstock.sql.queries import QueryBinder

_ZERO = Literal(0, t.BigIntType(nullable=False))
_TRUE = Literal(True, t.BooleanType(nullable=False))


def is_one_row(ctx: QueryBinder, select: exp.Select) -> bool:
    """Whether the query aggregates all of its rows, so that it gives one row also without any."""
    return (
        not any(select.args.get(k) for k in ("group", "having", "offset", "limit"))
        and next((c for item in select.expressions for c in aggregate_nodes(ctx, item)), None) is not None
    )


def value_beside(ctx: QueryBinder, outer: OuterScope, select: exp.Select) -> tuple[Relation, Expr] | None:
    """The outer rows joined with the value of a scalar subquery, and that value. None if the subquery names no
    column of the outer query. A second row fails the job."""
    if is_one_row(ctx, select):
        made = _aggregated(ctx, outer, select)
        return None if made is None else (made[0], made[1][0])
    left = outer.relation
    single = count(ctx, select.args.get("limit"), "LIMIT") == 1
    found = keyed(ctx, outer, select, single=not single)
    if found is None:
        return None
    relation = _beside(make_join(ctx, left, found.rows, "left", bound=found.condition, node=select), left)
    width = len(left.node.schema)
    refs = [_ref(relation, c.index + width) for c in found.rows.columns]
    return relation, refs[0] if single else ctx.call(SINGLE_VALUE, list(refs), select)


def checked_value(ctx: QueryBinder, left: Relation, query: exp.Expression) -> tuple[Relation, Expr]:
    """The outer rows joined with the value of a query that names nothing of theirs. A second row of the query
    fails the job."""
    right = ctx.query(counted_rows(query))
    relation = make_join(ctx, left, right, "left", bound=_TRUE, node=query)
    width = len(left.node.schema)
    refs: list[Expr] = [_ref(relation, c.index + width) for c in right.visible]
    return _beside(relation, left), ctx.call(SINGLE_VALUE, refs, query)


def exists_beside(ctx: QueryBinder, outer: OuterScope, node: exp.Exists) -> tuple[Relation, Expr] | None:
    """The outer rows joined with the number of rows of an EXISTS that groups or cuts its rows, and its value. None
    if its FROM and WHERE decide, or if it names no column of the outer query."""
    select = unwrapped(node.this)
    if asks_for_a_row(select, ctx) or not isinstance(select, exp.Select) or is_one_row(ctx, select):
        return None
    left = outer.relation
    found = keyed(ctx, outer, select, single=True)
    if found is None:
        return None
    relation = _beside(make_join(ctx, left, found.rows, "left", bound=found.condition, node=node), left)
    number = _ref(relation, found.rows.columns[1].index + len(left.node.schema))
    return relation, exists_value(ctx, number, node)


def rows_beside(
    ctx: QueryBinder, left: Relation, select: exp.Select, alias: exp.TableAlias | None, kind: str, join: Any
) -> Relation | None:
    """``left JOIN LATERAL (select) AS alias``; None if the query names no column of ``left``."""
    outer = OuterScope(ctx, left, left)
    if not free_columns(ctx, outer, select):
        return None
    table = alias.name if alias is not None else None
    given = [c.name for c in (alias.args.get("columns") or [])] if alias is not None else []
    if is_one_row(ctx, select):
        made = _aggregated(ctx, outer, select)
        assert made is not None
        relation, values = made
        names = _names(ctx, select, given, len(values))
        outputs: list[tuple[str, Expr, str | None]] = [
            (c.name, relation.ref(c), c.table) for c in relation.columns
        ]
        outputs += [(name, value, table) for name, value in zip(names, values, strict=True)]
        return ctx.project_qualified(relation, outputs)
    found = keyed(ctx, outer, select)
    assert found is not None
    names = _names(ctx, select, given, len(found.rows.columns))
    return make_join(ctx, left, found.rows.aliased(table, names), kind, bound=found.condition, node=join)


def _names(ctx: QueryBinder, select: exp.Select, given: list[str], number: int) -> list[str]:
    if given:
        if len(given) != number:
            raise ctx.source.error(
                f"the alias names {len(given)} columns", select, expected=f"{number} names"
            )
        return given
    inner = ctx._with(select).from_clause(select)
    names: list[str] = []
    for i, item in enumerate(select.expressions):
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            table = item.table if isinstance(item, exp.Column) else None
            names += [c.name for c in inner.visible if table is None or c.table == table]
        else:
            names.append(item.alias or natural_name(item) or f"EXPR${i}")
    return names


def _aggregated(
    ctx: QueryBinder, outer: OuterScope, select: exp.Select
) -> tuple[Relation, list[Expr]] | None:
    """The outer rows joined with the aggregates of a query without GROUP BY, and what it selects."""
    items = [item.unalias() for item in select.expressions]
    calls = [c for item in items for c in aggregate_nodes(ctx, item)]
    left = outer.relation
    inner = tables_of(ctx._with(select), outer.names, select)
    for item in items:
        check_value(ctx, inner, item, calls)
    found = keyed(ctx, outer, select, calls)
    if found is None:
        return None
    relation = _beside(make_join(ctx, left, found.rows, "left", bound=found.condition, node=select), left)
    width = len(left.node.schema)
    results: dict[int, Expr] = {}
    for call, column in zip(calls, found.rows.columns, strict=True):
        value: Expr = _ref(relation, column.index + width)
        if counted_function(call) == "COUNT":
            value = ctx.call("COALESCE", [value, _ZERO], call)
        results[id(call)] = value

    def meaning(node: exp.Expression) -> Expr | None:
        known = results.get(id(node))
        return known if known is not None or outer.special is None else outer.special(node)

    binder = ctx.expressions(relation, meaning)
    return relation, [binder.bind(item) for item in items]


# -- quantified comparisons as values -------------------------------------------------------------


def compared_rows(
    ctx: QueryBinder, node: exp.Expression, query: exp.Expression, *, every: bool
) -> exp.Subquery:
    """A scalar subquery whose value is ``x <op> ANY (query)``, or ``ALL``: TRUE, FALSE, or NULL for unknown.
    ``node`` is the comparison, whose left side is of the outer query."""
    tested = node.this.copy()
    if tested.find(exp.Column, exp.Select) is None:
        consume(node.this)  # the copy means the same inside
    else:
        tested.meta[OUTER_MARK] = OuterValue(node.this)
    value = exp.column(exp.to_identifier("$v", quoted=True))
    kind = exp.EQ if isinstance(node, exp.In) else type(node)
    holds = kind(this=exp.Paren(this=tested), expression=value)
    wanted: exp.Expression = exp.Not(this=exp.Paren(this=holds)) if every else holds
    unknown = exp.Is(this=exp.Paren(this=holds.copy()), expression=exp.Null())
    found, open_ = (
        exp.GT(this=exp.Filter(
            this=exp.Anonymous(this="COUNT", expressions=[exp.Star()]), expression=exp.Where(this=condition)
        ), expression=exp.Literal.number(0))
        for condition in (wanted, unknown)
    )  # fmt: skip
    answer = exp.Case(
        ifs=[exp.If(this=found, true=exp.Boolean(this=not every)), exp.If(this=open_, true=exp.Null())],
        default=exp.Boolean(this=every),
    )
    inner = query
    while isinstance(inner, (exp.Subquery, exp.Paren)):
        inner = inner.this
    plain = isinstance(inner, exp.Select) and not any(
        inner.args.get(k)
        for k in ("group", "having", "limit", "offset", "with_", "distinct", "order", "windows")
    )
    if (
        plain
        and len(inner.expressions) == 1
        and inner.find(exp.Star, exp.Window) is None
        and next(aggregate_nodes(ctx, inner.expressions[0]), None) is None
    ):
        item = inner.expressions[0].unalias()
        for at in [c for c in answer.find_all(exp.Column) if c.name == "$v" and not c.table]:
            at.replace(exp.Paren(this=item.copy()))
        consume(inner.expressions[0])
        return exp.Subquery(this=variant(inner, lambda args: args.update(expressions=[answer])))
    derived = exp.Subquery(
        this=inner,
        alias=exp.TableAlias(
            this=exp.to_identifier("$in", quoted=True), columns=[exp.to_identifier("$v", quoted=True)]
        ),
    )
    return exp.Subquery(this=exp.select(answer).from_(derived, copy=False))


def _beside(joined: Relation, left: Relation) -> Relation:
    """The joined rows, with the column names of ``left`` only."""
    return Relation(joined.node, joined.columns[: len(left.columns)])


def _ref(relation: Relation, index: int) -> InputRef:
    return InputRef(index, relation.node.schema.types[index])
