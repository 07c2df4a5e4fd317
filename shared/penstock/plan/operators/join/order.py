"""Chooses the order of inner joins, so that no cross product is made where conditions connect the tables.

The order of FROM is kept, unless another order makes fewer cross products, or as many and fewer joins
without an equality. The number of rows is not known, and the user may have had a reason for the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Union

#: A tree of joins: the number of an input in the order of FROM, or (left, right).
Tree = Union[int, tuple["Tree", "Tree"]]


class Link(IntEnum):
    """How two sides of a join are connected; a lower value is better."""

    EQUALITY = 0
    #: An equality that follows from others: ``a = b AND b = c`` connects a and c.
    DERIVED = 1
    #: Another condition on both sides: each pair of rows is tested.
    CONDITION = 2
    NONE = 3


@dataclass(frozen=True)
class Connection:
    """A condition over several inputs. An equality compares an expression of the inputs ``left`` with one of
    ``right``; of other conditions only the union of their inputs counts."""

    left: frozenset[int]
    right: frozenset[int]
    link: Link


def inputs_of(tree: Tree) -> frozenset[int]:
    """The numbers of the inputs that a join tree contains."""
    if isinstance(tree, int):
        return frozenset({tree})
    return inputs_of(tree[0]) | inputs_of(tree[1])


def link(a: frozenset[int], b: frozenset[int], connections: list[Connection]) -> Link:
    """The best connection of two sides."""
    best = Link.NONE
    for one in connections:
        if one.link is Link.CONDITION:
            both = one.left | one.right
            fits = both <= a | b and bool(both & a) and bool(both & b)
        else:
            fits = (one.left <= a and one.right <= b) or (one.left <= b and one.right <= a)
        if fits:
            best = min(best, one.link)
    return best


def cost(tree: Tree, connections: list[Connection]) -> tuple[int, int]:
    """The cost of a tree: (number of cross products, number of other joins without an equality)."""
    if isinstance(tree, int):
        return (0, 0)
    left, right = cost(tree[0], connections), cost(tree[1], connections)
    own = link(inputs_of(tree[0]), inputs_of(tree[1]), connections)
    crosses = left[0] + right[0] + (own is Link.NONE)
    return crosses, left[1] + right[1] + (own is Link.CONDITION)


def order(written: Tree, connections: list[Connection]) -> Tree:
    """The tree ``written``, or a tree of lower cost."""
    before = cost(written, connections)
    if before == (0, 0):
        return written
    found = _connected_first(sorted(inputs_of(written)), connections)
    return found if cost(found, connections) < before else written


def _connected_first(inputs: list[int], connections: list[Connection]) -> Tree:
    """Joins the inputs that equalities connect, in the order of FROM, into groups; then joins the groups."""
    rest = list(inputs)
    groups: list[Tree] = []
    while rest:
        tree: Tree = rest.pop(0)
        while True:
            linked = [(link(inputs_of(tree), frozenset({i}), connections), i) for i in rest]
            best = min(linked, default=None)
            if best is None or best[0] >= Link.CONDITION:
                break
            rest.remove(best[1])
            tree = (tree, best[1])
        groups.append(tree)
    whole = groups.pop(0)
    while groups:
        linked = [(link(inputs_of(whole), inputs_of(g), connections), i) for i, g in enumerate(groups)]
        whole = (whole, groups.pop(min(linked)[1]))
    return whole
