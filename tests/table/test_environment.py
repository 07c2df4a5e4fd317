"""Statements, results and rows that a program holds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SpecError, SqlError
from penstock.table import DataTypes, EnvironmentSettings, ResultKind, RowKind, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import udf


def rows(result: Any) -> list[tuple[str, tuple[Any, ...]]]:
    with result.collect() as found:
        return [(row.get_row_kind().short, tuple(row)) for row in found]


def test_elements_have_types_names_and_rows(env: TableEnvironment) -> None:
    table = env.from_elements(
        [(1, "a", 1.5, Decimal("1.25"), dt.date(2026, 1, 1), [1, 2], {"k": 1}), (2, None, 2.5, None, None, None, None)],
        ["i", "s", "d", "x", "day", "l", "m"],
    )  # fmt: skip
    found = [f"{n} {x}" for n, x in zip(table.get_schema().get_column_names(), table.get_schema().get_column_data_types(), strict=True)]  # fmt: skip
    assert found == [
        "i BIGINT", "s STRING", "d DOUBLE", "x DECIMAL(38, 18)", "day DATE", "l ARRAY<BIGINT>", "m MAP<STRING, BIGINT>",
    ]  # fmt: skip
    first = table.execute().collect().next()
    assert (first.i, first.s, first[0], first.day, first.l, first.m) == (
        1, "a", 1, dt.date(2026, 1, 1), [1, 2], {"k": 1},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("elements", "schema", "names"),
    [
        ([(1, "a")], None, ["_1", "_2"]),
        ([{"b": 1, "a": 2}], None, ["b", "a"]),
        ([1, 2], DataTypes.BIGINT(), ["value"]),
        ([{"b": 1}], ["a", "b"], ["a", "b"]),
        ([], DataTypes.ROW([DataTypes.FIELD("k", DataTypes.INT())]), ["k"]),
    ],
)
def test_schemas_of_elements(env: TableEnvironment, elements: Any, schema: Any, names: list[str]) -> None:
    if names == ["a", "b"]:
        schema = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.INT())])
    assert env.from_elements(elements, schema).get_schema().get_column_names() == names


@pytest.mark.parametrize(
    ("elements", "schema", "said"),
    [
        ([], ["a"], "needs the types"),
        ([(1, 2), (1,)], ["a", "b"], "row 1 does not fit"),
        ([(1,), ("x",)], ["a"], "no common type"),
        ([(None,)], ["a"], "no common type"),
        ([(1, {"c": 1})], DataTypes.BIGINT(), "does not fit"),
        ([("x",)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]), "does not fit its column"),
        ([(None,)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT(False))]), "does not fit"),
        ([{"z": 1}], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]), "does not fit"),
    ],
)
def test_elements_that_do_not_fit(env: TableEnvironment, elements: Any, schema: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        env.from_elements(elements, schema)
    assert "test_environment.py, line" in str(caught.value)


def test_a_changelog_has_the_rows_that_updates_replace(env: TableEnvironment) -> None:
    env.create_temporary_view("v", env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["k", "n"]))
    env.get_config().set("parallelism.default", "1")
    found = rows(env.execute_sql("SELECT k, SUM(n) AS s FROM v GROUP BY k"))
    total: dict[tuple[Any, ...], int] = {}
    for kind, row in found:
        total[row] = total.get(row, 0) + (1 if kind in ("+I", "+U") else -1)
    assert {row for row, count in total.items() if count} == {("a", 4), ("b", 2)}
    assert sum(1 for kind, _ in found if kind == "-U") == sum(1 for kind, _ in found if kind == "+U")


def test_batch_mode_gives_final_rows() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.get_config().set("execution.engine", "streaming")
    env.create_temporary_view("v", env.from_elements([("a", 1), ("a", 3)], ["k", "n"]))
    result = env.execute_sql("SELECT k, SUM(n) AS s FROM v GROUP BY k")
    assert rows(result) == [("+I", ("a", 4))]


def test_statements_without_a_job(env: TableEnvironment) -> None:
    made = env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole')")
    assert made.get_result_kind() is ResultKind.SUCCESS
    assert made.get_job_client() is None
    assert rows(made) == [("+I", ("OK",))]
    shown = env.execute_sql("SHOW TABLES")
    assert shown.get_result_kind() is ResultKind.SUCCESS_WITH_CONTENT
    assert rows(shown) == [("+I", ("t",))]
    assert shown.get_schema().get_column_names() == ["table name"]
    explained = env.execute_sql("EXPLAIN SELECT 1 AS a").collect().next()
    assert "Optimized Logical Plan" in explained[0]


def test_an_insert_gives_its_job(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TABLE t (a BIGINT) WITH ('connector' = 'blackhole')")
    result = env.from_elements([(1,)], ["a"]).execute_insert("t")
    result.wait()
    assert result.get_job_client() is not None
    assert result.get_schema().get_column_names() == ["default_catalog.default_database.t"]
    assert rows(result) == [("+I", (-1,))]


def test_a_table_in_a_text_is_a_view(env: TableEnvironment) -> None:
    table = env.from_elements([(1,), (2,)], ["a"])
    assert [r for _, r in rows(env.sql_query(f"SELECT MAX(a) AS m FROM {table}").execute())][-1] == (2,)
    view = str(table).strip("`")
    with pytest.raises(Exception, match="SHOW CREATE VIEW"):
        env.execute_sql(f"SHOW CREATE VIEW `{view}`")


def test_an_error_of_a_text_has_its_place(env: TableEnvironment) -> None:
    with pytest.raises(SqlError, match="unknown column 'b'") as caught:
        env.sql_query("SELECT a,\n b FROM (VALUES (1)) AS v(a)")
    assert caught.value.where == "line 2, column 2"
    with pytest.raises(SqlError, match="takes a query"):
        env.sql_query("SHOW TABLES")
    with pytest.raises(SqlError, match="unknown table 'nope'") as caught:
        env.from_path("nope")
    assert "from_path('nope') in" in str(caught.value.where)


def test_a_query_reads_the_configuration_when_it_runs(env: TableEnvironment) -> None:
    table = env.sql_query("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS s")
    env.get_config().set_local_timezone("Asia/Tokyo")
    assert rows(table.execute()) == [("+I", ("1970-01-01 09:00:00.000",))]


def test_a_printed_changelog(env: TableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    env.from_elements([(1, "x" * 40), (2, None)], ["id", "data"]).execute().print()
    assert capsys.readouterr().out == (
        "+----+----------------------+--------------------------------+\n"
        "| op |                   id |                           data |\n"
        "+----+----------------------+--------------------------------+\n"
        "| +I |                    1 | xxxxxxxxxxxxxxxxxxxxxxxxxxx... |\n"
        "| +I |                    2 |                         <NULL> |\n"
        "+----+----------------------+--------------------------------+\n"
        "2 rows in set\n"
    )
    env.sql_query("SELECT 1 AS a WHERE 1 = 2").execute().print()
    assert capsys.readouterr().out == "Empty set\n"


def test_printed_final_rows_are_as_wide_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.get_config().set("execution.engine", "streaming")
    env.from_elements([(1, "日本")], ["id", "d"]).execute().print()
    lines = [
        "+----+------+",
        "| id |    d |",
        "+----+------+",
        "|  1 | 日本 |",
        "+----+------+",
        "1 row in set",
    ]
    assert capsys.readouterr().out.splitlines() == lines


def test_rows_know_their_kind(env: TableEnvironment) -> None:
    row = env.from_elements([(1,)], ["a"]).execute().collect().next()
    assert row.get_row_kind() is RowKind.INSERT
    assert row.with_kind(RowKind.DELETE).get_row_kind() is RowKind.DELETE
    assert row.as_dict() == {"a": 1}


def test_the_module_that_was_added_last_is_found_first(env: TableEnvironment, tmp_path: Path) -> None:
    for folder, number in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "penstock_added_twice.py").write_text(f"def plus(v):\n    return v + {number}\n")
        env.add_python_file(str(tmp_path / folder / "penstock_added_twice.py"))

    def call_it(value: int) -> int:
        from penstock_added_twice import plus

        return int(plus(value))

    table = env.from_elements([(1,)], ["a"]).select(udf(call_it, result_type=DataTypes.BIGINT())(col("a")))
    assert list(table.execute().collect()) == [(3,)]
