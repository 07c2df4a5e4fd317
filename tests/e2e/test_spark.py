"""Bounded jobs on the Spark of a task manager, and on a standing one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.api.client import TERMINAL, ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError, PenstockError, SpecError
from penstock.reserving import port_of, reserve_port
from penstock.spark.class_archive import java_options
from penstock.spark.session import JAVA_OPTIONS
from tests.e2e.jars import jar_of_subclass
from tests.e2e.support import files_below, python_processes, spark_drivers, spark_pid, until_true

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ROWS = 20_000
ON_SPARK = {"execution.engine": "spark"}


@pytest.fixture(scope="module")
def cluster(spark_cluster: EmbeddedCluster) -> EmbeddedCluster:
    return spark_cluster


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as client:
        yield client


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Counter[int]]:
    """(DDL of a Parquet table, orders by customer)"""
    folder = tmp_path_factory.mktemp("orders")
    customers = [i * i % 7 for i in range(ROWS)]
    for part in range(4):
        ids = range(part, ROWS, 4)
        table = pa.table({"id": pa.array(ids, pa.int64()), "customer": pa.array([customers[i] for i in ids])})
        pq.write_table(table, folder / f"{part}.parquet")
    ddl = (
        "CREATE TABLE orders (id BIGINT, customer BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet');"
    )
    return ddl, Counter(customers)


def run(client: ClusterClient, sql: str, **config: str) -> dict[str, Any]:
    job_id = client.submit({"sql": sql, "config": {**ON_SPARK, **config}})
    job = client.wait(job_id)
    client.raise_if_failed(job_id, job)
    return job


def start(client: ClusterClient, sql: str) -> str:
    return client.submit({"sql": sql, "config": ON_SPARK})


def test_rows_written_by_spark(client: ClusterClient, orders: Any, tmp_path: Path) -> None:
    ddl, counts = orders
    out = tmp_path / "counts"
    job = run(
        client,
        f"{ddl} CREATE TABLE counts (customer BIGINT, n BIGINT) WITH "
        f"('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet');"
        "INSERT INTO counts SELECT customer, COUNT(*) FROM orders GROUP BY customer;",
    )
    rows = ds.dataset(out, format="parquet").to_table().to_pylist()
    assert {row["customer"]: row["n"] for row in rows} == counts
    assert len(rows) == len(counts)
    assert job["plan"]["nodes"][0]["description"].startswith("Spark")
    assert job["spark"]["tasks"] == job["spark"]["tasks-completed"] > 0
    assert job["spark"]["rows-read"] == ROWS
    [query] = client.spark(job["jid"])["queries"]
    assert {stage["status"] for stage in query["progress"]["details"]} == {"COMPLETE"}
    assert "SparkContext" in query["log"]


def test_rows_through_a_sink_of_penstock(
    client: ClusterClient, cluster: EmbeddedCluster, orders: Any, tmp_path: Path
) -> None:
    """JetStream, exactly once: nothing is visible before the query is over."""
    import asyncio
    import json

    import nats

    ddl, counts = orders
    run(
        client,
        f"{ddl} CREATE TABLE counts (customer BIGINT, n BIGINT) WITH ('connector' = 'nats', 'stream' = 'COUNTS', "
        "'subject' = 'counts', 'stream.create' = 'true', 'format' = 'json');"
        "INSERT INTO counts SELECT customer, COUNT(*) FROM orders GROUP BY customer;",
    )

    async def read() -> list[dict[str, int]]:
        connection = await nats.connect(cluster.nats_url)
        try:
            subscription = await connection.jetstream().pull_subscribe("counts", stream="COUNTS")
            messages = await subscription.fetch(len(counts), timeout=60)
            return [json.loads(message.data) for message in messages]
        finally:
            await connection.close()

    assert {row["customer"]: row["n"] for row in asyncio.run(read())} == counts


def test_the_users_traceback_comes_first(client: ClusterClient, orders: Any, tmp_path: Path) -> None:
    ddl, _ = orders
    module = tmp_path / "prices.py"
    module.write_text(
        "from penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def price(customer):\n"
        "    return 100 // (customer - 2)\n"
    )
    spec = {
        "sql": f"{ddl} CREATE FUNCTION price AS 'prices.price' LANGUAGE PYTHON; "
        "CREATE TABLE out (p BIGINT) WITH ('connector' = 'blackhole'); "
        "INSERT INTO out SELECT price(customer) FROM orders;",
        "config": ON_SPARK,
        "files": [str(tmp_path)],
    }
    job_id = client.submit(spec)
    with pytest.raises(FunctionError) as caught:
        client.raise_if_failed(job_id, client.wait(job_id))
    text = str(caught.value)
    assert "ZeroDivisionError" in text
    assert "return 100 // (customer - 2)" in text
    assert "org.apache.spark" not in text
    # The same rows would bring the same error: the default strategy does not try again.
    [entry] = client.exceptions(job_id)["exceptionHistory"]["entries"]
    assert "trying again cannot help" in entry["notRestarted"]


@pytest.mark.parametrize("jobs", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_python_processes_end_with_their_job(
    client: ClusterClient, orders: Any, tmp_path: Path, jobs: int
) -> None:
    ddl, counts = orders
    (tmp_path / "more.py").write_text(
        "from penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def more(customer):\n"
        "    return customer + 1\n"
    )
    for number in range(jobs):
        out = tmp_path / f"out{number}"
        job_id = client.submit(
            {
                "sql": f"{ddl} CREATE FUNCTION more AS 'more.more' LANGUAGE PYTHON; CREATE TABLE o (m BIGINT, n BIGINT) "
                f"WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet');"
                "INSERT INTO o SELECT more(customer), COUNT(*) FROM orders GROUP BY more(customer);",
                "config": ON_SPARK,
                "files": [str(tmp_path)],
            }
        )
        client.raise_if_failed(job_id, client.wait(job_id))
        rows = ds.dataset(out, format="parquet").to_table().to_pylist()
        assert {row["m"] - 1: row["n"] for row in rows} == counts
        until_true(lambda: not python_processes(client), "the job's Python processes end")


def test_cancel_ends_the_query(client: ClusterClient, orders: Any, tmp_path: Path) -> None:
    ddl, _ = orders
    out = tmp_path / "out"
    module = tmp_path / "slowly.py"
    module.write_text(
        "import time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def slowly(number):\n"
        "    time.sleep(0 if number % 4 else 0.05)\n"  # the rows of one file
        "    return number\n"
    )
    job_id = client.submit(
        {
            "sql": f"{ddl} CREATE FUNCTION slowly AS 'slowly.slowly' LANGUAGE PYTHON; "
            f"CREATE TABLE out (p BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv'); "
            "INSERT INTO out SELECT slowly(id) FROM orders;",
            "config": ON_SPARK,
            "files": [str(tmp_path)],
        }
    )
    until_true(lambda: files_below(out), "Spark's tasks stage rows")
    assert python_processes(client)
    client.cancel(job_id)
    assert client.wait(job_id)["state"] == "CANCELED"
    until_true(lambda: not python_processes(client), "the job's Python processes end")
    # The driver does so after the tasks have ended, and a cancel does not wait for it for ever.
    until_true(lambda: not files_below(out), "what was staged to be deleted", lambda: files_below(out))
    # Its tasks are gone: the next query has all cores, and ends.
    run(
        client,
        f"{ddl} CREATE TABLE out (p BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO out SELECT id FROM orders;",
    )


def test_what_a_killed_driver_leaves_on_spark_is_swept(
    cluster: EmbeddedCluster, client: ClusterClient, orders: Any, tmp_path: Path
) -> None:
    """Its query would go on for a while, and its Python processes would stay as long as Spark."""
    ddl, counts = orders
    (tmp_path / "held.py").write_text(
        "import os, time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def held(customer):\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "        time.sleep(0.02)\n"
        "    return customer\n"
    )
    job_id = client.submit(
        {
            "sql": f"{ddl} CREATE FUNCTION held AS 'held.held' LANGUAGE PYTHON; "
            f"CREATE TABLE o (c BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'o'}', "
            "'format' = 'csv'); INSERT INTO o SELECT held(customer) FROM orders;",
            "config": {**ON_SPARK, "restart-strategy.type": "none"},
            "files": [str(tmp_path)],
        }
    )
    until_true(lambda: python_processes(client), "the query calls Python")
    spark = spark_pid(client)
    for driver in spark_drivers(cluster):
        with contextlib.suppress(ProcessLookupError):  # a spare one, that ended meanwhile
            os.kill(driver, signal.SIGKILL)
    with pytest.raises(PenstockError, match="the process that talks to Spark ended before the query did"):
        client.wait(job_id)
    # By the driver that is made ready for the next job: nobody has to submit one.
    until_true(lambda: not python_processes(client), "what it left ends", lambda: python_processes(client))
    out = tmp_path / "counts"
    run(
        client,
        f"{ddl} CREATE TABLE counts (customer BIGINT, n BIGINT) WITH ('connector' = 'filesystem', "
        f"'path' = '{out}', 'format' = 'parquet'); "
        "INSERT INTO counts SELECT customer, COUNT(*) FROM orders GROUP BY customer;",
    )
    rows = ds.dataset(out, format="parquet").to_table().to_pylist()
    assert {row["customer"]: row["n"] for row in rows} == counts
    assert spark_pid(client) == spark, "Spark itself goes on"


def test_a_dead_spark_restarts_the_job(client: ClusterClient, orders: Any, tmp_path: Path) -> None:
    ddl, counts = orders
    out = tmp_path / "counts"
    module = tmp_path / "pause.py"
    module.write_text(
        "import os, time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def pause(customer):\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "        time.sleep(0.02)\n"
        "    return customer\n"
    )
    job_id = client.submit(
        {
            "sql": f"{ddl} CREATE FUNCTION pause AS 'pause.pause' LANGUAGE PYTHON; "
            "CREATE TABLE counts (customer BIGINT, n BIGINT) WITH "
            f"('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet');"
            "INSERT INTO counts SELECT pause(customer), COUNT(*) FROM orders GROUP BY pause(customer);",
            "config": ON_SPARK,
            "files": [str(tmp_path)],
        }
    )
    until_true(lambda: (client.job(job_id).get("spark") or {}).get("tasks-active"), "Spark runs its tasks")
    os.kill(spark_pid(client), signal.SIGKILL)
    until_true(lambda: client.job(job_id)["attempt"] > 1, "the job begins anew")
    (tmp_path / "go").touch()
    assert client.wait(job_id)["state"] == "FINISHED"
    rows = ds.dataset(out, format="parquet").to_table().to_pylist()
    assert {row["customer"]: row["n"] for row in rows} == counts
    assert len(rows) == len(counts)


def test_a_users_jar_goes_with_the_session(client: ClusterClient, tmp_path: Path) -> None:
    """A database's driver that only ``spark.jars`` has, through Connect: written, read, and named when missing."""
    driver = "penstock.tests.OnlyInTheJar"
    jar = jar_of_subclass(tmp_path, driver, "org.apache.derby.jdbc.EmbeddedDriver")
    out = tmp_path / "out"
    ddl = (
        "CREATE TABLE goods (id BIGINT, name STRING) WITH ('connector' = 'jdbc', 'table-name' = 'goods', "
        f"'url' = 'jdbc:derby:{tmp_path}/db;create=true', 'driver' = '{driver}'); "
        f"CREATE TABLE out (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv'); "
    )
    write = f"{ddl} INSERT INTO goods VALUES (1, 'a'), (2, 'b');"
    with pytest.raises(SpecError, match=f"Spark has no Java class '{driver}'") as caught:
        run(client, write, **{"restart-strategy.type": "none"})
    assert "set spark.jars to the jar's path" in (caught.value.remedy or "")
    run(client, write, **{"spark.jars": str(jar)})
    run(client, f"{ddl} INSERT INTO out SELECT id + 1, name FROM goods;", **{"spark.jars": str(jar)})
    assert sorted("".join(p.read_text() for p in out.glob("part-*")).split()) == ["2,a", "3,b"]


