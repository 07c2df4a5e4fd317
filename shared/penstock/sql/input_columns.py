"""Appends computed columns to an input when an expression needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, InputRef
from penstock.plan import nodes as n
from penstock.plan.rewriting import position
from penstock.sql.scope import Relation, unique_schema
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder


class InputColumns:
    """The columns of an input, and behind them the computed columns that ``index`` was asked for."""

    def __init__(self, ctx: QueryBinder, relation: Relation) -> None:
        self.ctx = ctx
        self.relation = relation
        self.extra: list[Expr] = []

    def index(self, expr: Expr) -> int:
        if isinstance(expr, InputRef):
            return expr.index
        at = position(expr, self.extra)
        if at is None:
            self.extra.append(expr)
            at = len(self.extra) - 1
        return len(self.relation.node.schema) + at

    def node(self) -> n.Node:
        if not self.extra:
            return self.relation.node
        fields = self.relation.node.schema.fields
        exprs = [InputRef(i, f.type) for i, f in enumerate(fields)]
        names = [(f.name, f.type) for f in fields] + [(f"$f{i}", e.type) for i, e in enumerate(self.extra)]
        schema = unique_schema(names)
        schema = t.Schema(schema.fields, self.relation.node.schema.rowtime)
        return n.Project(input=self.relation.node, expressions=(*exprs, *self.extra), schema=schema)
