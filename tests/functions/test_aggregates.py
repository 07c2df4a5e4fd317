from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.functions.aggregates import (
    canonical_aggregate,
    infer_aggregate,
    is_aggregate,
    is_window_function,
)
from penstock.types import logical as t

INT, DECIMAL = t.IntType(), t.DecimalType(10, 2)


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("COUNT", [], "BIGINT NOT NULL"),
        ("SUM", [INT], "INT"),
        ("SUM", [DECIMAL], "DECIMAL(38, 2)"),
        ("AVG", [INT], "INT"),
        ("AVG", [DECIMAL], "DECIMAL(38, 6)"),
        ("AVG", [t.DecimalType(38, 18)], "DECIMAL(38, 18)"),
        ("AVG", [t.FloatType()], "FLOAT"),
        ("MIN", [t.VarCharType()], "STRING"),
        ("stddev", [DECIMAL], "DECIMAL(38, 6)"),
        ("VARIANCE", [INT], "INT"),
        ("COLLECT", [INT], "MULTISET<INT> NOT NULL"),
        ("ARRAY_AGG", [INT], "ARRAY<INT>"),
        ("LISTAGG", [t.VarCharType(), t.CharType(1)], "STRING"),
        ("JSON_ARRAYAGG", [INT], "VARCHAR(2000) NOT NULL"),
        ("PERCENTILE", [INT, t.ArrayType(t.DoubleType())], "ARRAY<DOUBLE>"),
        ("ROW_NUMBER", [], "BIGINT NOT NULL"),
        ("LAG", [INT.not_null], "INT"),
    ],
)
def test_result_types(name: str, types: list[t.LogicalType], result: str) -> None:
    assert str(infer_aggregate(name, types)) == result


def test_grouped_sums_of_what_is_never_null_are_not_null() -> None:
    assert str(infer_aggregate("SUM", [INT.not_null], grouped=True)) == "INT NOT NULL"
    assert str(infer_aggregate("SUM", [INT.not_null])) == "INT"


def test_names() -> None:
    assert canonical_aggregate("stddev") == "STDDEV_SAMP"
    assert is_aggregate("count")
    assert not is_aggregate("ROW_NUMBER")
    assert is_window_function("row_number")


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("SUM", [t.VarCharType()]),
        ("SUMM", [INT]),
        ("SUM", [INT, INT]),
        ("COUNT", [t.NullType()]),
        ("MIN", [t.ArrayType(INT)]),
    ],
)
def test_errors(name: str, types: list[t.LogicalType]) -> None:
    with pytest.raises(SqlError) as caught:
        infer_aggregate(name, types, line=2, column=3)
    assert caught.value.where == "line 2, column 3"
