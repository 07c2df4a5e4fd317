"""Plans the subqueries of conditions as joins: IN, EXISTS, ANY, ALL and scalar subqueries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef
from penstock.plan import nodes as n
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.beside import is_one_row
from penstock.sql.consumption import consume, variant
from penstock.sql.correlated import own_parts
from penstock.sql.decorrelation import keyed
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.join_nodes import make_join
from penstock.sql.marks import asks_for_a_row, unwrapped
from penstock.sql.outer import OuterScope, free_columns, tables_of
from penstock.sql.reading import column_parts, conjuncts
from penstock.sql.scalars import value_subqueries, with_scalars
from penstock.sql.scope import Relation, joined, joined_schema

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scalars import Special

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip


def bind_condition_subquery(
    ctx: QueryBinder, left: Relation, node: exp.Expression, special: Special | None = None
) -> Relation | None:
    """A conjunct of WHERE or HAVING as a semi or anti join, if it is [NOT] IN (query), [NOT] EXISTS (query) or
    a comparison with ANY or ALL; otherwise None. ``special`` gives the values of the clause's aggregates."""
    negate = False
    while isinstance(node, (exp.Not, exp.Paren)):
        negate ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return _in_query(ctx, left, node, negate, special)
    if isinstance(node, exp.Exists):
        return _exists(ctx, left, node, negate, special)
    if type(node) in _COMPARISONS and isinstance(node.expression, (exp.Any, exp.All)):
        return _quantified(ctx, left, node, negate, special)
    return None


def _quantified(
    ctx: QueryBinder, left: Relation, node: exp.Expression, negate: bool, special: Special | None
) -> Relation:
    """The rows of ``left`` for which a condition such as ``x > ANY (query)`` or ``x > ALL (query)`` holds."""
    left, special = with_scalars(ctx, left, value_subqueries(node.this), special)
    every = isinstance(node.expression, exp.All)
    query = node.expression.this
    right, correlation = _subquery(ctx, left, query.this if isinstance(query, exp.Paren) else query, special)
    if len(right.visible) != 1:
        raise ctx.source.error(
            "the query behind ANY or ALL gives one column", node, got=f"{len(right.visible)} columns"
        )
    value = ctx.expressions(left, special).bind(node.this)
    column = right.visible[0]
    holds = ctx.call(
        _COMPARISONS[type(node)], [value, InputRef(column.index + len(left.node.schema), column.type)], node
    )
    # NOT (x > ALL q) is x <= ANY q, also with NULLs in WHERE: a condition that is unknown does not hold.
    if every != negate:
        how = "IS NOT TRUE" if every else "IS NOT FALSE"
        kind, bound = "anti", ctx.call(how, [holds], node)
    else:
        kind, bound = "semi", ctx.call("IS FALSE", [holds], node) if negate else holds
    if correlation is not None:
        bound = ctx.call("AND", [correlation, bound], node)
    return make_join(ctx, left, right, kind, bound=bound, node=node)


def _in_query(
    ctx: QueryBinder, left: Relation, node: exp.In, negate: bool, special: Special | None
) -> Relation:
    left, special = with_scalars(ctx, left, value_subqueries(node.this), special)
    right, correlation = _subquery(ctx, left, node.args["query"], special)
    tested = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    binder = ctx.expressions(left, special)
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
        # NOT IN is unknown, and so does not hold, as soon as one comparison is unknown.
        condition = ctx.call("IS NOT FALSE", [condition], node)
    if correlation is not None:
        condition = ctx.call("AND", [correlation, condition], node)
    return make_join(ctx, left, right, "anti" if negate else "semi", bound=condition, node=node)


