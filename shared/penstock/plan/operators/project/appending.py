"""Appends computed columns to a node."""

from __future__ import annotations

from penstock.functions.expr import Expr
from penstock.plan.node import Node
from penstock.plan.operators.project.node import Project
from penstock.plan.rewriting import identity
from penstock.types.logical import Field, Schema


def append_columns(node: Node, extra: list[Expr]) -> Project:
    """The node with a column for each expression; each gets a name that no other column has."""
    taken = set(node.schema.names)
    fields = list(node.schema.fields)
    for expr in extra:
        i = len(fields)
        while f"$k{i}" in taken:
            i += 1
        taken.add(f"$k{i}")
        fields.append(Field(f"$k{i}", expr.type))
    schema = Schema(tuple(fields), node.schema.rowtime)
    return Project(input=node, expressions=(*identity(node), *extra), schema=schema)
