"""A job of history then live: Parquet on Spark, then JetStream from the state that it left.

Every test compares with DuckDB over all rows. The stream already holds the rows behind the
seam, and some before it, when the job is submitted; more are published while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import nats
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from examples.backfill import __main__ as example
from examples.flights.dataset import load
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError, PenstockError, UnsupportedError
from tests.e2e.support import (
    lend,
    python_processes,
    running_spark,
    spark_drivers,
    spark_pid,
    story_of,
    until_true,
)

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
def cluster(spark_cluster: EmbeddedCluster) -> EmbeddedCluster:
    return spark_cluster


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as client:
        yield client


def published(cluster: EmbeddedCluster, stream: str, ids: range, *, end: bool = False) -> None:
    async def publish() -> None:
        connection = await nats.connect(cluster.nats_url)
        js = connection.jetstream(timeout=60)
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


def consumed(cluster: EmbeddedCluster, subject: str) -> list[dict[str, Any]]:
    """All messages of a subject, as they stand in their stream."""

    async def read() -> list[dict[str, Any]]:
        connection = await nats.connect(cluster.nats_url)
        try:
            subscription = await connection.jetstream().subscribe(subject, ordered_consumer=True)
            messages = [await subscription.next_msg(timeout=60)]
            # A push consumer counts as pending only what it has not sent yet: each message says
            # how many are behind it, the consumer's own count is too late.
            while messages[-1].metadata.num_pending:
                messages.append(await subscription.next_msg(timeout=60))
            return [json.loads(message.data) for message in messages]
        finally:
            await connection.close()

    return asyncio.run(read())


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
    def hold(self) -> Path:
        return self.out / "hold"

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
        self.job_id = self.client.submit(
            {"name": self.stream, "sql": sql, "config": {**CONFIG, **config},
             "files": [str(self.out)]}
        )  # fmt: skip
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
    big = (
        "CREATE TABLE big (id BIGINT, price BIGINT) WITH ('connector' = 'nats', 'stream' = 'BIG', "
        "'subject' = 'big', 'format' = 'json', 'stream.create' = 'true', "
        "'sink.delivery-guarantee' = 'exactly-once');"
    )
    case.submit(
        f"{case.orders} {sink} {big} BEGIN STATEMENT SET; INSERT INTO totals {GROUPED}; "
        "INSERT INTO big SELECT id, price FROM orders WHERE price > 90; END;"
    )
    case.until(lambda: case.phase() == "restored from the backfill on Spark", "the stream to take over")
    published(case.cluster, case.stream, range(THERE, ROWS), end=True)
    job = case.finished()
    assert job["restored-checkpoint"] >= 1
    assert case.stored("totals") == expected(GROUPED)
    rows = [(row["id"], row["price"]) for row in consumed(case.cluster, "big")]
    assert sorted(rows) == expected("SELECT id, price FROM orders WHERE price > 90")


EVERYTHING = {
    "totals": GROUPED,
    "latest": (
        "SELECT customer, id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY id DESC) "
        "AS rn FROM orders) WHERE rn = 1"
    ),
    "again": (
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer "
        "AND b.id = a.id + 1150"
    ),
    "hours": (
        "SELECT customer, window_start AS w, COUNT(*) AS n, SUM(price) AS total "
        "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)) "
        "GROUP BY customer, window_start, window_end"
    ),
}
IN_DUCKDB = {
    **EVERYTHING,
    "hours": "SELECT customer, date_trunc('hour', \"at\") AS w, COUNT(*), SUM(price) FROM orders GROUP BY ALL",
}


def everything(case: Case) -> str:
    """An aggregation and a deduplication into SQLite; a join and windows into files, exactly
    once. One row of the history waits as long as the file ``hold`` is there."""
    (case.out / "waiting.py").write_text(
        "import os, time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.BOOLEAN())\n"
        "def let_pass(id):\n"
        f"    while id == {SEAM - 1} and os.path.exists({str(case.hold)!r}):\n"
        "        time.sleep(0.05)\n"
        "    return True\n"
    )
    sinks = [
        case.keyed("totals", "customer BIGINT, n BIGINT, total BIGINT, low BIGINT, high BIGINT"),
        case.keyed("latest", "customer BIGINT, id BIGINT, price BIGINT"),
        case.files("again", "id BIGINT, other BIGINT"),
        case.files("hours", "customer BIGINT, w TIMESTAMP(3), n BIGINT, total BIGINT"),
    ]
    view = (
        "CREATE FUNCTION let_pass AS 'waiting.let_pass' LANGUAGE PYTHON; "
        "CREATE VIEW passed AS SELECT * FROM orders WHERE let_pass(id);"
    )
    inserts = [f"INSERT INTO {name} {sql};" for name, sql in EVERYTHING.items()]
    text = " ".join(inserts).replace("FROM orders", "FROM passed").replace("JOIN orders", "JOIN passed")
    text = text.replace("TABLE orders,", "TABLE passed,")
    return " ".join([case.orders, *sinks, view, "BEGIN STATEMENT SET;", text, "END;"])


def check_everything(case: Case) -> None:
    for name in EVERYTHING:
        got = case.stored(name) if name in ("totals", "latest") else case.filed(name)
        assert got == expected(IN_DUCKDB[name]), name


def test_cancel_ends_the_backfill(case: Case) -> None:
    case.hold.touch()
    case.submit(everything(case))
    case.until(lambda: (case.client.job(case.job_id).get("spark") or {}).get("tasks-active"), "Spark's tasks")
    assert case.phase() == "backfilling on Spark"
    with pytest.raises(PenstockError, match="still backfilling"):
        case.client.savepoint(case.job_id, str(case.out))
    case.client.cancel(case.job_id)
    assert case.client.wait(case.job_id)["state"] == "CANCELED"
    assert not list(case.out.glob("hours/part-*"))


def test_the_users_traceback_comes_first(case: Case) -> None:
    (case.out / "prices.py").write_text(
        "from penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def share(price):\n"
        "    return 100 // (price - 7)\n"
    )
    # A query that streams on Spark leaves its daemons until Spark ends; the tests before may have run one.
    before = set(python_processes(case.client)) if running_spark(case.client) else set()
    case.submit(
        f"{case.orders} {case.files('out', 'customer BIGINT, n BIGINT')} "
        "CREATE FUNCTION share AS 'prices.share' LANGUAGE PYTHON; "
        "INSERT INTO out SELECT customer, share(price) FROM orders;"
    )
    with pytest.raises(FunctionError) as caught:
        case.finished()
    text = str(caught.value)
    assert "ZeroDivisionError" in text
    assert "return 100 // (price - 7)" in text
    assert "org.apache.spark" not in text
    case.until(lambda: not set(python_processes(case.client)) - before, "its Python processes to end")


def test_what_cannot_be_backfilled_is_refused_at_once(case: Case) -> None:
    with pytest.raises(UnsupportedError, match="backfill into the sink 'collect'"):
        case.submit(f"{case.orders} SELECT id FROM orders;")


def test_the_example(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All flights of the year, counted once: by airline, and in weeks of which one goes over the seam."""
    lend(monkeypatch, example, cluster)
    assert example.main(["--out", str(tmp_path / "out")]) == 0
    found = example.result(tmp_path / "out")
    flights = load().flights
    counts = Counter(flights["carrier"].to_pylist())
    late = Counter(flights.filter(pc.greater(flights["dep_delay"], 15.0))["carrier"].to_pylist())
    assert {c: (n, k) for c, n, k, _ in found.carriers} == {c: (n, late[c]) for c, n in counts.items()}
    assert sum(n for _, _, n, _ in found.weeks) == len(flights)
    assert sum(k for _, _, _, k in found.weeks) == sum(late.values())
    assert len({(week, origin) for week, origin, _, _ in found.weeks}) == len(found.weeks)


