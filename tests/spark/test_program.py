"""A project's Python step: planned, called with Spark, its errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.project import planned_steps, read_project
from penstock.errors import FunctionError, PenstockError, SpecError, UnsupportedError
from penstock.plan.engine import decode_content
from penstock.spark.engine import SparkJob
from penstock.spark.outputs import run_sinks
from penstock.testing import MemoryTable
from penstock.types import logical as t

SQL = """
CREATE TABLE orders (id BIGINT, customer BIGINT, twice AS id * 2)
  WITH ('connector' = 'filesystem', 'path' = 'FOLDER/orders', 'format' = 'parquet');
CREATE TEMPORARY VIEW few AS SELECT id, customer FROM orders WHERE id < 4;
CREATE TABLE endless (id BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE counts (customer BIGINT, n BIGINT) WITH ('connector' = 'memory', 'name' = 'counts');
"""
COUNTS = t.Schema.of(("customer", t.BigIntType()), ("n", t.BigIntType()))
STEPS = """
from pyspark.sql import functions as F
from pyspark.sql import types as st


def run(step):
    rows = step.table("orders").groupBy("customer").agg(F.sum("twice").alias("n"))
    step.insert("counts", rows.select("n", "customer"))
    step.insert("counts", step.table("few").select("customer", F.col("id").cast("int").alias("n")))


def no_column(step):
    step.table("orders").select("nothing").collect()


def divides(step):
    return inner(step) / 0


def inner(step):
    return step.table("orders").count()


def unknown(step):
    step.table("ordres")


def endless(step):
    step.table("endless")


def types(step):
    step.insert("counts", step.table("orders").select("customer", F.lit("x").alias("n")))


def vectors(step):
    from pyspark.ml.functions import array_to_vector

    step.insert("counts", step.table("orders").select(
        "customer", array_to_vector(F.array(F.lit(1.0))).alias("n")))


def columns(step):
    step.insert("counts", step.table("orders").select("customer"))


def on_executor(step):
    divide = F.udf(lambda n: 100 // (n - 7), "long")
    step.insert("counts", step.table("orders").select("customer", divide("id").alias("n")))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("project")
    (tmp_path / "orders").mkdir()
    pq.write_table(
        pa.table({"id": range(20), "customer": [i % 3 for i in range(20)]}), tmp_path / "orders" / "0.parquet"
    )
    (tmp_path / "tables.sql").write_text(SQL.replace("FOLDER", str(tmp_path)))
    (tmp_path / "steps_of_test.py").write_text(STEPS)
    return tmp_path


def planned(folder: Path, python: str, **config: str) -> Any:
    file = folder / "project.yaml"
    text = f"name: p\nsteps: [{{name: one, sql: tables.sql, python: '{python}'}}]"
    [(_, job)] = planned_steps(file, read_project(file, text), config)
    return job.job_graph


def call(folder: Path, function: str, spark: Any) -> None:
    """As the driver does it."""
    graph = planned(folder, f"steps_of_test.py:{function}")
    [vertex] = graph.vertices
    content = decode_content(vertex.operators[0].spec.graph)
    content = msgspec.structs.replace(content, functions=graph.functions, python_path=graph.python_path)
    run_sinks(SparkJob(content, spark), vertex.operators[0].spec.sinks)


def test_tables_in_and_out(folder: Path, spark: Any) -> None:
    table = MemoryTable("counts", COUNTS, [])
    call(folder, "run", spark)
    sums = [(c, sum(2 * i for i in range(20) if i % 3 == c)) for c in range(3)]
    assert sorted(table.committed_rows()) == sorted([*sums, *((i % 3, i) for i in range(4))])


def test_a_failed_step_is_not_repeated_unless_asked_for(folder: Path) -> None:
    assert planned(folder, "steps_of_test.py").config["restart-strategy.type"] == "none"
    asked = planned(folder, "steps_of_test.py", **{"restart-strategy.type": "fixed-delay"})
    assert asked.config["restart-strategy.type"] == "fixed-delay"


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (
            "no_column",
            PenstockError,
            ["UNRESOLVED_COLUMN", 'step.table("orders").select("nothing").collect()'],
        ),
        ("divides", FunctionError, ["ZeroDivisionError", "return inner(step) / 0"]),
        ("unknown", SpecError, ["no table 'ordres' to read", "got:      'ordres'", "did you mean 'orders'"]),
        ("endless", UnsupportedError, ["it does not end", "do:       read a bounded table"]),
        (
            "types",
            SpecError,
            ["column 'n' does not fit table 'counts'", "string", "BIGINT", ".cast('bigint')"],
        ),
        ("vectors", SpecError, ["vector_to_array", "VectorUDT"]),
        (
            "columns",
            SpecError,
            ["the rows do not fit table 'counts'", "customer, n", "do:", "columns go by name"],
        ),
        ("on_executor", PenstockError, ["ZeroDivisionError", "100 // (n - 7)", 'step.insert("counts"']),
    ],
)
def test_errors_say_where(
    folder: Path, spark: Any, function: str, kind: type[PenstockError], words: list[str]
) -> None:
    MemoryTable("counts", COUNTS, [])
    with pytest.raises(kind) as caught:
        call(folder, function, spark)
    text = str(caught.value)
    assert [w for w in words if w not in text] == [], text
    assert "py4j" not in text
    assert "at org.apache" not in text


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("steps_of_test.py:rnu", "no function 'rnu'"),
        ("missing.py", "cannot read the script"),
        ("tables.sql", "names no Python file"),
        ("broken.py", "is not Python: "),
    ],
)
def test_found_at_planning(folder: Path, python: str, words: str) -> None:
    (folder / "broken.py").write_text("def run(step:\n    pass\n")
    with pytest.raises(SpecError, match=words) as refused:
        planned(folder, python)
    error = refused.value
    assert all((error.expected, error.got, error.where, error.remedy)), str(error)


def test_a_job_beside_the_function(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tables.sql").write_text("SELECT 1")
    with pytest.raises(SpecError, match="has a job beside its Python function"):
        planned(tmp_path, "steps_of_test.py")


def test_neither_sql_nor_python() -> None:
    with pytest.raises(SpecError, match="step 'a' has neither sql nor python"):
        read_project(Path("p.yaml"), "name: p\nsteps: [{name: a}]")
