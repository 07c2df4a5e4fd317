"""What a user's function returned, as a column: nothing is cut silently, and the row is named."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.functions.expr import InputRef, PythonCall
from penstock.functions.python_calls import python_kernel
from penstock.functions.python_results import MISFIT, first_misfit, result_of
from penstock.types import logical as t
from penstock.types.column import Column

BIGINT, INT, FLOAT, DATE = t.BigIntType(), t.IntType(), t.FloatType(), t.DateType()
MONEY, WIDE = t.DecimalType(10, 2), t.DecimalType(30, 4)
ROW = t.RowType((t.Field("a", INT), t.Field("b", t.VarCharType(10))))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (BIGINT, [1, None, 2**63 - 1]),
        (BIGINT, [2.0, 3, None]),
        (BIGINT, [np.int64(4), 5]),
        (BIGINT, [Decimal(6)]),
        (BIGINT, [None, None]),
        (INT, []),
        (FLOAT, [1.5, math.inf, None]),
        (DATE, [date(2026, 1, 2), None]),
        (MONEY, [Decimal("1.5"), Decimal("2.500"), 3, None]),
        (WIDE, [Decimal("12345678901234567890.1234"), 2**70]),
        (t.ArrayType(MONEY), [[Decimal("1.5"), 2], None]),
        (t.ArrayType(INT), [[1, 2.0], None, []]),
        (t.MapType(INT, INT), [{1: 2}, None]),
        (ROW, [(1, "x"), None]),
        (t.MultisetType(INT), [[(1, 2)], None]),
    ],
)
def test_what_fits(type_: t.LogicalType, values: list[Any]) -> None:
    column = result_of(type_, values)
    assert len(column) == len(values)
    if not isinstance(type_, (t.RowType, t.MapType, t.MultisetType)):
        assert column.to_pylist() == values


@pytest.mark.parametrize(
    ("type_", "values", "misfit"),
    [
        (BIGINT, [1, 1.5], 1),
        (BIGINT, [1.0, math.nan], 1),
        (BIGINT, [1, 2**70], 1),
        (BIGINT, [1, "abc", 3], 1),
        (BIGINT, [1, True], 1),
        (BIGINT, [Decimal(1), Decimal("1.5")], 1),
        (BIGINT, ["1"], 0),
        (INT, [1, 2, 2**31], 2),
        (INT, [3e9], 0),
        (FLOAT, [1.0, 1e300], 1),
        (t.DoubleType(), [1.0, "x"], 1),
        (DATE, [date(2026, 1, 2), datetime(2026, 1, 2, 3)], 1),
        (MONEY, [Decimal("1.5"), Decimal("1.505")], 1),
        (MONEY, [1, 1 / 3], 1),
        (MONEY, ["1.5", "1.505"], 1),
        (MONEY, [1, 10**8], 1),
        (MONEY, [1.0, math.nan], 1),
        (MONEY, [1.0, math.inf], 1),
        (MONEY, [1, True], 1),
        (WIDE, [1, Decimal("1e-5")], 1),
        (MONEY, pa.array([1.5, 1.505]), 1),
        (MONEY, pa.array([1, 10**8]), 1),
        (MONEY, pa.array([Decimal("1.500"), Decimal("1.505")]), 1),
        (MONEY, np.array([1.5, 1.505]), 1),
        (t.ArrayType(MONEY), [[1], [Decimal("1.505")]], 1),
        (t.ArrayType(MONEY), pa.array([[1.5], [1.505]]), 0),
        (t.RowType((t.Field("a", MONEY),)), [(Decimal("1.5"),), (Decimal("1.505"),)], 1),
        (t.ArrayType(INT), [[1], [1, 1.5]], 1),
        (t.MapType(t.VarCharType(9), INT), [{"a": 1}, {"a": 0.5}], 1),
        (ROW, [(1, "x"), (1.5, "y")], 1),
        (t.MultisetType(INT), [[(1, 2)], [(1.5, 1)]], 1),
        (t.YearMonthIntervalType(), [1, 1.5], 1),
        (BIGINT, pa.array([1.0, 1.5]), 1),
        (FLOAT, pa.array([1.0, 1e300]), 1),
        (BIGINT, np.array([1.0, 1.5]), 1),
        (DATE, [date(2026, 1, 2), 5], 1),
        (t.TimeType(3), [time(1), 5], 1),
        (t.TimestampType(3), [datetime(2026, 1, 2), 1767312000000], 1),
        (t.TimestampType(3), np.array([1767312000000]), 0),
        (t.TimestampType(3), pa.array([1767312000000]), 0),
        (t.TimestampLtzType(3), [datetime(2026, 1, 2, tzinfo=UTC), 1767312000.5], 1),
        (t.TimestampType(3), [None, datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))], 1),
        (t.TimestampType(3), pa.array([0], pa.timestamp("us", "Europe/Berlin")), 0),
        (t.ArrayType(t.TimestampType(3)), [[datetime(2026, 1, 2)], [5]], 1),
        (t.DayTimeIntervalType(), [timedelta(1), 5], 1),
        (ROW, [{"a": 1, "b": "x"}, {"a": 1, "c": "x"}], 1),
    ],
)
def test_what_does_not_fit_is_found(type_: t.LogicalType, values: Any, misfit: int) -> None:
    with pytest.raises(MISFIT):
        result_of(type_, values)
    found = first_misfit(type_, values)
    assert found is not None
    assert found[0] == misfit


def test_fractions_of_seconds_are_cut_to_the_declared_precision():
    """As Flink does, towards the past; a value of the type has no more digits, so equal values group."""
    late, early = datetime(2026, 1, 2, 3, 4, 5, 678999), datetime(1969, 12, 31, 23, 59, 59, 678999)
    cut = [x.replace(microsecond=678000) for x in (late, early)]
    assert result_of(t.TimestampType(3), [late, early, None]).to_pylist() == [*cut, None]
    assert result_of(t.TimestampType(6), [late]).to_pylist() == [late]
    assert result_of(t.TimeType(0), [time(1, 2, 3, 4)]).to_pylist() == [time(1, 2, 3)]
    instants = pa.array([late, early], pa.timestamp("us", "UTC"))
    assert result_of(t.TimestampLtzType(0), instants).to_pylist() == [
        x.replace(microsecond=0, tzinfo=UTC) for x in (late, early)
    ]


@pytest.mark.parametrize(
    "given",
    [
        pa.array([0.1, 2.5]),
        pa.array([0.1, 2.5], pa.float32()),
        pa.chunked_array([[0.1], [2.5]]),
        np.array([0.1, 2.5]),
    ],
)
def test_floats_of_a_batch_are_read_by_their_digits(given: Any) -> None:
    assert result_of(MONEY, given).to_pylist() == [Decimal("0.10"), Decimal("2.50")]
    assert result_of(MONEY, np.array([1, 2])).to_pylist() == [1, 2]
    assert result_of(MONEY, [0.1, np.float32(0.25), 1e7]).to_pylist() == [
        Decimal("0.10"), Decimal("0.25"), Decimal(10**7),
    ]  # fmt: skip


def called(function: Any, values: list[int], *, per: str = "record") -> FunctionError:
    call = PythonCall("mine", (InputRef(0, BIGINT),), BIGINT, per)
    with pytest.raises(FunctionError) as caught:
        python_kernel(call, lambda _: function)([Column.of(BIGINT, values)], len(values))
    return caught.value


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda x: "abc" if x == 777 else x, "'ab'…(3) (str) for arguments (777)"),
        (lambda x: 2**70 if x == 777 else x, f"{2**70} (int) for arguments (777)"),
        (lambda x: x / 2, "388.5 (float) for arguments (777)"),
    ],
)
def test_the_error_names_function_value_arguments_and_remedy(function: Any, got: str) -> None:
    error = called(function, [2, 4, 777, 8])
    assert "'mine' returned" in error.message
    assert error.got == got
    assert error.expected == f"a value of BIGINT: a whole number from {-(2**63)} to {2**63 - 1}"
    assert error.where == "function mine"
    assert "result_type" in (error.remedy or "")


def test_a_decimal_that_would_be_rounded_is_named() -> None:
    call = PythonCall("share", (InputRef(0, BIGINT),), MONEY, "record")
    with pytest.raises(FunctionError) as caught:
        python_kernel(call, lambda _: lambda x: Decimal(x) / 8)([Column.of(BIGINT, [2, 777])], 2)
    assert "'share' returned something that is no DECIMAL(10, 2)" in caught.value.message
    assert caught.value.got == "Decimal('97.125') (Decimal) for arguments (777)"
    assert (
        caught.value.expected
        == "a value of DECIMAL(10, 2): at most 8 digits before the point and 2 behind it"
    )


def test_of_a_batch_the_row_is_named_too() -> None:
    error = called(lambda x: pa.array([v / 2 for v in x.to_pylist()]), [2, 5], per="batch")
    assert error.got == "2.5 (float) for arguments (5)"
    assert called(lambda x: 5, [2, 5], per="batch").got == "int"
    assert called(lambda x: [1], [2, 5], per="batch").expected == "2 values"
