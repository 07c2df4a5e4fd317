"""Plans EXISTS (query) and IN (query) as values: under OR, in a CASE, in the SELECT list.

A semi join filters rows, so it cannot give a value. EXISTS compares the count of the query's rows with 0. IN
is a LEFT JOIN with the query's distinct values; where a NULL may make the answer unknown, two counts of the
query's rows decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from sqlglot import exp

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.consumption import consume, variant
from penstock.sql.join_nodes import make_join
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from typing import Any

    from penstock.sql.queries import QueryBinder
    from penstock.sql.scalars import Special

_KEY, _ROWS = "$key", "$rows"
_TRUE = Literal(True, t.BooleanType(nullable=False))
_FALSE = Literal(False, t.BooleanType(nullable=False))


def asks_for_a_row(select: exp.Expression, ctx: QueryBinder) -> TypeGuard[exp.Select]:
    """Whether the query gives a row exactly when its FROM and WHERE give one, whatever it selects."""
    return (
        isinstance(select, exp.Select)
        and not any(select.args.get(k) for k in ("group", "having", "limit", "offset", "with_"))
        and next((x for item in select.expressions for x in aggregate_nodes(ctx, item)), None) is None
    )


def counted(ctx: QueryBinder, node: exp.Exists) -> exp.Subquery:
    """The scalar subquery that counts the rows of an EXISTS."""
    select = unwrapped(node.this)
    count = _count(exp.Star())
    if not asks_for_a_row(select, ctx):
        return exp.Subquery(this=exp.select(count).from_(_derived(select, []), copy=False))
    for ignored in (*select.expressions, select.args.get("distinct"), select.args.get("order")):
        consume(ignored)

    def change(args: dict[str, Any]) -> None:
        args.update(expressions=[count], distinct=None, order=None)

    return exp.Subquery(this=variant(select, change))


def exists_value(ctx: QueryBinder, count: Expr, node: exp.Exists) -> Expr:
    """The value of EXISTS, from the count of its rows. The count is NULL while
    a stream has given no row yet."""
    zero = Literal(0, t.BigIntType(nullable=False))
    return ctx.call(">", [ctx.call("COALESCE", [count, zero], node), zero], node)


def in_value(
    ctx: QueryBinder, left: Relation, node: exp.In, special: Special | None
) -> tuple[Relation, Expr] | None:
    """``left`` joined with the columns that IN needs, and the value of IN: TRUE, FALSE or NULL for unknown. None if
    a cast may make different values of the query equal to one of ``left``."""
    if isinstance(node.this, exp.Tuple) and len(node.this.expressions) > 1:
        raise ctx.source.unsupported(
            "IN (subquery) of several columns as a value",
            node,
            remedy="use it as a condition of WHERE or HAVING, joined by AND",
        )
    value = ctx.expressions(left, special).bind(node.this)
    query = unwrapped(node.args["query"])
    key = exp.column(_identifier(_KEY))
    distinct = (
        exp.select(key.copy()).from_(_derived(query, [_KEY]), copy=False).group_by(key.copy(), copy=False)
    )
    right = ctx.query(distinct)
    width = len(left.node.schema)
    column = right.visible[0]
    equal = ctx.call("=", [value, InputRef(column.index + width, column.type)], node)
    if not is_one_match(equal):
        return None
    relation = _beside(make_join(ctx, left, right, "left", bound=equal, node=node), left)
    found = ctx.call("IS NOT NULL", [_ref(relation, column.index + width)], node)
    if not (value.type.nullable or column.type.nullable):
        return relation, found
    totals = ctx.query(
        exp.select(
            exp.alias_(_count(exp.Star()), _ROWS, quoted=True),
            exp.alias_(_count(key.copy()), _KEY, quoted=True),
        ).from_(_derived(query, [_KEY]), copy=False)
    )
    width = len(relation.node.schema)
    relation = _beside(make_join(ctx, relation, totals, "left", bound=_TRUE, node=node), left)
    zero = Literal(0, t.BigIntType(nullable=False))
    rows, set_ = (ctx.call("COALESCE", [_ref(relation, c.index + width), zero], node) for c in totals.visible)
    unknown = ctx.call("OR", [ctx.call("IS NULL", [value], node), ctx.call("<>", [rows, set_], node)], node)
    none = ctx.call("=", [rows, zero], node)
    return relation, ctx.call(
        "CASE", [found, _TRUE, none, _FALSE, unknown, Literal(None, t.BooleanType()), _FALSE], node
    )


def is_one_match(equal: Expr) -> bool:
    """Whether an outer value equals one key of the inner query at most. Otherwise a join by the key would repeat
    the outer row."""
    assert isinstance(equal, Call)
    key = equal.args[-1]
    return isinstance(key, InputRef) or (isinstance(key, Call) and _keeps_apart(key))


def _keeps_apart(cast: Call) -> bool:
    """Whether the cast keeps different values different."""
    have, want = cast.args[0].type, cast.type
    exact = (*t.INTEGERS, t.DecimalType)
    if isinstance(want, t.DoubleType):
        return isinstance(have, (t.TinyIntType, t.SmallIntType, t.IntType, t.FloatType))
    return (
        (isinstance(have, exact) and isinstance(want, exact))
        or (isinstance(have, t.VarCharType) and isinstance(want, t.VarCharType))
        or (isinstance(have, t.DateType) and isinstance(want, (t.TimestampType, t.TimestampLtzType)))
    )


def unwrapped(node: exp.Expression) -> exp.Expression:
    """A query without its parentheses."""
    while isinstance(node, (exp.Subquery, exp.Paren)):
        node = node.this
    return node


def _derived(query: exp.Expression, columns: list[str]) -> exp.Subquery:
    alias = exp.TableAlias(this=_identifier("$in"), columns=[_identifier(c) for c in columns])
    return exp.Subquery(this=query, alias=alias)


def _count(of: exp.Expression) -> exp.Anonymous:
    """The node that the parser makes of COUNT(of)."""
    return exp.Anonymous(this="COUNT", expressions=[of])


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _beside(joined: Relation, left: Relation) -> Relation:
    """The joined rows, with the column names of ``left`` only."""
    return Relation(joined.node, joined.columns[: len(left.columns)])


def _ref(relation: Relation, index: int) -> InputRef:
    return InputRef(index, relation.node.schema.types[index])
