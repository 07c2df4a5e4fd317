"""Moves predicates down: through projections, unions and windows, into the sides of joins.

Equalities between both sides of a join become its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr
from penstock.plan.node import Node, with_inputs
from penstock.plan.operators.filter.node import filtered
from penstock.plan.rewriting import walk

if TYPE_CHECKING:
    from collections.abc import Iterable


class PushDown:
    """One pass of push-down over a plan. Shared sub-plans that get no predicate stay shared."""

    def __init__(self, roots: Iterable[Node] = ()) -> None:
        self._memo: dict[int, tuple[Node, Node]] = {}
        # The joins of blocks that are arranged already, by id.
        self.arranged: dict[int, Node] = {}
        readers: dict[int, int] = {}
        for node in walk(roots):
            for child in node.children():
                readers[id(child)] = readers.get(id(child), 0) + 1
        self.shared = {key for key, count in readers.items() if count > 1}

    def run(self, node: Node) -> Node:
        """The node with all conditions below it pushed down as far as possible."""
        found = self._memo.get(id(node))
        if found is None:
            found = (node, self.push(node, []))
            self._memo[id(node)] = found
        return found[1]

    def push(self, node: Node, parts: list[Expr]) -> Node:
        """The node with ``parts`` (over its columns) applied as low as they may go."""
        if not parts and id(node) in self._memo:
            return self._memo[id(node)][1]
        return node.push_down(self, parts)

    def below(self, node: Node, parts: list[Expr]) -> Node:
        """Moves the conditions that the node's only input can apply below the node; the rest stays above."""
        down: list[Expr] = []
        stay: list[Expr] = []
        for part in parts:
            lower = node.lowered(part)
            if lower is None:
                stay.append(part)
            else:
                down.append(lower)
        if down:
            (child,) = node.children()
            new = node.over((self.push(child, down),))
        else:
            new = with_inputs(node, tuple(self.run(child) for child in node.children()))
        return filtered(new, stay)
