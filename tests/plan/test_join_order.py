"""The order of inner joins, by the conditions between their inputs."""

from __future__ import annotations

import pytest

from penstock.plan.operators.join.order import Connection, Link, Tree, cost, inputs_of, order


def equal(*pairs: tuple[int, int]) -> list[Connection]:
    return [Connection(frozenset({a}), frozenset({b}), Link.EQUALITY) for a, b in pairs]


def condition(*inputs: int) -> Connection:
    return Connection(frozenset(inputs), frozenset(), Link.CONDITION)


def derived(a: int, b: int) -> Connection:
    return Connection(frozenset({a}), frozenset({b}), Link.DERIVED)


#: A sum of columns of inputs 0 and 1 equals a column of 2.
_OF_TWO = Connection(frozenset({0, 1}), frozenset({2}), Link.EQUALITY)


@pytest.mark.parametrize(
    ("written", "connections", "best"),
    [
        # the order of FROM makes no cross product
        (((0, 1), 2), equal((0, 1), (1, 2)), ((0, 1), 2)),
        ((0, (1, 2)), equal((0, 1), (1, 2)), (0, (1, 2))),
        # dimensions first, then the facts
        (((0, 1), 2), equal((0, 2), (1, 2)), ((0, 2), 1)),
        ((((0, 1), 2), 3), equal((0, 3), (1, 3), (2, 3)), (((0, 3), 1), 2)),
        ((((0, 1), 2), 3), equal((0, 1), (1, 3), (3, 2)), (((0, 1), 3), 2)),
        # two groups that nothing connects: there is one cross product in any order
        ((((0, 1), 2), 3), equal((0, 2), (1, 3)), (((0, 1), 2), 3)),
        (((((0, 1), 2), 3), 4), equal((0, 2), (1, 3), (4, 3)), ((((0, 1), 2), 3), 4)),
        (((((0, 1), 4), 2), 3), equal((0, 2), (1, 3), (4, 3)), ((0, 2), ((1, 3), 4))),
        # ... and none where a condition connects them
        ((((0, 1), 2), 3), [*equal((0, 2), (1, 3)), condition(2, 3)], ((0, 2), (1, 3))),
        # a condition is worse than an equality, and better than nothing
        (((0, 1), 2), [*equal((0, 2), (1, 2)), condition(0, 1)], ((0, 2), 1)),
        (((0, 1), 2), [condition(0, 2), condition(1, 2)], ((0, 2), 1)),
        (((0, 1), 2), [condition(0, 1), condition(1, 2)], ((0, 1), 2)),
        # what follows from other equalities connects, too, where nothing else does
        (((0, 1), 2), [*equal((1, 2)), derived(0, 1), derived(0, 2)], ((0, 1), 2)),
        (((0, 1), 2), [*equal((0, 2)), derived(0, 1), derived(1, 2)], ((0, 1), 2)),
        # an equality with something of two inputs needs both first
        (((0, 1), 2), [_OF_TWO], ((0, 1), 2)),
        # nothing connects anything
        (((0, 1), 2), [], ((0, 1), 2)),
        ((0, 1), [], (0, 1)),
    ],
)
def test_order(written: Tree, connections: list[Connection], best: Tree) -> None:
    found = order(written, connections)
    assert found == best
    assert inputs_of(found) == inputs_of(written)
    assert cost(found, connections) <= cost(written, connections)


def test_cost_counts_cross_products_first() -> None:
    connections = [*equal((0, 2)), condition(1, 2)]
    assert cost(((0, 1), 2), connections) == (1, 0)
    assert cost(((0, 2), 1), connections) == (0, 1)
    assert order(((0, 1), 2), connections) == ((0, 2), 1)
