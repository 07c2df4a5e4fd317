"""Databases through Spark's own JDBC, shown on Derby, whose driver comes with Spark; SQLite is ours."""

from __future__ import annotations

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConnectorError, SpecError, UnsupportedError
from penstock.spark.engine import SparkJob
from penstock.spark.errors import translated
from penstock.sql.scripts import plan_script
from tests.spark.support import on_spark, on_streaming

DRIVER = "org.apache.derby.jdbc.EmbeddedDriver"
COLUMNS = "id BIGINT, k STRING, price DECIMAL(10, 2), x DOUBLE, ok BOOLEAN, d DATE, ts TIMESTAMP(6)"
VALUES = """(1, 'zoë', 12.30, 0.5, TRUE, DATE '2024-02-29', TIMESTAMP '1969-12-31 23:59:59.999999'),
  (2, NULL, NULL, NULL, NULL, NULL, NULL), (3, '', -0.01, -1.5, FALSE, DATE '1900-01-01', TIMESTAMP '2024-01-01 00:00:00')"""
ROWS = [
    (1, "zoë", Decimal("12.30"), 0.5, True, datetime.date(2024, 2, 29),
     datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (2, None, None, None, None, None, None),
    (3, "", Decimal("-0.01"), -1.5, False, datetime.date(1900, 1, 1), datetime.datetime(2024, 1, 1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"jdbc:derby:{tmp_path_factory.mktemp('derby')}/db;create=true"


def table(url: str, columns: str = COLUMNS, name: str = "t", **options: str) -> str:
    more = "".join(f", '{k}' = '{v}'" for k, v in {"driver": DRIVER, **options}.items())
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 'goods'{more});"


def planned(script: str) -> Any:
    return plan_script(script, {"execution.engine": "streaming"}).job_graph


@pytest.fixture(scope="module")
def goods(spark: Any, url: str) -> str:
    SparkJob(planned(f"{table(url)} INSERT INTO t VALUES {VALUES}"), spark).run()
    return url


def test_what_was_written_is_read(spark: Any, goods: str) -> None:
    graph = planned(f"{table(goods)} SELECT * FROM t WHERE id > 0")
    assert sorted(on_spark(graph, spark)) == ROWS
    plan = SparkJob(graph, spark).explain()
    assert "JDBCRelation" in plan
    assert "PushedFilters: [*IsNotNull(ID), *GreaterThan(ID,0)]" in plan.replace("id", "ID")


def test_in_parts(spark: Any, goods: str) -> None:
    parts = {"column": "id", "num": "2", "lower-bound": "1", "upper-bound": "3"}
    options = {f"scan.partition.{k}": v for k, v in parts.items()}
    graph = planned(f"{table(goods, **options)} SELECT COUNT(*), SUM(price) FROM t")
    assert on_spark(graph, spark) == [(3, Decimal("12.29"))]
    assert "numPartitions=2" in SparkJob(graph, spark).explain()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("id INT", "column 'id' of the database does not fit its declaration"),
        ("price DECIMAL(10, 1)", "does not fit its declaration"),
        ("nothing INT", "has no column 'nothing'"),
    ],
)
def test_declarations_that_do_not_fit(spark: Any, goods: str, columns: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        on_spark(planned(f"{table(goods, columns)} SELECT * FROM t"), spark)


def test_wider_declarations_fit(spark: Any, goods: str) -> None:
    graph = planned(f"{table(goods, 'price DECIMAL(20, 4), ts TIMESTAMP(3)')} SELECT * FROM t")
    assert (Decimal("12.3000"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)) in on_spark(
        graph, spark
    )


def test_no_updates(spark: Any, goods: str) -> None:
    script = f"{table(goods, COLUMNS + ', PRIMARY KEY (id) NOT ENFORCED')} INSERT INTO t VALUES {VALUES}"
    with pytest.raises(UnsupportedError, match="writing by key"):
        SparkJob(planned(script), spark).run()


def test_the_streaming_engine_refuses_it(url: str) -> None:
    with pytest.raises(UnsupportedError, match="this database on the streaming engine"):
        on_streaming(planned(f"{table(url)} SELECT * FROM t"))


def test_no_driver_named(url: str) -> None:
    script = table(url).replace(f", 'driver' = '{DRIVER}'", "")
    with pytest.raises(ConnectorError, match="name the database's Java class"):
        planned(f"{script} SELECT * FROM t")


def test_a_driver_that_is_not_there(spark: Any, url: str) -> None:
    graph = planned(f"{table(url, driver='org.nowhere.Driver')} SELECT * FROM t")
    with pytest.raises(SpecError, match=r"no Java class 'org\.nowhere\.Driver'") as refused:
        on_spark(graph, spark)
    assert "spark.jars" in str(refused.value.remedy)
    connect = RuntimeError("(java.lang.ClassNotFoundException) org.nowhere.Driver\n\nJVM stacktrace:\n…")
    assert translated(connect).message == refused.value.message


def test_sqlite_is_read_by_our_connector(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE goods (id INTEGER, ok INTEGER, d TEXT)")
        connection.executemany("INSERT INTO goods VALUES (?, ?, ?)", [(1, 1, "2024-02-29"), (2, None, None)])
    graph = planned(f"{table(f'jdbc:sqlite:{path}', 'id INT, ok BOOLEAN, d DATE')} SELECT * FROM t")
    rows = [(1, True, datetime.date(2024, 2, 29)), (2, None, None)]
    assert sorted(on_spark(graph, spark)) == sorted(on_streaming(graph)) == rows
