"""Facts that the filters below a node guarantee for its rows: comparisons of one column with constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, input_refs, shift_refs

if TYPE_CHECKING:
    from penstock.plan.node import Node


def known_facts(node: Node) -> list[Expr]:
    """Conditions that every row of the node meets because of a filter at any place below the node."""
    facts: list[Expr] = []
    for child, at in node.carries():
        below = known_facts(child)
        facts += below if at is None else [shift_refs(f, at) for f in below if input_refs(f) <= set(at)]
    return [*facts, *node.own_facts()]
