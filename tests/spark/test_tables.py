"""Sources and sinks: Spark's own reader where it fits, our connectors through the adapter."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError, RecordError
from penstock.spark.engine import SparkJob
from penstock.sql.scripts import plan_script

SETTINGS = {"parallelism.default": "1", "execution.engine": "streaming"}


def job(sql: str, spark: Any) -> SparkJob:
    return SparkJob(plan_script(sql, SETTINGS).job_graph, spark)


def rows(sql: str, spark: Any) -> list[tuple[Any, ...]]:
    return job(sql, spark).run().rows


def json_files(folder: Path, files: int = 3, lines: int = 5) -> str:
    folder.mkdir(exist_ok=True)
    for number in range(files):
        text = "\n".join(
            json.dumps(
                {"id": number * 100 + i, "at": f"2024-01-0{number + 1} 00:00:0{i}", "tags": ["x", str(i)]}
            )
            for i in range(lines)
        )
        (folder / f"part-{number}.json").write_text(text + "\n")
    return str(folder)


JSON_TABLE = """CREATE TABLE t (id BIGINT, at TIMESTAMP(3), tags ARRAY<STRING>, path STRING METADATA FROM 'file.path')
  WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'{more});"""


def test_a_connector_through_the_adapter(spark: Any, tmp_path: Path) -> None:
    path = json_files(tmp_path / "in")
    sql = (
        JSON_TABLE.format(path=path, more="")
        + "SELECT id, at, tags[2], RIGHT(path, 11) FROM t WHERE id >= 100"
    )
    got = sorted(rows(sql, spark))
    assert len(got) == 10
    assert got[0] == (100, datetime(2024, 1, 2), "0", "part-1.json")


def test_rows_arrive_in_the_order_of_their_files(spark: Any, tmp_path: Path) -> None:
    path = json_files(tmp_path / "in")
    sql = JSON_TABLE.format(path=path, more="") + "SELECT LISTAGG(CAST(id AS STRING)) FROM t"
    ((text,),) = rows(sql, spark)
    assert text == ",".join(str(n * 100 + i) for n in range(3) for i in range(5))


def test_parquet_files_too(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        ids = pa.array(range(number * 10, number * 10 + 4), pa.int32())
        pq.write_table(pa.table({"id": ids}), tmp_path / f"f {number}.parquet")
    sql = f"""CREATE TABLE t (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet');
      SELECT FIRST_VALUE(id), LAST_VALUE(id), LISTAGG(CAST(id AS STRING)) FROM t"""
    made = job(sql, spark)
    assert "Scan parquet" in made.explain()  # Spark's own reader
    assert made.run().rows == [(0, 23, "0,1,2,3,10,11,12,13,20,21,22,23")]


def test_a_column_that_spark_would_read_otherwise_goes_through_ours(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([7, 8], pa.int64())}), tmp_path / "x.parquet")
    sql = f"""CREATE TABLE t (id INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet');
      SELECT SUM(id) FROM t"""
    assert rows(sql, spark) == [(15,)]


def test_bad_records(spark: Any, tmp_path: Path) -> None:
    path = json_files(tmp_path / "in", files=1)
    with (tmp_path / "in" / "part-0.json").open("a") as file:
        file.write("{oops\n")
    with pytest.raises(RecordError) as err:
        rows(JSON_TABLE.format(path=path, more="") + "SELECT COUNT(*) FROM t", spark)
    assert "part-0.json" in str(err.value)
    assert "Java" not in str(err.value)
    skipping = JSON_TABLE.format(path=path, more=", 'on-error' = 'skip'")
    assert rows(skipping + "SELECT COUNT(*) FROM t", spark) == [(5,)]


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_files_written_exactly_once(spark: Any, tmp_path: Path, format_: str) -> None:
    """Every row once, nothing left pending, and what a reader sees has no uncommitted file."""
    out = tmp_path / "out"
    sql = f"""CREATE TABLE o (id BIGINT, name STRING, d DECIMAL(10, 2))
      WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = '{format_}');
      INSERT INTO o SELECT a, b, CAST(a AS DECIMAL(10, 2)) FROM (VALUES (1, 'x'), (2, 'y'), (3, 'z')) AS v(a, b)"""
    job(sql, spark).run()
    files = [p for p in out.rglob("*") if p.is_file()]
    assert files
    assert all(p.parent == out and p.name.startswith("part-") for p in files)
    read = f"""CREATE TABLE o (id BIGINT, name STRING, d DECIMAL(10, 2))
      WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = '{format_}'); SELECT * FROM o"""
    assert [(i, n, str(d)) for i, n, d in sorted(rows(read, spark))] == [
        (1, "x", "1.00"), (2, "y", "2.00"), (3, "z", "3.00"),
    ]  # fmt: skip


