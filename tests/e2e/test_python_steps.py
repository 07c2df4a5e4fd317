"""Python steps of projects as jobs: progress, cancel, the user's traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.project import planned_steps, read_project
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError
from tests.e2e.support import until_true

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SQL = """
CREATE TABLE orders (id BIGINT, customer BIGINT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/orders', 'format' = 'parquet');
CREATE TABLE counts (customer BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/counts', 'format' = 'csv');
"""
STEPS = """
import sys

from pyspark.sql import functions as F

import ranks


def run(step):
    rank = F.udf(ranks.rank, "long")
    counts = step.table("orders").groupBy("customer").agg(F.count("*").alias("n"))
    for _ in range(2):
        step.insert("counts", counts.withColumn("n", rank("n")))


def endless(step):
    while True:
        step.table("orders").select(F.udf(ranks.slow, "long")("id")).count()
        step.table("orders").select(F.sum(F.udf(ranks.slow, "long")("id"))).collect()


def leaves(step):
    sys.exit(3)


def ends_a_worker(step):
    step.table("orders").select(F.udf(ranks.end, "long")("id")).collect()


def raises_in_spark(step):
    def bad(batches):
        for batch in batches:
            raise ValueError("a bad batch")
            yield batch

    step.table("orders").mapInArrow(bad, "id long, customer long").collect()


def fails(step):
    return step.table("orders").count() // 0
"""
RANKS = """
import os
import time


def rank(n):
    return -n


def end(n):
    os._exit(3)


def slow(n):
    time.sleep(0.05)
    return n
"""


@pytest.fixture(scope="module")
def client(spark_cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(spark_cluster.rest_url) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    pq.write_table(
        pa.table({"id": range(900), "customer": [i % 3 for i in range(900)]}), tmp_path / "orders" / "0"
    )
    (tmp_path / "tables.sql").write_text(SQL.replace("FOLDER", str(tmp_path)))
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "ranks.py").write_text(RANKS)
    return tmp_path


def submit(client: ClusterClient, folder: Path, function: str) -> str:
    text = f"name: p\nsteps: [{{name: one, sql: tables.sql, python: 'steps.py:{function}'}}]"
    [(_, planned)] = planned_steps(folder / "p.yaml", read_project(folder / "p.yaml", text), {})
    return client.submit({"name": function, "job_graph": msgspec.to_builtins(planned.job_graph)})


def test_rows_go_in_twice_when_inserted_twice(client: ClusterClient, folder: Path) -> None:
    """Each insert is committed; functions of a module beside the step's run in Spark's workers."""
    job_id = submit(client, folder, "run")
    job = client.wait(job_id)
    client.raise_if_failed(job_id, job)
    assert job["spark"]["tasks"] > 0
    rows = sorted(line for part in (folder / "counts").glob("part-*") for line in part.read_text().split())
    assert rows == sorted(f"{customer},-300" for customer in range(3) for _ in range(2))


def test_cancel_interrupts_the_function(client: ClusterClient, folder: Path) -> None:
    job_id = submit(client, folder, "endless")

    def active() -> Any:
        return (client.job(job_id).get("spark") or {}).get("tasks-active")

    until_true(active, "Spark runs its tasks", lambda: client.job(job_id))
    client.cancel(job_id)
    assert client.wait(job_id)["state"] == "CANCELED"
    # Its tasks are gone and its process is: the next step has Spark for itself.
    next_id = submit(client, folder, "run")
    client.raise_if_failed(next_id, client.wait(next_id))


def test_the_users_lines(client: ClusterClient, folder: Path) -> None:
    job_id = submit(client, folder, "fails")
    with pytest.raises(FunctionError) as caught:
        client.raise_if_failed(job_id, client.wait(job_id))
    text = str(caught.value)
    assert 'return step.table("orders").count() // 0' in text
    assert "ZeroDivisionError" in text
    assert "step 'one' (steps.py:fails)" in text
    assert "penstock/spark" not in text
    assert client.job(job_id)["attempt"] == 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("leaves", ["sys.exit(3)", "called sys.exit(3)", "return instead"]),
        ("ends_a_worker", ["ranks.end", "ended its Python process", "os._exit()"]),
        ("raises_in_spark", ["mapInArrow(bad", 'raise ValueError("a bad batch")', "[PS-"]),
    ],
)
def test_how_a_step_may_end_badly(
    client: ClusterClient, folder: Path, function: str, said: list[str]
) -> None:
    """The user's lines first, none of Spark's or ours between them."""
    job_id = submit(client, folder, function)
    with pytest.raises(FunctionError) as caught:
        client.raise_if_failed(job_id, client.wait(job_id))
    text = str(caught.value)
    at = [text.index(part) for part in said]
    assert at == sorted(at)
    assert "steps.py" in text.splitlines()[1]
    for foreign in ("site-packages", "penstock/spark", "faulthandler", "org.apache"):
        assert foreign not in text
