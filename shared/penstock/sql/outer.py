"""Which columns of a subquery belong to the outer query, and what they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.reading import column_parts
from penstock.sql.scope import Relation

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.expr import Expr
    from penstock.sql.queries import QueryBinder

#: The key of ``meta`` that marks an expression of the outer query, whatever the subquery's own tables are.
OUTER_MARK = "of_the_outer_query"
_QUERIES = (exp.Select, exp.SetOperation)


@dataclass(frozen=True, eq=False)
class OuterValue:
    """The outer query's own node of a marked expression. Copies of a tree share it."""

    node: exp.Expression

    def __deepcopy__(self, memo: object) -> OuterValue:
        return self


@dataclass(frozen=True)
class OuterScope:
    """The outer query at the place of a subquery. ``names``: the relation whose names it knows; ``relation``:
    the rows beside which the subquery's value is computed; ``special``: gives the meaning of nodes there."""

    ctx: QueryBinder
    relation: Relation
    names: Relation
    special: Callable[[exp.Expression], Expr | None] | None = None

    def has(self, column: exp.Column) -> bool:
        """Whether the outer query has a column of this name."""
        return bool(self.names.find(column_parts(column), column, self.ctx.source))

    def bind(self, node: exp.Expression) -> Expr:
        """The value of an expression of the outer query."""
        marked = node.meta.get(OUTER_MARK)
        if isinstance(marked, OuterValue):
            node = marked.node
        return self.ctx.expressions(self.relation, self.special).bind(node)


@dataclass(frozen=True)
class Side:
    """An equality ``part`` of the subquery's WHERE: its sides in the subquery and in the outer query."""

    part: exp.Expression
    inner: exp.Expression
    outer: exp.Expression
    value: Expr


def free_columns(
    ctx: QueryBinder, outer: OuterScope, node: exp.Expression, within: exp.Select | None = None
) -> list[exp.Expression]:
    """The columns and marked expressions below ``node``, a query or a part of the query ``within``, that no table of the subquery has,
    and the outer query has."""
    found: list[exp.Expression] = []

    def visit(ctx: QueryBinder, node: Any, scopes: tuple[Relation, ...], aliases: frozenset[str]) -> None:
        if isinstance(node, exp.Expression) and OUTER_MARK in node.meta:
            found.append(node)
        elif isinstance(node, exp.Column):
            parts = column_parts(node)
            if (
                not any(scope.find(parts, node, ctx.source) for scope in scopes)
                and outer.has(node)
                and (len(parts) > 1 or parts[0] not in aliases)
            ):
                found.append(node)
        elif isinstance(node, exp.Subquery):
            visit(ctx._with(node), node.this, scopes, aliases)
        elif isinstance(node, exp.SetOperation):
            inner = ctx._with(node)
            for side in (node.this, node.expression):
                visit(inner, side, scopes, frozenset())
        elif isinstance(node, exp.Select):
            inner = ctx._with(node)
            below = (*scopes, tables_of(inner, outer.names, node))
            named = frozenset(item.alias for item in node.expressions if isinstance(item, exp.Alias))
            for key, value in dict.items(node.args):
                if key in ("from_", "joins", "laterals", "with_"):
                    continue
                known = named if key in ("order", "having") else frozenset()
                for child in value if isinstance(value, list) else [value]:
                    visit(inner, child, below, known)
        elif isinstance(node, exp.Expression):
            for child in node.iter_expressions():
                visit(ctx, child, scopes, aliases)

    scopes = () if within is None else (ctx._with(within).from_clause(within),)
    visit(ctx, node, scopes, frozenset())
    return found


def tables_of(ctx: QueryBinder, outer: Relation, select: exp.Select) -> Relation:
    """The relation of FROM. Raises UnsupportedError if a query in it reads a column of ``outer``, and SqlError if it
    reads a column that nobody has."""
    try:
        return ctx.from_clause(select)
    except SqlError as err:
        parts = [
            select.args.get("from_"),
            *(select.args.get("joins") or ()),
            *(select.args.get("laterals") or ()),
        ]
        for column in (c for part in parts if part is not None for c in part.find_all(exp.Column)):
            if ctx.source.where(column) == err.where and outer.find(column_parts(column), column, ctx.source):
                raise ctx.source.unsupported(
                    f"'{'.'.join(column_parts(column))}', a column of the outer query, in a query in the FROM of a subquery",
                    column,
                    expected="columns of the outer query in the subquery's own clauses only",
                    remedy="select the columns that the condition compares, and write the condition in the WHERE of the subquery",
                ) from None
        raise


def outer_side(
    ctx: QueryBinder, outer: OuterScope, inner: Relation, part: exp.Expression, free: set[int]
) -> Side | None:
    """The equality ``part`` between an expression of the subquery and one of the outer query, if both have one
    type; None for another condition. ``free``: ids of the subquery's columns of the outer query."""
    if not isinstance(part, exp.EQ) or part.find(*_QUERIES) is not None:
        return None
    for mine, other in ((part.this, part.expression), (part.expression, part.this)):
        own = [id(c) in free for c in mine.find_all(exp.Column)]
        others = [id(c) in free for c in other.find_all(exp.Column)]
        if own and others and not any(own) and all(others):
            value = outer.bind(other)
            type_ = ctx.expressions(inner).bind(mine).type
            if value.type.with_nullable(True) == type_.with_nullable(True):
                return Side(part, mine, other, value)
    return None
