"""Rows to a step: converges from any start, holds its bounds."""

from typing import Any

import pytest

from penstock.functions.expr import AggregateCall, Call, InputRef, PythonCall
from penstock.jobgraph.specs import CalcSpec, GroupAggregateSpec
from penstock.operators.budget import (
    COLUMNAR_LEAST,
    LONGEST_S,
    SOURCE_LEAST,
    SOURCE_STEP_S,
    STEP_S,
    RowBudget,
    least_rows,
    source_budget,
)
from penstock.types.logical import BigIntType

BIG = BigIntType()


@pytest.mark.parametrize("first", [1, 256, 65_536])
@pytest.mark.parametrize("row_s", [1e-7, 1e-5, 1e-3])
def test_converges_to_one_step(first: int, row_s: float) -> None:
    budget = RowBudget(first, most=1_000_000)
    for _ in range(40):
        budget.note(budget.rows, budget.rows * row_s)
    assert budget.rows * row_s == pytest.approx(STEP_S, rel=0.35)


def test_one_long_batch_is_enough_to_shrink() -> None:
    budget = RowBudget(10_000, most=65_536)
    budget.note(10_000, 1.0)
    assert budget.rows == 50


def test_bounds() -> None:
    budget = RowBudget(600, least=512, most=1_000)
    budget.note(600, 0.5)
    assert budget.rows == 512
    for _ in range(10):
        budget.note(512, 1e-9)
    assert budget.rows == 1_000
    budget.note(0, 1.0)
    budget.note(5, 0.0)
    assert budget.rows == 1_000


def test_a_columnar_batch_that_was_interrupted_does_not_count() -> None:
    budget = RowBudget(4_096, least=512, most=65_536)
    for _ in range(20):
        budget.note(budget.rows, budget.rows * 1e-6)
    steady = budget.rows
    assert steady == pytest.approx(STEP_S / 1e-6, rel=0.35)
    for _ in range(3):
        budget.note(budget.rows, 0.2)
    assert budget.rows == pytest.approx(steady, rel=0.35)
    budget.note(budget.rows, 0.2)
    assert budget.rows < steady / 4


def test_rows_that_take_long_are_read_in_smaller_pieces_than_the_smallest() -> None:
    budget = source_budget([CalcSpec(condition=None, projections=(InputRef(0, BIG),))])
    for _ in range(10):
        budget.note(budget.rows, budget.rows * 1e-3)
    assert budget.rows == LONGEST_S / 1e-3
    for _ in range(10):
        budget.note(budget.rows, budget.rows * 1e-6)
    assert budget.rows == pytest.approx(SOURCE_STEP_S / 1e-6, rel=0.35)


def test_a_trickle_says_nothing_of_columnar_batches() -> None:
    budget = RowBudget(4_096, least=512, most=65_536)
    budget.note(25, 0.001)
    assert budget.rows == 4_096


def test_only_user_code_goes_row_by_row() -> None:
    columnar = CalcSpec(condition=None, projections=(InputRef(0, BIG),))
    call = PythonCall("f", (InputRef(0, BIG),), BIG)
    assert least_rows([columnar]) == COLUMNAR_LEAST
    assert least_rows([columnar, CalcSpec(condition=None, projections=(Call("ABS", (call,), BIG),))]) == 1
    aggregate = AggregateCall("f", (0,), BIG, python="f")
    assert least_rows([GroupAggregateSpec(keys=(0,), aggregates=(aggregate,))]) == 1


@pytest.mark.parametrize(
    ("projection", "least"),
    [(InputRef(0, BIG), SOURCE_LEAST), (PythonCall("f", (InputRef(0, BIG),), BIG), COLUMNAR_LEAST)],
)
def test_a_busy_machine_does_not_shrink_what_a_columnar_source_reads(projection: Any, least: int) -> None:
    budget = source_budget([CalcSpec(condition=None, projections=(projection,))])
    for _ in range(10):
        budget.note(budget.rows, 0.3)
    assert budget.rows == least
