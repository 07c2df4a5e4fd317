"""Running a golden case: on the streaming engine, on Spark, and by DuckDB."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from penstock.jobgraph.graph import JobGraph
from penstock.jobgraph.specs import SparkQuerySpec
from penstock.plan.engine import decode_content
from penstock.spark.engine import SparkJob, SparkResult
from penstock.spark.support import spark_support
from penstock.sql.functions import register_module
from penstock.sql.results import PlannedJob
from penstock.sql.session import SqlSession
from penstock.testing import MemoryTable, run_graph
from penstock.types.batch import RowKind
from tests.golden.case import HERE, Case, Table
from tests.golden.values import plain_rows

FUNCTIONS = HERE / "functions" / "golden_functions.py"
#: Small batches: updates are really taken back, watermarks really move.
_BATCH_ROWS = 7
#: DuckDB refuses an overflow; Java's integers wrap.
_MACROS = """
CREATE MACRO wrap(bits, n) AS ((n::HUGEINT + (1::HUGEINT << (bits - 1))) % (1::HUGEINT << bits) + (1::HUGEINT << bits))
  % (1::HUGEINT << bits) - (1::HUGEINT << (bits - 1))
"""


def _with_clause(table: Table, folder: Path) -> str:
    """Make the table's rows readable; its WITH options."""
    if table.connector == "memory":
        MemoryTable(f"golden-{table.name}", table.batch.schema, [[table.batch]], batch_rows=_BATCH_ROWS)
        return f"'connector' = 'memory', 'name' = 'golden-{table.name}'"
    file, names = folder / f"{table.name}.db", table.batch.schema.names
    with sqlite3.connect(file) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS rows ({', '.join(names)})")
        connection.execute("DELETE FROM rows")
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO rows VALUES ({marks})", table.batch.to_pylist())
    connection.close()
    return f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{file}', 'table-name' = 'rows'"


def planned(case: Case, folder: Path, config: dict[str, str], run: Callable[[JobGraph], Any]) -> PlannedJob:
    """Its query as a job, all before it having been ``run``."""
    settings = {"table.exec.join.unbounded-state": "allow", **case.settings, **config}
    support = spark_support() if settings.get("execution.engine") == "spark" else None
    session = SqlSession(settings, spark=support)
    if case.functions:
        register_module(session.catalog.functions, FUNCTIONS)
    for table in case.declared():
        session.execute(f"CREATE TABLE {table.name} ({table.columns}) WITH ({_with_clause(table, folder)})")
    for statement in session.run_script(case.setup.replace("{folder}", str(folder))):
        if statement.job is not None:
            run(statement.job.job_graph)
    job = session.execute(case.sql).job
    assert job is not None
    return job


def streaming(case: Case, folder: Path, parallelism: int, mode: str) -> list[list[Any]]:
    config = {"parallelism.default": str(parallelism), "execution.runtime-mode": mode}
    job = planned(case, folder, config, run_graph)
    if case.types:
        assert job.result_schema is not None
        assert [str(x) for x in job.result_schema.types] == case.types
    result = run_graph(job.job_graph)
    if mode == "BATCH":
        assert {kind for kind, _ in result.changelog} <= {RowKind.INSERT}, "rows are taken back in batch mode"
    return plain_rows(result.rows)


def spark_graph(graph: JobGraph) -> JobGraph:
    """What Spark runs of a job that was planned for it."""
    [spec] = [op.spec for v in graph.vertices for op in v.operators if isinstance(op.spec, SparkQuerySpec)]
    return msgspec.structs.replace(
        decode_content(spec.graph),
        functions=graph.functions,
        python_path=graph.python_path,
        config=graph.config,
    )


def on_spark(case: Case, folder: Path, spark: Any) -> list[list[Any]]:
    def run(graph: JobGraph) -> SparkResult:
        return SparkJob(spark_graph(graph), spark).run()

    job = planned(case, folder, {"execution.engine": "spark"}, run)
    return plain_rows(run(job.job_graph).rows)


def by_duckdb(case: Case) -> list[list[Any]]:
    with duckdb.connect() as connection:
        connection.execute(_MACROS)
        connection.execute(
            "SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1"
        )
        for table in case.declared():
            connection.register(table.name, table.batch.to_external_arrow())
        if not case.duckdb:
            connection.execute(case.setup)
        result = connection.execute(case.duckdb or case.sql)
        return plain_rows(result.fetchall())
