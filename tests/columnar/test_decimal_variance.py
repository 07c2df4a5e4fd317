"""STDDEV and VAR of decimals: exact, whatever the digits, merged and taken back."""

from __future__ import annotations

import statistics
from decimal import Decimal, localcontext

import numpy as np
import pytest

from penstock.columnar.accumulators import DecimalVariance, cell_accumulator
from penstock.functions.accumulators import accumulator_types
from penstock.functions.expr import AggregateCall
from penstock.types import logical as t
from penstock.types.column import Column

RESULT = t.DecimalType(38, 6)
SHORT = ["1.10", "2.25", "3.33", "0.01"]
LONG = ["99999999999999999999.99", "-99999999999999999999.98", "12345678901234567890.12", "0.00"]


def made(function: str, precision: int) -> DecimalVariance:
    arg = t.DecimalType(precision, 2)
    call = AggregateCall(function=function, args=(0,), type=RESULT)
    accumulator = cell_accumulator(call, [arg])
    assert isinstance(accumulator, DecimalVariance)
    assert accumulator_types(call, [arg]) == accumulator.types
    accumulator.reset(np.arange(2), 2)
    return accumulator


def column(values: list[str], precision: int) -> Column:
    return Column.of(t.DecimalType(precision, 2), [Decimal(v) for v in values])


def value(accumulator: DecimalVariance, slot: int = 0) -> Decimal | None:
    return accumulator.result(np.array([slot])).to_pylist()[0]


@pytest.mark.parametrize(("values", "precision"), [(SHORT, 10), (LONG, 24)])
@pytest.mark.parametrize(
    ("function", "reference"),
    [
        ("VAR_POP", statistics.pvariance),
        ("VAR_SAMP", statistics.variance),
        ("STDDEV_POP", statistics.pstdev),
        ("STDDEV_SAMP", statistics.stdev),
    ],
)
def test_as_the_definition_says(function, reference, values: list[str], precision: int) -> None:
    accumulator = made(function, precision)
    accumulator.add(np.zeros(len(values), np.int64), [column(values, precision)], None)
    with localcontext() as exact:
        exact.prec = 80
        wanted = Decimal(reference([Decimal(v) for v in values]))
        wanted = wanted.quantize(Decimal("0.000001"), rounding="ROUND_HALF_UP")
    if wanted < 10**32:
        assert value(accumulator) == wanted
    else:  # more digits than DECIMAL(38, 6) has
        assert value(accumulator) is None


def test_in_two_phases_and_taken_back() -> None:
    whole, local, other = made("VAR_POP", 10), made("VAR_POP", 10), made("VAR_POP", 10)
    slots = np.zeros(2, np.int64)
    local.add(slots, [column(SHORT[:2], 10)], None)
    other.add(slots, [column(SHORT[2:], 10)], None)
    for part in (local, other):
        whole.merge(np.array([0]), part.partials(np.array([0])))
    assert value(whole) == Decimal("1.543119")
    whole.add(slots, [column(SHORT[2:], 10)], np.array([-1, -1], np.int8))
    assert value(whole) == value(local) == Decimal("0.330625")


@pytest.mark.parametrize(("function", "one"), [("VAR_SAMP", None), ("VAR_POP", Decimal("0.000000"))])
def test_few_values(function: str, one: Decimal | None) -> None:
    accumulator = made(function, 10)
    accumulator.add(np.zeros(1, np.int64), [column(["5.00"], 10)], None)
    assert value(accumulator) == one
    assert value(accumulator, 1) is None
