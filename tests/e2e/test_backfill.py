"""A job of history then live: Parquet on Spark, then JetStream from the state that it left.

Every test compares with DuckDB over all rows. The stream already holds the rows behind the
seam, and some before it, when the job is submitted; more are published while it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import nats
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.embedded import EmbeddedCluster
from tests.e2e.support import story_of, until_true

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START = datetime(2024, 3, 1)
ROWS, SEAM, THERE = 6_000, 4_000, 5_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("customer", pa.int64()), ("price", pa.int64()), ("at", pa.timestamp("ms"))]
)
CONFIG = {
    "execution.backfill.engine": "spark",
    "execution.engine": "streaming",
    "execution.checkpointing.interval": "500 ms",
    "table.exec.join.unbounded-state": "allow",
    "parallelism.default": "2",
}


def order(i: int) -> dict[str, Any]:
    """Somewhat out of order, in 5-second steps."""
    at = START + timedelta(seconds=5 * i + (i * 7) % 23)
    return {"id": i, "customer": i * i % 23, "price": (i * 37) % 101, "at": at}


ALL = pa.Table.from_pylist([order(i) for i in range(ROWS)], SCHEMA)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files; they go on behind the seam."""
    folder = tmp_path_factory.mktemp("orders")
    step = (SEAM + 200) // 4
    for part in range(4):
        pq.write_table(ALL.slice(part * step, step), folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(taskmanagers=1, slots=4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as client:
        yield client


def published(cluster: EmbeddedCluster, stream: str, ids: range, *, end: bool = False) -> None:
    async def publish() -> None:
        connection = await nats.connect(cluster.nats_url)
        js = connection.jetstream()
        try:
            await js.add_stream(name=stream, subjects=[stream.lower()])
            for i in ids:
                row = order(i)
                message = {**row, "at": row["at"].isoformat(sep=" ")}
                await js.publish(stream.lower(), json.dumps(message).encode())
            if end:
                await js.publish(stream.lower(), b"", headers={"Penstock-End-Of-Stream": "true"})
        finally:
            await connection.close()

    asyncio.run(publish())


@dataclass
class Case:
    """One job: its tables, where its rows go."""

    cluster: EmbeddedCluster
    client: ClusterClient
    history: Path
    stream: str
    out: Path
    job_id: str = ""

    @property
    def orders(self) -> str:
        return (
            "CREATE TABLE orders (id BIGINT, customer BIGINT, price BIGINT, at TIMESTAMP(3), "
            "WATERMARK FOR at AS at - INTERVAL '1' MINUTE) WITH ('connector' = 'hybrid', "
            f"'history.connector' = 'filesystem', 'history.path' = '{self.history}', "
            f"'history.format' = 'parquet', 'live.connector' = 'nats', 'live.stream' = '{self.stream}', "
            "'live.format' = 'json', 'live.scan.bounded.mode' = 'marker', "
            f"'switch.column' = 'id', 'switch.at' = '{SEAM}');"
        )

    def keyed(self, name: str, columns: str) -> str:
        """A SQLite table, written by its first column."""
        with sqlite3.connect(self.out / "out.db") as db:
            db.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({columns.split()[0]}))")
        return (
            f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({columns.split()[0]}) NOT ENFORCED) WITH "
            f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{self.out}/out.db', 'table-name' = '{name}');"
        )

    def files(self, name: str, columns: str) -> str:
        return (
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', "
            f"'path' = '{self.out}/{name}', 'format' = 'parquet');"
        )

    def submit(self, sql: str, **config: str) -> str:
        self.job_id = self.client.submit({"name": self.stream, "sql": sql, "config": {**CONFIG, **config}})
        return self.job_id

    def phase(self) -> str:
        return str(self.client.job(self.job_id).get("phase"))

    def finished(self) -> dict[str, Any]:
        job = self.client.wait(self.job_id)
        self.client.raise_if_failed(self.job_id, job)
        return job

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return until_true(condition, what, lambda: story_of(self.client, self.job_id))

    def stored(self, name: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.out / "out.db") as db:
            return sorted(db.execute(f"SELECT * FROM {name}").fetchall())

    def filed(self, name: str) -> list[tuple[Any, ...]]:
        table = ds.dataset(self.out / name, format="parquet").to_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def case(
    cluster: EmbeddedCluster, client: ClusterClient, history: Path, tmp_path: Path, request: Any
) -> Case:
    stream = "".join(c for c in request.node.name.upper() if c.isalnum())[:24]
    published(cluster, stream, range(SEAM - 300, THERE))
    return Case(cluster, client, history, stream, tmp_path)


def expected(sql: str) -> list[tuple[Any, ...]]:
    orders = ALL  # noqa: F841  DuckDB finds it by name
    return sorted(duckdb.sql(sql).fetchall())


GROUPED = "SELECT customer, COUNT(*), SUM(price), MIN(price), MAX(price) FROM orders GROUP BY customer"


def test_an_aggregation_goes_on_from_the_history(case: Case) -> None:
    sink = case.keyed("totals", "customer BIGINT, n BIGINT, total BIGINT, low BIGINT, high BIGINT")
    case.submit(f"{case.orders} {sink} INSERT INTO totals {GROUPED};")
    case.until(lambda: case.phase() == "restored from the backfill on Spark", "the stream to take over")
    published(case.cluster, case.stream, range(THERE, ROWS), end=True)
    job = case.finished()
    assert job["restored-checkpoint"] == 1
    assert job["attempt"] == 2
    assert case.stored("totals") == expected(GROUPED)