def _subquery(
    ctx: QueryBinder, left: Relation, query: exp.Expression, special: Special | None = None
) -> tuple[Relation, Expr | None]:
    """A subquery's rows, and the conditions that bind them to the outer query. These are bound over the columns
    of ``left`` and of the subquery; None if there are none."""
    select = query
    while isinstance(select, (exp.Subquery, exp.Paren)):
        select = select.this
    if not isinstance(select, exp.Select):
        return ctx.query(query), None
    where = select.args.get("where")
    grouped = any(
        select.args.get(k) for k in ("group", "having", "limit", "offset", "with_", "distinct", "order")
    )
    aggregated = any(next(aggregate_nodes(ctx, item), None) is not None for item in select.expressions)
    if where is None or grouped or aggregated:
        return _by_key(ctx, left, query, select, special)
    inner = tables_of(ctx, left, select)
    outer, own = _split_where(ctx, left, inner, where.this)
    if not outer or _reads_deeply(ctx, left, select, special):
        return _by_key(ctx, left, query, select, special)
    inner = _own_conditions(ctx, inner, own)
    # The join reads the columns of the outer conditions, so all inner columns stay beside the selected ones.
    plain = variant(select, lambda args: args.pop("where"))
    outputs = [(c.name, inner.ref(c), c.table) for c in inner.columns]
    width = len(outputs)
    chosen = ctx.query(plain).visible
    binder = ctx.expressions(inner)
    selected: list[tuple[str, Expr, str | None]] = []
    for item, column in zip(_selected(ctx, select, inner), chosen, strict=True):
        bound = item if not isinstance(item, exp.Expression) else binder.bind(item)
        selected.append((column.name, bound, None))
    right = ctx.project_qualified(inner, [*outputs, *selected])
    shown = tuple(replace(c, hidden=c.index < width) for c in right.columns)
    scope = Relation(right.node, tuple(c for c in right.columns if c.index < width))
    return Relation(right.node, shown), _correlated(ctx, left, scope, outer)


def _reads_deeply(ctx: QueryBinder, left: Relation, select: exp.Select, special: Special | None) -> bool:
    """Whether a query nested in the subquery names columns of ``left``."""
    where = select.args.get("where")
    if where is None or where.find(exp.Select) is None:
        return False
    own = {id(part) for part in own_parts(where.this)}
    return any(
        id(c) not in own for c in free_columns(ctx, OuterScope(ctx, left, left, special), where, select)
    )


def _by_key(
    ctx: QueryBinder, left: Relation, query: exp.Expression, select: exp.Select, special: Special | None
) -> tuple[Relation, Expr | None]:
    """As ``_subquery``, for a query of any form."""
    if query is not select and any(q.args.get("with_") for q in (query,)):
        return ctx.query(query), None
    outer = OuterScope(ctx, left, left, special)
    if not free_columns(ctx, outer, select):
        return ctx.query(query), None
    if is_one_row(ctx, select):
        raise ctx.source.unsupported(
            "an aggregate without GROUP BY in a subquery that reads columns of the outer query, behind IN, ANY or ALL",
            select,
            remedy="compare with the value: x = (SELECT MAX(y) …)",
        )
    found = keyed(ctx, outer, select)
    assert found is not None
    return found.rows, found.condition


def _selected(ctx: QueryBinder, select: exp.Select, inner: Relation) -> list[exp.Expression | Expr]:
    """The expressions of a SELECT list, with stars expanded."""
    out: list[exp.Expression | Expr] = []
    for item in select.expressions:
        if isinstance(item, exp.Star):
            out += [inner.ref(c) for c in inner.visible]
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            out += [inner.ref(c) for c in inner.visible if c.table == item.table]
        else:
            out.append(item.this if isinstance(item, exp.Alias) else item)
    return out


def _split_where(
    ctx: QueryBinder, left: Relation, inner: Relation, condition: exp.Expression
) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """The conjuncts that name a column of the outer query, and those over the inner query alone."""
    outer: list[exp.Expression] = []
    own: list[exp.Expression] = []
    for part in conjuncts(condition):
        (outer if _names_outer(ctx, left, inner, part) else own).append(part)
    return outer, own


def _names_outer(ctx: QueryBinder, left: Relation, inner: Relation, condition: exp.Expression) -> bool:
    """Whether the condition names a column that the inner query does not have and the outer one has. Names
    inside a nested query belong to that query."""
    for part in own_parts(condition):
        if isinstance(part, exp.Column):
            names = column_parts(part)
            if not inner.find(names, part, ctx.source) and left.find(names, part, ctx.source):
                return True
    return False


def _own_conditions(ctx: QueryBinder, inner: Relation, own: list[exp.Expression]) -> Relation:
    for part in own:
        inner = bind_where(ctx, inner, part)
    return inner


