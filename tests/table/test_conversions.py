"""Declared tables, statement sets, what is listed and dropped; Arrow, pandas and Polars both ways."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import SpecError, SqlError, UnsupportedError
from penstock.table import DataTypes, FormatDescriptor, Schema, TableDescriptor, TableEnvironment
from penstock.table.expressions import col


def files(folder: Path) -> TableDescriptor:
    schema = Schema.new_builder().column("a", DataTypes.BIGINT()).column("b", DataTypes.STRING()).build()
    made = TableDescriptor.for_connector("filesystem").schema(schema).option("path", str(folder))
    return made.format(FormatDescriptor.for_format("csv").option("field-delimiter", ";").build()).build()


def test_a_descriptor_is_a_create_table(env: TableEnvironment) -> None:
    schema = (
        Schema.new_builder()
        .column("id", DataTypes.BIGINT().not_null())
        .column("ts", DataTypes.TIMESTAMP(3))
        .column_by_expression("twice", "id * 2")
        .column_by_expression("p", "PROCTIME()")
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .build()
    )
    made = (
        TableDescriptor.for_connector("datagen")
        .schema(schema)
        .option("number-of-rows", 3)
        .comment("it's")
        .build()
    )
    env.create_temporary_table("t", made)
    assert env.from_path("t").get_schema().get_column_names() == ["id", "ts", "twice", "p"]
    assert "WATERMARK FOR `ts`" in env.execute_sql("SHOW CREATE TABLE t").collect().next()[0]
    assert env.list_temporary_tables() == ["t"]
    with pytest.raises(SqlError, match="exists already"):
        env.create_temporary_table("t", made)
    env.create_temporary_table("t", made, ignore_if_exists=True)
    with pytest.raises(SpecError, match="no columns"):
        env.create_table("u", TableDescriptor.for_connector("print").build())
    with pytest.raises(UnsupportedError, match="as an expression object"):
        Schema.new_builder().column_by_expression("x", col("a"))


def test_a_statement_set_writes_several_tables_at_once(env: TableEnvironment, tmp_path: Path) -> None:
    env.create_temporary_table("one", files(tmp_path / "one"))
    table = env.from_elements([(1, "a"), (2, "b")], ["a", "b"])
    env.create_temporary_view("v", table)
    both = env.create_statement_set()
    both.add_insert("one", table.filter(col("a") == 1)).add_insert_sql(
        "INSERT INTO one SELECT a + 10, b FROM v"
    )
    both.add(table.insert_into(files(tmp_path / "two")))
    assert "Sink(table=one" in both.explain()
    both.execute().wait()
    lines = sorted(
        line for f in (tmp_path / "one").rglob("*") if f.is_file() for line in f.read_text().splitlines()
    )
    assert lines == ["11;a", "12;b", "1;a"]
    assert [f for f in (tmp_path / "two").rglob("*") if f.is_file()]
    with pytest.raises(SqlError, match="is empty"):
        both.execute()
    with pytest.raises(SqlError, match="takes INSERTs"):
        both.add_insert_sql("SELECT 1")


def test_names_are_listed_and_dropped(env: TableEnvironment, tmp_path: Path) -> None:
    env.create_table("t", files(tmp_path))
    env.create_temporary_view("v", env.from_elements([(1,)], ["a"]))
    assert env.create_view("w", env.from_path("v"))
    assert not env.create_view("w", env.from_path("v"), ignore_if_exists=True)
    assert (env.list_tables(), env.list_views(), env.list_temporary_views()) == (
        ["t", "v", "w"],
        ["v", "w"],
        ["v"],
    )
    assert env.drop_temporary_view("v")
    assert not env.drop_temporary_view("v")
    assert not env.drop_temporary_table("t")
    assert env.drop_table("t")
    with pytest.raises(SqlError, match="unknown table"):
        env.drop_table("t", ignore_if_not_exists=False)
    assert (env.list_catalogs(), env.get_current_database()) == (["default_catalog"], "default_database")
    assert "UPPER" in env.list_functions()


def test_what_cannot_be_says_why(env: TableEnvironment) -> None:
    with pytest.raises(UnsupportedError, match="no Java"):
        env.create_java_function("f", "org.example.F")
    with pytest.raises(UnsupportedError, match="declared, not made"):
        env.register_catalog("c", object())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        env.nothing()


ROWS = pa.table(
    {
        "i": pa.array([1, 2, None], pa.int32()),
        "s": pa.array(["a", None, "c"]).dictionary_encode(),
        "x": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(10, 2)),
        "t": pa.array([dt.datetime(2026, 1, 1, 1, 2, 3), None, None], pa.timestamp("ns")),
        "z": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("ms", "UTC")),
        "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
        "r": pa.array([{"k": 1}, None, {"k": 2}], pa.struct([("k", pa.int64())])),
    }
)


def test_arrow_both_ways(env: TableEnvironment) -> None:
    table = env.from_arrow(ROWS)
    types = list(map(str, table.get_schema().get_column_data_types()))
    assert types == [
        "INT", "STRING", "DECIMAL(10, 2)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "ARRAY<BIGINT>", "ROW<`k` BIGINT>",
    ]  # fmt: skip
    back = table.to_arrow()
    assert back.column_names == ROWS.column_names
    plain = {name: ROWS.column(name).to_pylist() for name in ("i", "s", "x", "l", "r")}
    assert {name: back.column(name).to_pylist() for name in plain} == plain
    assert back.column("z").to_pylist()[0] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(SpecError, match="column 'n'"):
        env.from_arrow(pa.table({"n": pa.nulls(2)}))
    with pytest.raises(SpecError, match="do not fit the schema"):
        env.from_arrow(ROWS, ["a"])


def test_an_updating_table_is_its_final_rows(env: TableEnvironment) -> None:
    table = env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["k", "n"])
    found = table.group_by(col("k")).select(col("k"), col("n").sum.alias("s")).to_arrow()
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [("a", 4), ("b", 2)]
    assert table.filter(col("n") > 9).to_arrow().to_pydict() == {"k": [], "n": []}


def test_pandas_both_ways(env: TableEnvironment) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[7, 8])
    assert env.from_pandas(frame).filter(col("a") > 1).to_pandas().to_dict("list") == {"a": [2], "b": ["y"]}
    named: Any = env.from_pandas(frame, ["p", "q"])
    assert named.get_schema().get_column_names() == ["p", "q"]
    typed = DataTypes.ROW([DataTypes.FIELD("p", DataTypes.INT()), DataTypes.FIELD("q", DataTypes.STRING())])
    assert str(env.from_pandas(frame, typed).get_schema().get_column_data_types()[0]) == "INT"


def test_polars_both_ways(env: TableEnvironment) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert env.from_polars(frame).to_polars().equals(frame)
