"""Jobs on Spark, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.engine import SparkJob
from penstock.sql.session import plan_script


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