def test_a_stream_on_spark_goes_on_where_it_stood(
    client: ClusterClient, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Structured Streaming: its checkpoints lie with the job's, so a restart repeats nothing."""
    import asyncio

    import nats

    async def publish(first: int, last: int) -> None:
        connection = await nats.connect(cluster.nats_url)
        try:
            stream = connection.jetstream(timeout=60)
            await stream.add_stream(name="NUMBERS", subjects=["numbers"])
            for number in range(first, last):
                await stream.publish("numbers", b'{"v": %d}' % number)
        finally:
            await connection.close()

    out = tmp_path / "doubled"

    def written() -> list[int]:
        rows = ds.dataset(out, format="parquet").to_table() if out.exists() else None
        return sorted(rows["w"].to_pylist()) if rows else []

    asyncio.run(publish(0, 300))
    job_id = start(
        client,
        "CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'nats', 'stream' = 'NUMBERS', 'subject' = 'numbers', "
        "'scan.startup.mode' = 'earliest', 'format' = 'json');"
        f"CREATE TABLE doubled (w BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet');"
        "INSERT INTO doubled SELECT v * 2 FROM numbers;",
    )
    until_true(lambda: len(written()) == 300, "the first rows are written", lambda: client.exceptions(job_id))
    os.kill(spark_pid(client), signal.SIGKILL)
    until_true(lambda: client.job(job_id)["attempt"] > 1, "the job begins anew")
    asyncio.run(publish(300, 400))
    until_true(lambda: len(written()) >= 400, "the rest is written", lambda: client.exceptions(job_id))
    assert written() == [2 * number for number in range(400)]
    client.cancel(job_id)
    assert client.wait(job_id)["state"] == "CANCELED"
    until_true(lambda: not python_processes(client), "those of the sessions that Spark cloned end, too")


def test_a_master_that_is_not_there(client: ClusterClient, orders: Any) -> None:
    ddl, _ = orders
    with pytest.raises(PenstockError, match="no Spark answers at sc://"):
        run(
            client,
            f"{ddl} CREATE TABLE out (p BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO out SELECT id FROM orders;",
            **{"spark.remote": "sc://127.0.0.1:9", "restart-strategy.type": "none"},
        )


def quick_java() -> str:
    """Java's options that Penstock gives a Spark of its own: without them the optimizing compiler takes most of the
    time of a job that lasts seconds."""
    return f"{JAVA_OPTIONS} {java_options()}".rstrip()


def there(url: str) -> dict[str, str]:
    """Sends a job to the standing cluster."""
    return {
        "spark.master": url,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick_java(),
        "spark.driver.extraJavaOptions": quick_java(),
    }


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """(URL of a master, its two workers): Spark's own standalone cluster as processes here."""
    import pyspark

    from penstock.spark.java import java_environment

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    env = {
        **os.environ,
        **java_environment(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
    }
    env.pop("SPARK_HOME", None)
    held = reserve_port()
    port = port_of(held)
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        started.append(
            subprocess.Popen(
                [launcher, *argv],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    try:
        package = "org.apache.spark.deploy"
        start(f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until_true(lambda: listens(port), "the master listens")
        for _ in range(2):
            start(
                f"{package}.worker.Worker",
                url,
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "-c",
                "1",
                "-m",
                "600m",
            )
        yield url, started[1:]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        held.close()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_history_on_a_standing_cluster(client: ClusterClient, standing: Any, tmp_path: Path) -> None:
    """A backfill by the workers of a master: the stream goes on here from the state they made."""
    (url, _), seam = standing, 3_000
    rows = pa.table({"id": range(5_000), "customer": [i * i % 7 for i in range(5_000)]})
    for part, (first, last) in {"history": (0, seam + 100), "live": (seam - 100, 5_000)}.items():
        (tmp_path / part).mkdir()
        pq.write_table(rows.slice(first, last - first), tmp_path / part / "0.parquet")
    with sqlite3.connect(tmp_path / "out.db") as db:
        db.execute("CREATE TABLE counts (customer BIGINT PRIMARY KEY, n BIGINT)")
    parts = "".join(
        f"'{part}.connector' = 'filesystem', '{part}.path' = '{tmp_path / part}', '{part}.format' = 'parquet', "
        for part in ("history", "live")
    )
    job_id = client.submit(
        {
            "sql": "CREATE TABLE orders (id BIGINT, customer BIGINT) WITH ('connector' = 'hybrid', "
            f"{parts}'switch.column' = 'id', 'switch.at' = '{seam}');"
            "CREATE TABLE counts (customer BIGINT, n BIGINT, PRIMARY KEY (customer) NOT ENFORCED) WITH "
            f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{tmp_path}/out.db', 'table-name' = 'counts');"
            "INSERT INTO counts SELECT customer, COUNT(*) FROM orders GROUP BY customer;",
            "config": {
                "execution.engine": "streaming",
                "execution.backfill.engine": "spark",
                "parallelism.default": "2",
                **there(url),
            },
        }
    )
    job = client.wait(job_id)
    client.raise_if_failed(job_id, job)
    assert job["restored-checkpoint"] >= 1
    with sqlite3.connect(tmp_path / "out.db") as db:
        assert Counter(dict(db.execute("SELECT * FROM counts"))) == Counter(rows["customer"].to_pylist())


def test_a_standing_cluster_loses_a_worker(
    client: ClusterClient, standing: Any, orders: Any, tmp_path: Path
) -> None:
    """One setting sends the job there; what a dead worker had done is done again."""
    (url, workers), (ddl, counts) = standing, orders
    out, module = tmp_path / "counts", tmp_path / "package" / "pause.py"
    module.parent.mkdir()
    module.write_text(
        "import os, time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def pause(customer):\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "        time.sleep(0.02)\n"
        "    return customer\n"
    )
    job_id = client.submit(
        {
            "sql": f"{ddl} CREATE FUNCTION pause AS 'pause.pause' LANGUAGE PYTHON; "
            "CREATE TABLE counts (customer BIGINT, n BIGINT) WITH "
            f"('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet');"
            "INSERT INTO counts SELECT pause(customer), COUNT(*) FROM orders GROUP BY pause(customer);",
            "config": {
                **ON_SPARK,
                **there(url),
                "spark.sql.files.minPartitionNum": "4",
            },
            "files": [str(module.parent)],
        }
    )

    def active() -> int:
        job = client.job(job_id)
        assert job["state"] not in TERMINAL, client.exceptions(job_id)["root-exception"]
        return (job.get("spark") or {}).get("tasks-active", 0)

    until_true(lambda: active() >= 2, "both workers run a task", lambda: client.job(job_id))
    os.killpg(workers[0].pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    job = client.wait(job_id)
    client.raise_if_failed(job_id, job)
    assert job["attempt"] == 1  # Spark itself repeats what is lost
    rows = ds.dataset(out, format="parquet").to_table().to_pylist()
    assert {row["customer"]: row["n"] for row in rows} == counts
    assert len(rows) == len(counts)
