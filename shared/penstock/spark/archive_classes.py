"""Makes the archive of Spark's classes (``class_archive``): ``python -m penstock.spark.archive_classes``.

The program starts a Spark and runs queries of each kind there. When Spark ends, Java writes the classes that
it loaded into the archive.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.errors import ExternalError, PenstockError
from penstock.reserving import port_of, reserve_port
from penstock.spark.class_archive import archive_path
from penstock.spark.java import java_environment
from penstock.spark.server import TOKEN_VARIABLE, command
from penstock.spark.session import open_session

#: Long enough for a slow machine: the limit only keeps the program from hanging for ever.
_TIMEOUT_S = 1800.0


def make() -> Path:
    """Makes the archive anew, which takes about a minute, and returns its path. Raises ExternalError if Spark
    does not start, and JavaMissingError if there is no Java."""
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    partly = path.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as name:
        folder, token = Path(name), secrets.token_hex(16)
        (folder / "tmp").mkdir()
        held = reserve_port(), reserve_port()
        port, ui_port = map(port_of, held)
        argv = command(port, ui_port, 2, "1g", folder, java=f"-XX:ArchiveClassesAtExit={partly}")
        env = {**os.environ, **java_environment(), TOKEN_VARIABLE: token, "SPARK_LOCAL_IP": "127.0.0.1"}
        env.setdefault("PYSPARK_PYTHON", sys.executable)
        env.pop("SPARK_HOME", None)
        log = folder / "log"
        with log.open("wb") as out:
            server = subprocess.Popen(argv, env=env, cwd=folder, stdout=out, stderr=out)
        try:
            _wait(port, server, log)
            os.environ[TOKEN_VARIABLE] = token
            _warm(f"sc://localhost:{port}", folder)
            server.send_signal(signal.SIGTERM)  # Java writes the archive when it ends
            server.wait(_TIMEOUT_S)
        finally:
            server.kill()
            server.wait()
            for one in held:
                one.close()
        if not partly.exists():
            raise ExternalError(
                "Java wrote no archive of Spark's classes",
                expected="a Java with class data sharing",
                got=log.read_text(errors="replace")[-2000:],
            )
    partly.rename(path)
    return path


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise ExternalError("Spark did not start", got=log.read_text(errors="replace")[-2000:])


def _warm(url: str, folder: Path) -> None:
    """Runs queries of each kind, so that Java loads the classes that they need."""
    from pyspark.sql import functions as f

    spark: Any = open_session(url)
    rows = spark.range(2_000).withColumn("k", f.col("id") % 7).withColumn("s", f.col("id").cast("string"))
    rows.write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    grouped = read.groupBy("k").agg(f.count("*"), f.sum("id"), f.max("s"), f.collect_list("id"))
    grouped.orderBy("k").toArrow()
    read.join(read.select("k").distinct(), "k", "left").union(read).limit(5).toArrow()
    read.selectExpr("*", "row_number() OVER (PARTITION BY k ORDER BY id) AS n").filter("n = 1").toArrow()
    read.mapInArrow(_same, read.schema).write.csv(str(folder / "csv"))
    spark.stop()


def _same(batches: Any) -> Any:
    yield from batches


def main() -> None:
    """The entry point: makes the archive, unless it exists already."""
    try:
        path = archive_path()
        sys.stdout.write(f"{path} is there\n" if path.exists() else f"made {make()}\n")
    except PenstockError as err:
        sys.exit(str(err))


if __name__ == "__main__":
    main()
