"""Jobs on Spark, end to end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.clientserver import ClientServerConnection

from penstock.spark.engine import SparkJob
from penstock.spark.graph import sink_nodes
from penstock.sql.scripts import plan_script


def rows_of(sql: str, spark: Any, **config: str) -> list[tuple[Any, ...]]:
    graph = plan_script(sql, {"parallelism.default": "1", **config}).job_graph
    return SparkJob(graph, spark).run().rows


def test_group_by_over_parquet(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b", "a", None], "v": pa.array([1, 2, 2**31 - 1, 4], pa.int32())})
    pq.write_table(table, tmp_path / "part.parquet")
    sql = f"""
      CREATE TABLE t (k STRING, v INT)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet');
      SELECT k, SUM(v) AS total, COUNT(*) AS n, AVG(v) AS mean FROM t GROUP BY k
    """
    # INT sums wrap, INT averages are INT.
    wrapped = -(2**31)
    assert sorted(rows_of(sql, spark), key=repr) == sorted(
        [("a", wrapped, 2, 2**30), ("b", 2, 1, 2), (None, 4, 1, 4)], key=repr
    )


def test_planning_makes_few_round_trips(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one of Spark's calls in Java costs some 0.15 ms of a job's time."""
    for name in ("sales", "goods"):
        pq.write_table(pa.table({"id": [1], "good": [2], "price": [3.0]}), tmp_path / f"{name}.parquet")
    tables = "".join(
        f"CREATE TABLE {name} (id BIGINT, good BIGINT, price DOUBLE) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / name}.parquet', 'format' = 'parquet');"
        for name in ("sales", "goods")
    )
    sql = f"{tables} SELECT s.id, g.price FROM sales s JOIN goods g ON s.good = g.id WHERE g.price > 2"
    job = SparkJob(plan_script(sql, {"parallelism.default": "1"}).job_graph, spark)
    sent = []
    send, planning = ClientServerConnection.send_command, threading.get_ident()

    def counted(self: ClientServerConnection, command: str) -> Any:
        # Another thread tells Java which objects of earlier tests are gone, whenever it comes to it.
        if threading.get_ident() == planning:
            sent.append(command)
        return send(self, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    job.input(sink_nodes(job.nodes)[0], 0)
    assert len(sent) < 300