def _exists(
    ctx: QueryBinder, left: Relation, node: exp.Exists, negate: bool, special: Special | None
) -> Relation:
    select = unwrapped(node.this)
    kind = "anti" if negate else "semi"
    if not asks_for_a_row(select, ctx) or _reads_deeply(ctx, left, select, special):
        found = None
        if isinstance(select, exp.Select) and not is_one_row(ctx, select):
            found = keyed(ctx, OuterScope(ctx, left, left, special), select)
        if found is not None:
            return make_join(ctx, left, found.rows, kind, bound=found.condition, node=node)
        return make_join(ctx, left, ctx.query(select), kind, node=node)
    right = tables_of(ctx, left, select)
    # The SELECT list, DISTINCT and ORDER BY do not change whether there is a row.
    for ignored in (*select.expressions, select.args.get("distinct"), select.args.get("order")):
        consume(ignored)
    where = select.args.get("where")
    bound = None
    if where is not None:
        outer, own = _split_where(ctx, left, right, where.this)
        right = _own_conditions(ctx, right, own)
        bound = _correlated(ctx, left, right, outer) if outer else None
    return make_join(ctx, left, right, kind, bound=bound, node=node)


def _correlated(ctx: QueryBinder, left: Relation, right: Relation, parts: list[exp.Expression]) -> Expr:
    """The conjunction of conditions that name columns of both relations; a
    name in both is the inner one's."""
    width = len(left.node.schema)
    plain = joined_schema(left.node.schema, right.node.schema, left_null=False, right_null=False)
    scope = joined(left, right, n.Values(schema=plain, data=""))
    inner = Relation(scope.node, tuple(c for c in scope.columns if c.index >= width))

    def special(node: exp.Expression) -> Expr | None:
        if isinstance(node, exp.Column) and inner.find(column_parts(node), node, ctx.source):
            return ExpressionBinder(inner, ctx.source, zone=ctx.zone).bind(node)
        return None

    binder = ctx.expressions(scope, special)
    bound = [binder.condition(part, "WHERE") for part in parts]
    return bound[0] if len(bound) == 1 else ctx.call("AND", bound)


# -- in ON, WHERE and HAVING --------------------------------------------------------------------


def bind_on(
    ctx: QueryBinder, left: Relation, right: Relation, how: str, condition: exp.Expression
) -> tuple[Relation, Relation, list[exp.Expression], list[exp.Expression]]:
    """Plans the conditions of ON that have subqueries: (left, right, other conditions, conditions for the joined
    rows). A condition on the padded side of an outer join filters that side before the join."""
    plain: list[exp.Expression] = []
    above: list[exp.Expression] = []
    for part in conjuncts(condition):
        if part.find(exp.Select, exp.SetOperation) is None:
            plain.append(part)
            continue
        if how == "inner":
            above.append(part)
        elif how == "left" and not free_columns(ctx, OuterScope(ctx, left, left), part):
            right = bind_condition(ctx, right, part, "ON")
        elif how == "right" and not free_columns(ctx, OuterScope(ctx, right, right), part):
            left = bind_condition(ctx, left, part, "ON")
        else:
            raise ctx.source.unsupported(
                f"a subquery in ON of a {how} join that reads columns of the preserved side",
                part,
                expected="an inner join, or a condition on the padded side alone",
                remedy="compute the subquery in a derived table of that side, and compare its column in ON",
            )
    return left, right, plain, above


def bind_where(ctx: QueryBinder, relation: Relation, condition: exp.Expression) -> Relation:
    """The relation filtered by a WHERE condition, whose subqueries become joins."""
    for part in conjuncts(condition):
        nested = next(aggregate_nodes(ctx, part), None)
        if nested is not None:
            raise ctx.source.error(
                "an aggregate cannot stand in WHERE",
                nested,
                expected="HAVING",
                remedy="move it to HAVING",
            )
    return bind_condition(ctx, relation, condition, "WHERE")


def bind_condition(
    ctx: QueryBinder,
    relation: Relation,
    condition: exp.Expression,
    clause: str,
    special: Special | None = None,
    *,
    outer: Relation | None = None,
) -> Relation:
    """The rows of ``relation`` that meet a condition: subqueries become joins, the rest a filter above them."""
    plain: list[exp.Expression] = []
    for part in conjuncts(condition):
        subquery = bind_condition_subquery(ctx, relation, part, special)
        if subquery is not None:
            relation = subquery
        else:
            plain.append(part)
    values = [s for part in plain for s in value_subqueries(part)]
    relation, known = with_scalars(ctx, relation, values, special, outer=outer)
    bound = [ctx.expressions(relation, known).condition(part, clause) for part in plain]
    if not bound:
        return relation
    whole = bound[0] if len(bound) == 1 else ctx.call("AND", bound)
    return relation.over(filtered(relation.node, whole))


def filtered(node: n.Node, condition: Expr) -> n.Filter:
    """The rows of ``node`` for which ``condition`` is TRUE."""
    return n.Filter(input=node, condition=condition, schema=node.schema)
