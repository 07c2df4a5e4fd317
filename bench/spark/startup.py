"""Starting: a cold Spark step by step, and what a submit costs on a warm one."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import ExternalError

_LOOK_S = 0.01
_LIMIT_S = 300.0
#: What Spark's log says when ...
_MARKS = {
    "Java runs": "INFO",
    "SparkContext begins": "Running Spark version",
    "SparkContext is up": "Server created",
}

_CLIENT = """
import os, sys, time
marks = [("Python runs", time.time())]
from penstock.spark.engine import SparkJob
from penstock.spark.session import open_session
import pyspark.sql.connect.session
marks.append(("pyspark is imported", time.time()))
session = open_session(sys.argv[1])
marks.append(("session", time.time()))
from bench.spark.queries import planned
def run():
    sql = f'''CREATE TABLE t (k BIGINT) WITH ('connector' = 'filesystem', 'path' = '{sys.argv[2]}', 'format' = 'parquet');
      CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT COUNT(*) FROM t'''
    SparkJob(planned(sql), session).run()
run(); marks.append(("first job", time.time()))
run(); marks.append(("second job", time.time()))
for name, at in marks: print(name, at, sep="\\t")
"""


def cold_start() -> None:
    """Where the seconds go from nothing to a first job's end, as the task manager's Spark."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        folder = Path(scratch)
        _table(folder / "t")
        port, token = _free_port(), secrets.token_hex(16)
        environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
        log = folder / "server.log"
        started = time.time()
        with log.open("wb") as out:
            server = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.spark.server", "--port", str(port), "--ui-port",
                 str(_free_port()), "--cores", "2", "--memory", "2g", "--folder", str(folder)],
                env=environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        try:
            marks = [("start", started), *_server_marks(server, log, port)]
            began = time.time()
            client = subprocess.run(
                [sys.executable, "-c", _CLIENT, f"sc://localhost:{port}", str(folder / "t")],
                env=environment, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            told = [line.split("\t") for line in client.stdout.splitlines() if "\t" in line]
            after = [("the client is started", began), *((name, float(at)) for name, at in told)]
        finally:
            server.kill()
            server.wait()
    print("cold start, seconds           step   in all")
    for (_, before), (name, at) in itertools.pairwise(marks):
        print(f"{name:28} {at - before:6.2f} {at - started:8.2f}")
    print("\nits first client (a job's driver does this while Spark starts)")
    for (_, before), (name, at) in itertools.pairwise(after):
        print(f"{name:28} {at - before:6.2f} {at - began:8.2f}")


def _server_marks(server: subprocess.Popen[bytes], log: Path, port: int) -> Iterator[tuple[str, float]]:
    """When the log first says each of the marks, and when the server listens."""
    waiting = dict(_MARKS)
    deadline = time.time() + _LIMIT_S
    while server.poll() is None and time.time() < deadline:
        text = log.read_text(errors="replace")
        for name, mark in list(waiting.items()):
            if mark in text:
                del waiting[name]
                yield name, time.time()
        try:
            socket.create_connection(("localhost", port), 1).close()
        except OSError:
            time.sleep(_LOOK_S)
        else:
            yield "the Connect server listens", time.time()
            return
    raise ExternalError("Spark does not start", got=log.read_text(errors="replace")[-2000:])


def warm_submit(rounds: int) -> None:
    """Seconds from a submit to a cluster until Spark launches its first task, until a Python
    function in it is called, and to the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        folder = Path(scratch)
        _table(folder / "t")
        _function(folder)
        with (
            EmbeddedCluster(taskmanagers=1, slots=2) as cluster,
            ClusterClient(cluster.rest_url) as client,
        ):
            found = [_submit(client, folder, number) for number in range(rounds + 2)]
    print(f"from submit, seconds{'cold':>12}{'warm':>8}  (median of {rounds})")
    for number, what in enumerate(("first task on Spark", "first call of Python", "the end")):
        warm = statistics.median(seconds[number] for seconds in found[2:])
        print(f"{what:20}{found[0][number]:12.2f}{warm:8.2f}")


#: Nobody submits in the moment in which another job ends: a task manager makes a driver ready then.
_BETWEEN_S = 3.0


def _submit(client: ClusterClient, folder: Path, number: int) -> tuple[float, float, float]:
    sql = (
        f"CREATE TABLE t (k BIGINT) WITH ('connector' = 'filesystem', 'path' = '{folder / 't'}', 'format' = 'parquet');"
        "CREATE FUNCTION noted AS 'noted.noted' LANGUAGE PYTHON;"
        "CREATE TABLE o (k BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT noted(k) FROM t;"
    )
    mark = folder / "first"
    mark.unlink(missing_ok=True)
    time.sleep(_BETWEEN_S)
    started = time.time()
    job_id = client.submit(
        {
            "name": f"submit {number}",
            "sql": sql,
            "files": [str(folder)],
            "config": {"execution.engine": "spark"},
        }
    )
    client.raise_if_failed(job_id, client.wait(job_id))
    ended = time.time()
    [query] = client.spark(job_id)["queries"]
    task = min(stage["begun_ms"] for stage in query["progress"]["details"]) / 1000
    return task - started, float(mark.read_text()) - started, ended - started


def _function(folder: Path) -> None:
    (folder / "noted.py").write_text(
        "import os, time\nfrom penstock.api import udf, Types\n\n\n"
        "@udf(result_type=Types.LONG())\n"
        "def noted(k):\n"
        f"    if not os.path.exists({str(folder / 'first')!r}):\n"
        f"        with open({str(folder / 'first')!r}, 'w') as file:\n"
        "            file.write(str(time.time()))\n"
        "    return k\n"
    )


def _table(folder: Path) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"k": range(1000)}), folder / "0.parquet")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
