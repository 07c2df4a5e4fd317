"""Plans a subquery that names columns of the outer query, whatever its form: as a query of its own, with keys.

Two plans are there. If the subquery is bound to the outer query by equalities of its WHERE only, its rows are
computed for every value of the inner sides: ``SELECT w FROM u WHERE u.k = t.k ORDER BY w LIMIT 1`` becomes the
first row for each ``u.k``. Otherwise the distinct outer values are joined into the subquery's FROM, and its
rows are computed for each of them. Either way the outer rows then find their rows by a join on the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.plan import nodes as n
from penstock.plan.rewriting import plain, position
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.consumption import consume, consuming
from penstock.sql.ordering import count
from penstock.sql.outer import OuterScope, free_columns, outer_side
from penstock.sql.overs import window_nodes
from penstock.sql.reading import column_parts, conjuncts, literal_number
from penstock.sql.scope import Relation, unique_schema
from penstock.sql.syntax import BoundTable
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sql.queries import QueryBinder

#: The table of the outer query's values in FROM, and its columns; the subquery's keys and values.
_OUTER, _VALUE, _KEY, _ITEM, _ROW = "$outer", "$o", "$k", "$v", "$row"


@dataclass(frozen=True)
class Keyed:
    """A subquery's rows for all outer rows. ``condition``, over the columns of the outer relation and of
    ``rows``, says which rows are those of an outer row. ``rows`` shows the columns of the subquery only."""

    rows: Relation
    condition: Expr


def keyed(
    ctx: QueryBinder,
    outer: OuterScope,
    select: exp.Select,
    calls: list[exp.Expression] | None = None,
    *,
    single: bool = False,
) -> Keyed | None:
    """The rows of ``select`` for all rows of ``outer``; None if it names no column of ``outer``.

    ``calls``: gives the values of these aggregates for each key in place of what ``select`` selects.
    ``single``: gives one row for each key, the greatest value and the number of rows.
    """
    if not free_columns(ctx, outer, select):
        return None
    made = select.copy()
    wanted = None if calls is None else _twins(select, made, calls)
    keys, values, null_safe = _bind_keys(ctx, outer, made, wanted)
    shown = _with_keys(ctx, made, keys, wanted)
    if single:
        shown = counted_rows(shown, len(keys))
    with consuming(shown, ctx.source):
        right = ctx.query(shown)
    consume(select)
    columns = right.visible
    width = len(outer.relation.node.schema)
    bound: Expr | None = None
    shown_columns = len(columns) - len(keys)
    for value, column in zip(values, columns[shown_columns:], strict=True):
        key = InputRef(column.index + width, column.type)
        equal = ctx.call("IS NOT DISTINCT FROM" if null_safe else "=", [value, key], select)
        bound = equal if bound is None else ctx.call("AND", [bound, equal], select)
    if bound is None:  # the aggregates name nothing of the outer query: they are the same for all of its rows
        bound = Literal(True, t.BooleanType(nullable=False))
    return Keyed(Relation(right.node, tuple(columns[:shown_columns])), bound)


def _twins(select: exp.Select, copy: exp.Select, nodes: list[exp.Expression]) -> list[exp.Expression]:
    """The nodes of ``copy`` in the places of ``nodes`` in ``select``."""
    wanted = {id(node): i for i, node in enumerate(nodes)}
    found: dict[int, Any] = {}
    for mine, its in zip(select.walk(), copy.walk(), strict=True):
        if id(mine) in wanted:
            found[wanted[id(mine)]] = its
    return [found[i] for i in range(len(nodes))]


def _bind_keys(
    ctx: QueryBinder, outer: OuterScope, made: exp.Select, calls: list[exp.Expression] | None
) -> tuple[list[exp.Expression], list[Expr], bool]:
    """The keys of ``made``, which loses its columns of the outer query; their values over the outer relation;
    and whether a NULL finds a NULL. With ``calls``, what ``made`` selects beside them does not count."""
    inner = ctx._with(made).from_clause(made)
    _expand_stars(made, inner)
    if calls is not None:
        made.set("expressions", calls)
    frees = free_columns(ctx, outer, made)
    where = made.args.get("where")
    parts = conjuncts(where.this) if where is not None else []
    free = {id(c) for c in frees}
    sides = [side for part in parts if (side := outer_side(ctx, outer, inner, part, free)) is not None]
    inside = {id(c) for side in sides for c in side.outer.find_all(exp.Column)}
    if sides and free <= inside:
        own = [p for p in parts if all(p is not side.part for side in sides)]
        keys = [side.inner.copy() for side in sides]
        made.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)
        return keys, [side.value for side in sides], False
    if not frees:
        return [], [], False
    return (*_joined_in(ctx, outer, made, frees), True)


def _expand_stars(made: exp.Select, inner: Relation) -> None:
    items: list[exp.Expression] = []
    for item in made.expressions:
        table = item.table if isinstance(item, exp.Column) else None
        if not isinstance(item, exp.Star) and not (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            items.append(item)
            continue
        for column in inner.visible:
            if table is None or column.table == table:
                name = exp.to_identifier(column.name, quoted=True)
                of = exp.to_identifier(column.table, quoted=True) if column.table else None
                items.append(exp.column(name, table=of))
    made.set("expressions", items)


def _joined_in(
    ctx: QueryBinder, outer: OuterScope, made: exp.Select, frees: list[exp.Expression]
) -> tuple[list[exp.Expression], list[Expr]]:
    """Joins the distinct outer values into FROM."""
    values: list[Expr] = []
    for column in frees:
        bound = plain(outer.bind(column))
        at = position(bound, values)
        if at is None:
            values.append(bound)
            at = len(values) - 1
        column.replace(_column(f"{_VALUE}{at}", column))
    schema = unique_schema((f"{_VALUE}{i}", v.type) for i, v in enumerate(values))
    base = n.Project(input=outer.relation.node, expressions=tuple(values), schema=schema)
    distinct = n.Aggregate(input=base, keys=tuple(range(len(values))), aggregates=(), schema=schema)
    relation = Relation.of(distinct, _OUTER)
    first = made.args.get("from_")
    joins = list(made.args.get("joins") or [])
    padding = next((j for j in joins if (j.args.get("side") or "").upper() in ("RIGHT", "FULL")), None)
    if padding is not None:
        raise ctx.source.unsupported(
            "a RIGHT or FULL JOIN in the FROM of a subquery that reads columns of the outer query",
            padding,
            remedy="write the join as a subquery in that FROM",
        )
    table = BoundTable.of(lambda _: relation)
    if first is not None:
        joins.insert(0, exp.Join(this=first.this, kind="CROSS"))
    made.set("from_", exp.From(this=exp.Subquery(this=table, alias=_table_alias(_OUTER))))
    made.set("joins", joins)
    return [_column(f"{_VALUE}{i}") for i in range(len(values))], values


def _with_keys(
    ctx: QueryBinder, made: exp.Select, keys: list[exp.Expression], calls: list[exp.Expression] | None
) -> exp.Expression:
    """``made`` with the columns ``$v0 … , $k0 …``, by key: its groups, its DISTINCT and its LIMIT."""
    clauses = [made.args[k] for k in ("order", "having", "qualify") if made.args.get(k) is not None]
    window = next(iter(window_nodes([*made.expressions, *clauses])), None)
    if window is not None:
        raise ctx.source.unsupported(
            "OVER in a subquery that reads columns of the outer query",
            window,
            remedy="join the tables, and put the keys into PARTITION BY",
        )
    items = [item.unalias() for item in made.expressions] if calls is None else calls
    aggregated = any(next(aggregate_nodes(ctx, item), None) is not None for item in items)
    group, order = made.args.get("group"), made.args.get("order")
    limit = count(ctx, made.args.get("limit"), "LIMIT")
    first = count(ctx, made.args.get("offset"), "OFFSET") or 0
    for clause in (made.args.get("limit"), made.args.get("offset")):
        if clause is not None and clause.args.get("expressions"):
            raise ctx.source.unsupported("LIMIT … BY", clause)
    cut = limit is not None or first > 0
    sorted_by = [_sorted_by(made, ordered) for ordered in order.expressions] if order is not None else []
    if calls is None and group is None and (aggregated or made.args.get("having") is not None):
        # Such a query gives a row also for an outer row that has none in its FROM; by key it would give none.
        raise ctx.source.unsupported(
            "an aggregate without GROUP BY, with HAVING, LIMIT or OFFSET, in a subquery that reads columns of the outer query",
            made,
            remedy="compute the aggregate in the subquery, and write the condition on it outside",
        )
    if group is not None:
        group.set("expressions", [*(k.copy() for k in keys), *group.expressions])
    elif keys and (aggregated or made.args.get("having") is not None):
        made.set("group", exp.Group(expressions=[k.copy() for k in keys]))
    named = [(f"{_ITEM}{i}", x) for i, x in enumerate(items)] + [
        (f"{_KEY}{i}", k) for i, k in enumerate(keys)
    ]
    shown = [exp.alias_(x.copy(), name, quoted=True, copy=False) for name, x in named]
    if cut:
        if made.args.get("distinct"):
            raise ctx.source.unsupported(
                "DISTINCT with LIMIT in a subquery that reads columns of the outer query",
                made,
                remedy="GROUP BY the columns",
            )
        by = exp.Window(
            this=exp.Anonymous(this="ROW_NUMBER", expressions=[]),
            partition_by=[k.copy() for k in keys],
            order=exp.Order(expressions=sorted_by or [exp.Ordered(this=keys[0].copy())]),
        )
        shown.append(exp.alias_(by, _ROW, quoted=True, copy=False))
    for part, value in (("expressions", shown), ("order", None), ("limit", None), ("offset", None)):
        made.set(part, value)
    if not cut:
        return made
    place = _own(_ROW)
    outside = exp.select(*(_own(name) for name, _ in named)).from_(
        exp.Subquery(this=made, alias=_table_alias("$cut")), copy=False
    )
    if first:
        outside = outside.where(exp.GT(this=place.copy(), expression=exp.Literal.number(first)), copy=False)
    if limit is not None:
        last = exp.Literal.number(first + limit)
        outside = outside.where(exp.LTE(this=place.copy(), expression=last), copy=False)
    return outside


def counted_rows(query: exp.Expression, keys: int = 0) -> exp.Select:
    """The greatest value of the first column of ``query``, ``$v0``, and the number of its rows, ``$v1``, for
    each value of its columns ``$k0 …``."""
    names = [_own(f"{_KEY}{i}") for i in range(keys)]
    most = exp.Anonymous(this="MAX", expressions=[_own(f"{_ITEM}0")])
    number = exp.Anonymous(this="COUNT", expressions=[exp.Star()])
    given = [(most, f"{_ITEM}0"), (number, f"{_ITEM}1")]
    shown = [exp.alias_(x, name, quoted=True, copy=False) for x, name in given]
    columns = [f"{_ITEM}0", *(f"{_KEY}{i}" for i in range(keys))]
    inner = exp.Subquery(this=query, alias=_table_alias("$rows", columns))
    made = exp.select(*shown, *names).from_(inner, copy=False)
    return made.group_by(*(x.copy() for x in names), copy=False) if names else made


def _sorted_by(made: exp.Select, ordered: exp.Expression) -> exp.Expression:
    """One key of ORDER BY, in which a column of the SELECT list is written out."""
    item = ordered.this
    number = literal_number(item)
    if number is not None and 1 <= number <= len(made.expressions):
        ordered.set("this", made.expressions[number - 1].unalias().copy())
    elif isinstance(item, exp.Column) and len(column_parts(item)) == 1:
        named = [x for x in made.expressions if isinstance(x, exp.Alias) and x.alias == item.name]
        if len(named) == 1:
            ordered.set("this", named[0].this.copy())
    return ordered.copy()


def _own(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _column(name: str, near: exp.Expression | None = None) -> exp.Column:
    made = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(_OUTER, quoted=True))
    start = (
        next((x.meta["start"] for x in near.walk() if "start" in x.meta), None) if near is not None else None
    )
    if start is not None:
        made.this.meta["start"] = start
    return made


def _table_alias(name: str, columns: Sequence[str] = ()) -> exp.TableAlias:
    made = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    if columns:
        made.set("columns", [exp.to_identifier(c, quoted=True) for c in columns])
    return made
