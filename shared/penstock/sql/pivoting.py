"""PIVOT: one row per group, with a column for each value of the pivoted columns and each aggregate.

``t PIVOT (SUM(v) AS s FOR k IN ('a', 'b' AS bb))`` is translated as the query
``SELECT the other columns, SUM(v) FILTER (WHERE k = 'a') AS `'a'_s`, … FROM t GROUP BY the other columns``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.consumption import consume, variant
from penstock.sql.syntax import BoundTable

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scope import Relation

_FORM = "PIVOT (SUM(v) AS s FOR k IN ('a' AS a, 'b' AS b))"


def bind_pivots(ctx: QueryBinder, relation: Relation, node: exp.Expression) -> Relation:
    """The relation of a table after its PIVOT clauses."""
    for pivot in node.args.get("pivots") or []:
        relation = _pivoted(ctx, relation, pivot)
    return relation


def _pivoted(ctx: QueryBinder, relation: Relation, pivot: exp.Pivot) -> Relation:
    if pivot.args.get("unpivot"):
        raise ctx.source.unsupported("UNPIVOT", pivot, remedy="UNION ALL of one SELECT for each column")
    if pivot.args.get("default_on_null"):
        raise ctx.source.unsupported("DEFAULT ON NULL of PIVOT", pivot, remedy="COALESCE over the column")
    axes, values = _axes_and_values(ctx, pivot)
    calls = [_aggregate(ctx, item) for item in pivot.expressions]
    used = {column.name for call, _ in calls for column in call.find_all(exp.Column)}
    used.update(axis.name for axis in axes)
    keys = [
        exp.column(exp.to_identifier(c.name, quoted=True)) for c in relation.visible if c.name not in used
    ]
    items: list[exp.Expression] = list(keys)
    names: set[str] = {key.name for key in keys}
    for label, literals in values:
        condition = exp.and_(
            *(
                exp.EQ(this=axis.copy(), expression=value.copy())
                for axis, value in zip(axes, literals, strict=True)
            )
        )
        for call, alias in calls:
            name = label if alias is None else f"{label}_{alias}"
            if name in names:
                raise ctx.source.error(
                    f"PIVOT gives two columns the name '{name}'",
                    pivot,
                    remedy="name each value and each aggregate with AS",
                )
            names.add(name)
            # The call's arguments are shared by its copies, so that a clause nobody reads is still refused.
            filtered = exp.Filter(
                this=variant(call, lambda _: None), expression=exp.Where(this=condition.copy())
            )
            items.append(exp.Alias(this=filtered, alias=exp.to_identifier(name, quoted=True)))
    rows = exp.Subquery(this=BoundTable.of(lambda _: relation))
    query = exp.Select(expressions=items, from_=exp.From(this=rows))
    if keys:
        query.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    for name in pivot.args.get("columns") or []:
        consume(name)  # The parser names columns after other systems' rules. Those names are not used.
    return ctx._aliased(ctx.query(query), pivot.args.get("alias"))


def _axes_and_values(
    ctx: QueryBinder, pivot: exp.Pivot
) -> tuple[list[exp.Expression], list[tuple[str, list[exp.Expression]]]]:
    """The pivoted columns; and for each value in IN its name and its literals, one for each column."""
    fields = pivot.args.get("fields") or []
    if (
        len(fields) != 1
        or not isinstance(fields[0], exp.In)
        or not fields[0].expressions
        or fields[0].find(exp.PivotAny)
    ):
        raise ctx.source.unsupported("this form of PIVOT", pivot, expected=_FORM)
    (given,) = fields
    axes = given.this.expressions if isinstance(given.this, exp.Tuple) else [given.this]
    for axis in axes:
        if not isinstance(axis, exp.Column) or axis.table:
            raise ctx.source.error(
                "PIVOT … FOR needs columns", axis, expected="names of columns without a table"
            )
    values = []
    for item in given.expressions:
        named = isinstance(item, exp.PivotAlias)
        value = item.this if named else item
        literals = value.expressions if isinstance(value, exp.Tuple) else [value]
        literals = [x.this if isinstance(x, exp.Paren) else x for x in literals]
        if len(literals) != len(axes):
            raise ctx.source.error(
                "a value of PIVOT does not fit its columns", value, expected=f"{len(axes)} values",
                got=str(len(literals)),
            )  # fmt: skip
        plain = all(isinstance(x, exp.Literal) for x in literals)
        for literal in literals:
            if isinstance(literal, exp.Null) or literal.find(exp.Column, exp.Select) is not None:
                raise ctx.source.error(
                    "PIVOT compares with constants",
                    literal if isinstance(literal, exp.Column) else value,
                    expected="a literal that is not NULL",
                )
        if not named and not plain:
            raise ctx.source.error("a value of PIVOT has no name", value, expected="a value AS name")
        if named and not isinstance(item.args["alias"], exp.Identifier):
            raise ctx.source.error(
                "the name of a value of PIVOT is no identifier", item, expected="a value AS name"
            )
        label = item.args["alias"].name if named else "_".join(_text(x) for x in literals)
        values.append((label, literals))
    consume(given)
    return axes, values


def _text(literal: exp.Expression) -> str:
    """A literal as Flink writes it into a column's name: text keeps its quotes."""
    return "'" + literal.name.replace("'", "''") + "'" if literal.is_string else literal.name


def _aggregate(ctx: QueryBinder, item: exp.Expression) -> tuple[exp.Expression, str | None]:
    """An aggregate of PIVOT and its alias."""
    call: exp.Expression = item.this if isinstance(item, exp.Alias) else item
    alias = item.alias if isinstance(item, exp.Alias) else None
    if next(aggregate_nodes(ctx, call), None) is not call or isinstance(call, exp.Filter):
        raise ctx.source.error(
            "PIVOT needs aggregate functions",
            call,
            expected=_FORM,
            remedy="put what surrounds the call into SELECT",
        )
    return call, alias
