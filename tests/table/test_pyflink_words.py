"""What programs of PyFlink's Table API say and see: errors by Python's kinds, operators of their own, rows as PyFlink shows them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pandas as pd
import pytest

from penstock.errors import SpecTypeError, SpecValueError, SqlError, UnsupportedError
from penstock.table import DataTypes, Row, TableDescriptor, TableEnvironment
from penstock.table.descriptors import Schema
from penstock.table.expressions import col
from penstock.table.udf import udf


def rows(table: Any) -> list[Any]:
    with table.execute().collect() as found:
        return list(found)


def test_plus_joins_texts_and_a_function_takes_an_operators_place(env: TableEnvironment) -> None:
    table = env.from_elements([(1, 2, "a")], ["i", "j", "s"])
    assert [tuple(r) for r in rows(table.select(col("s") + "b" + col("s")))] == [("aba",)]
    with pytest.raises(SqlError, match="cannot apply"):
        env.sql_query("SELECT 'a' + 'b'")  # in SQL it is refused, as in Flink
    env.create_temporary_system_function("plus", udf(lambda i, j: i + j - 1, result_type=DataTypes.BIGINT()))
    assert [tuple(r) for r in rows(table.select(col("i") + col("j")))] == [(2,)]
    assert [tuple(r) for r in rows(env.sql_query("SELECT 1 + 2"))] == [
        (3,)
    ]  # SQL's operator is no call of plus


def test_rows_of_a_result_are_shown_as_pyflink_shows_them(
    env: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = env.from_elements([(1, Row(x="a"), [Row(y=2)])], ["i", "r", "l"])
    monkeypatch.delitem(sys.modules, "pyflink", raising=False)
    assert str(rows(table)[0]).startswith("Row(i=1")
    monkeypatch.setitem(sys.modules, "pyflink", types.ModuleType("pyflink"))
    row = rows(table)[0]
    assert str(row) == "<Row(1, <Row('a')>, [<Row(2)>])>"
    assert row == (1, ("a",), [(2,)])
    assert row["i"] == row.i == 1  # the names are there, as before


@pytest.mark.parametrize(("precision", "unit"), [(0, "s"), (3, "ms"), (6, "us")])
def test_times_in_pandas_have_the_unit_of_their_type(
    precision: int, unit: str, env: TableEnvironment
) -> None:
    table = env.sql_query(f"SELECT CAST(TIMESTAMP '2018-03-11 03:10:00' AS TIMESTAMP({precision})) AS t")
    frame = table.to_pandas()
    assert str(frame["t"].dtype) == f"datetime64[{unit}]"
    assert frame["t"][0] == pd.Timestamp("2018-03-11 03:10:00")


def test_what_does_not_fit_is_an_error_of_pythons_kind(env: TableEnvironment) -> None:
    frame = pd.DataFrame({"n": pd.Series([1], dtype="int8"), "s": ["x"]})
    with pytest.raises(SpecTypeError, match="Expected a string in column 'n', got int8"):
        env.from_pandas(
            frame,
            DataTypes.ROW(
                [DataTypes.FIELD("n", DataTypes.STRING()), DataTypes.FIELD("s", DataTypes.STRING())]
            ),
        )
    with pytest.raises(SpecTypeError, match="Expected a value of TINYINT in column 's', got string"):
        env.from_pandas(
            frame,
            DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT()), DataTypes.FIELD("s", DataTypes.TINYINT())]),
        )
    with pytest.raises(ValueError, match="template"):
        Row("a", "b")(1, 2, 3)
    with pytest.raises(SpecValueError, match="without a type"):
        DataTypes.ROW().add("name")


def test_a_row_type_is_a_sequence_of_its_fields() -> None:
    row = DataTypes.ROW().add("a", DataTypes.STRING()).add(DataTypes.FIELD("b", DataTypes.INT()))
    assert [field.name for field in row] == ["a", "b"]
    assert len(row) == 2
    assert row["a"] is row.fields[0] is row[0]
    assert row[0:1] == DataTypes.ROW(row.fields[0:1])
    for key, error in (("c", KeyError), (9, IndexError), (0.5, TypeError)):
        with pytest.raises(error):
            row[key]


def test_modules_and_tables_that_are_there_or_not(env: TableEnvironment) -> None:
    env.use_modules("core")
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: env.use_modules("core", "core"), SqlError, "Module 'core' appears more than once"),
        (lambda: env.use_modules("core", "dummy"), SqlError, "No module with name 'dummy' exists"),
        (lambda: env.use_modules(), UnsupportedError, "without a module"),
        (lambda: env.unload_module("dummy"), SqlError, "No module with name 'dummy' exists"),
        (lambda: env.unload_module("core"), UnsupportedError, "only module"),
    ]
    for call, error, said in cases:
        with pytest.raises(error, match=said):
            call()
    made = (
        TableDescriptor.for_connector("blackhole")
        .schema(Schema.new_builder().column("i", "INT").build())
        .build()
    )
    env.create_table("T", made)
    env.create_table("T", made, True)
    where = (
        "Could not execute CreateTable in path `default_catalog`.`default_database`.`T`: 'T' exists already"
    )
    with pytest.raises(SqlError, match=where):
        env.create_table("T", made, False)