# The last: those before it share one Spark, which this one kills.
def test_killed_in_the_middle_of_each_half(case: Case) -> None:
    """The driver, Spark itself, the master at the seam, the task manager behind it: each row
    counts once."""
    client = case.client
    case.hold.touch()
    case.submit(everything(case))
    busy = "Spark to read the history"
    case.until(lambda: (client.job(case.job_id).get("spark") or {}).get("tasks-active"), busy)
    for pid in case.until(lambda: spark_drivers(case.cluster), "the driver"):
        with contextlib.suppress(ProcessLookupError):  # a spare one, that ended meanwhile
            os.kill(pid, signal.SIGKILL)
    case.until(lambda: client.job(case.job_id)["attempt"] >= 2, "the backfill to begin anew")
    case.until(lambda: (client.job(case.job_id).get("spark") or {}).get("tasks-active"), busy)
    os.kill(spark_pid(client), signal.SIGKILL)
    case.until(lambda: client.job(case.job_id)["attempt"] >= 3, "the backfill to begin anew again")
    case.until(lambda: (client.job(case.job_id).get("spark") or {}).get("tasks-active"), busy)
    assert case.phase() == "backfilling on Spark"
    assert not list(case.out.glob("hours/part-*"))
    case.hold.unlink()
    case.until(lambda: case.phase() == "restored from the backfill on Spark", "the stream to take over")
    os.kill(case.cluster.child("jobmanager-0").pid, signal.SIGKILL)
    case.until(lambda: client.job(case.job_id)["state"] == "RUNNING", "it to run")
    os.kill(case.cluster.child("taskmanager-0").pid, signal.SIGKILL)
    case.until(lambda: client.job(case.job_id)["attempt"] >= 5, "a restart behind the seam")
    published(case.cluster, case.stream, range(THERE, ROWS), end=True)
    job = case.finished()
    assert job["restored-checkpoint"] >= 1
    check_everything(case)