def test_a_task_that_fails_leaves_nothing_visible(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sql = f"""CREATE TABLE o (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json');
      INSERT INTO o SELECT 10 / a FROM (VALUES (1), (2), (0)) AS v(a)"""
    with pytest.raises(RecordError, match="division by zero"):
        job(sql, spark).run()
    assert [p for p in out.rglob("part-*") if p.is_file()] == []


def test_what_other_tasks_staged_is_deleted_when_one_fails(spark: Any, tmp_path: Path) -> None:
    path, out = json_files(tmp_path / "in", files=4), tmp_path / "out"
    with (tmp_path / "in" / "part-3.json").open("a") as file:
        file.write("{oops\n")
    sql = JSON_TABLE.format(path=path, more="") + (
        f"CREATE TABLE o (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json');"
        "INSERT INTO o SELECT id FROM t"
    )
    with pytest.raises(RecordError):
        job(sql, spark).run()
    assert [p for p in out.rglob("*") if p.is_file()] == []


def test_print_and_blackhole(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    sql = """CREATE TABLE p (a INT, b STRING) WITH ('connector' = 'print', 'print-identifier' = 'out');
      CREATE TABLE n (a INT, b STRING) WITH ('connector' = 'blackhole');
      INSERT INTO p SELECT * FROM (VALUES (1, 'x'), (2, CAST(NULL AS STRING))) AS v(a, b);
      INSERT INTO n SELECT * FROM (VALUES (1, 'x')) AS v(a, b)"""
    job(sql, spark).run()
    assert sorted(capsys.readouterr().out.splitlines()) == ["out> +I[1, x]", "out> +I[2, null]"]


@pytest.mark.parametrize("connector", ["print", "blackhole"])
def test_a_null_for_a_not_null_column_fails_whoever_writes(spark: Any, connector: str) -> None:
    sql = f"""CREATE TABLE n (a INT NOT NULL) WITH ('connector' = '{connector}');
      INSERT INTO n SELECT * FROM (VALUES (1), (CAST(NULL AS INT))) AS v(a)"""
    with pytest.raises(RecordError, match="Column 'a' is NOT NULL, however, a null value"):
        job(sql, spark).run()
    job("SET 'table.exec.sink.not-null-enforcer' = 'DROP';" + sql, spark).run()


def test_nexmark_as_a_source(spark: Any) -> None:
    sql = """CREATE TABLE nexmark (event_type INT, bid ROW<auction BIGINT, price BIGINT>)
      WITH ('connector' = 'nexmark', 'events.num' = '5000', 'rows-per-second' = '0', 'splits' = '3');
      SELECT event_type, COUNT(*) FROM nexmark GROUP BY event_type"""
    try:
        got = dict(rows(sql, spark))
    except PenstockError as err:
        pytest.fail(str(err))
    assert got == {0: 100, 1: 300, 2: 4600}


def test_an_unbounded_source_is_refused(spark: Any, tmp_path: Path) -> None:
    from penstock.errors import UnsupportedError

    path = json_files(tmp_path / "in", files=1)
    sql = JSON_TABLE.format(path=path, more=", 'source.monitor-interval' = '1 s'") + "SELECT id FROM t"
    with pytest.raises(UnsupportedError, match="unbounded"):
        job(sql, spark)
