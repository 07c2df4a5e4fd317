"""What follows from conditions, with every combination of TRUE, FALSE and NULL."""

from __future__ import annotations

import itertools
import random

import pytest

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.plan.conditions import EqualColumns, disjuncts, factored, implied, shared_facts
from penstock.plan.rewriting import conjunction
from penstock.plan.words import text
from penstock.types import logical as t

BOOL, INT = t.BooleanType(), t.IntType()
NAMES = t.Schema(tuple(t.Field(name, BOOL) for name in "abcd"))
NUMBERS = t.Schema(tuple(t.Field(name, INT) for name in "uvwxyz"))
A, B, C, D = (InputRef(i, BOOL) for i in range(4))


def both(*parts: Expr) -> Expr:
    return make_call("AND", parts)


def either(*parts: Expr) -> Expr:
    return make_call("OR", parts)


def compared(op: str, column: int, *values: int) -> Expr:
    return make_call(op, [InputRef(column, INT), *(Literal(v, INT) for v in values)])


def equal(a: int, b: int) -> Expr:
    return make_call("=", [InputRef(a, INT), InputRef(b, INT)])


def value(expr: Expr, row: tuple[bool | None, ...]) -> bool | None:
    """Three-valued logic by definition."""
    if isinstance(expr, InputRef):
        return row[expr.index]
    assert isinstance(expr, Call)
    values = [value(arg, row) for arg in expr.args]
    decisive = expr.function == "OR"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        (either(both(A, B), both(A, C)), ["a", "(b OR c)"]),
        (either(both(A, B), both(C, A), both(B, A, D)), ["a", "(b OR c OR (b AND d))"]),
        (either(both(A, B, C), both(A, B, D)), ["a", "b", "(c OR d)"]),
        (either(A, both(A, B)), ["a"]),
        (either(both(A, B), both(A, B)), ["a", "b"]),
        (either(both(A, either(both(B, C), both(B, D))), both(A, B)), ["a", "b"]),
        (either(A, both(B, C)), ["(a OR (b AND c))"]),
        (both(A, either(both(B, C), both(B, D))), ["a", "b", "(c OR d)"]),
        (A, ["a"]),
        (None, []),
    ],
)
def test_common_parts_are_taken_out(condition: Expr | None, parts: list[str]) -> None:
    assert [text(p, NAMES) for p in factored(condition)] == parts


def _random_condition(source: random.Random, depth: int) -> Expr:
    if depth == 0 or source.random() < 0.2:
        return source.choice((A, B, C, D))
    parts = [_random_condition(source, depth - 1) for _ in range(source.randint(2, 3))]
    return source.choice((both, either))(*parts)


def test_factored_conditions_have_the_same_value() -> None:
    source = random.Random(7)
    rows = list(itertools.product((True, False, None), repeat=4))
    changed = 0
    for _ in range(300):
        condition = _random_condition(source, 3)
        made = conjunction(factored(condition))
        assert made is not None
        changed += made != condition
        assert [value(made, row) for row in rows] == [value(condition, row) for row in rows]
    assert changed > 100


def test_an_implied_condition_holds_wherever_the_condition_is_true() -> None:
    source = random.Random(8)
    rows = list(itertools.product((True, False, None), repeat=4))
    found = 0
    for _ in range(1_000):
        condition = _random_condition(source, 3)
        demand = implied(condition, {0, 1})
        if demand is not None:
            found += 1
            assert all(value(demand, row) is True for row in rows if value(condition, row) is True)
    assert found > 20


def test_what_an_or_demands_of_one_side() -> None:
    condition = either(both(A, C), both(B, D))
    assert implied(condition, {0, 1}) == either(A, B)
    assert implied(condition, {2, 3}) == either(C, D)
    assert implied(either(both(A, C), D), {0, 1}) is None, "one branch demands nothing of a and b"
    assert implied(either(A, B), {0, 1}) is None, "the condition says it itself"


def test_what_is_random_is_not_taken_out() -> None:
    chance = make_call(">", [make_call("RAND", []), Literal(0, INT)])
    condition = either(both(chance, A), both(chance, B))
    assert factored(condition) == [condition]
    assert implied(either(both(chance, A, C), both(B, D)), {0, 1}) is None


@pytest.mark.parametrize(
    ("parts", "facts"),
    [
        ([equal(0, 1), compared("=", 0, 5)], ["(v = 5)"]),
        ([equal(0, 1), equal(1, 2), compared("=", 2, 5)], ["(u = 5)", "(v = 5)"]),
        ([equal(0, 1), compared("IN", 1, 5, 6)], ["IN(u, 5, 6)"]),
        ([equal(0, 1), compared(">", 0, 5), compared("<", 1, 9)], ["(v > 5)", "(u < 9)"]),
        ([equal(0, 1), compared("=", 0, 5), compared("=", 1, 5)], []),
        ([equal(0, 1), compared("=", 2, 5)], []),
        ([equal(0, 1), make_call("IS NULL", [InputRef(0, INT)])], []),
        ([equal(0, 1), either(compared("=", 0, 5), compared("=", 2, 5))], []),
    ],
)
def test_facts_of_equal_columns(parts: list[Expr], facts: list[str]) -> None:
    found = shared_facts(parts, EqualColumns(parts), NUMBERS.types)
    assert [text(f, NUMBERS) for f in found] == facts


def test_columns_of_different_types_share_no_facts() -> None:
    other = InputRef(1, t.BigIntType())
    parts = [make_call("=", [InputRef(0, INT), other]), compared("=", 0, 5)]
    assert shared_facts(parts, EqualColumns(parts), [INT, t.BigIntType()]) == []


def test_branches_of_an_or() -> None:
    assert disjuncts(either(A, either(B, C))) == [A, B, C]
    assert disjuncts(both(A, B)) == [both(A, B)]
