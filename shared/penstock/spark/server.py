"""The warm Spark of a task manager: a Spark Connect server on this machine.

``python -m penstock.spark.server --port P --ui-port U --cores N --memory 2g`` becomes the server: the process
is replaced, so that its owner watches and ends one process id. The server listens on the loopback address
only, and answers only clients that know the token in ``SPARK_CONNECT_AUTHENTICATE_TOKEN``. Spark's own status
API, also on the loopback address and read-only, reports its stages.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.spark.class_archive import java_options
from penstock.spark.java import java_environment
from penstock.spark.server_log import STARTS
from penstock.spark.session import JAVA_OPTIONS, PYTHON_DAEMON

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: A query ends this long after its client is gone.
_ABANDONED = "20s"


def command(
    port: int, ui_port: int, cores: int, memory: str, folder: Path, java: str | None = None
) -> list[str]:
    """The command that starts the server. ``folder``: for Spark's scratch files and warehouse. ``java``:
    options of Java; None: the options for the archive of Spark's classes."""
    import pyspark

    settings = {
        "spark.ui.port": str(ui_port),
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "500",
        "spark.ui.retainedTasks": "10000",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.execute.manager.detachedTimeout": _ABANDONED,
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "2m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.maxResultSize": "0",
        **PYTHON_DAEMON,
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(8 * cores),
    }
    home = Path(pyspark.__file__).parent
    argv = [str(home / "bin" / "spark-submit"), "--master", f"local[{cores}]", "--driver-memory", memory]
    for key, value in settings.items():
        argv += ["--conf", f"{key}={value}"]
    # Only Java's quick compiler is used: the server starts in half the time. Long jobs lose little, because
    # most of their time goes into Spark's generated code over whole partitions.
    more = java_options() if java is None else java
    argv += ["--driver-java-options", f"{JAVA_OPTIONS} {more} -Djava.io.tmpdir={folder / 'tmp'}"]
    return [*argv, "--name", "penstock", "--class", _CLASS, "spark-internal"]


def main() -> None:
    """The entry point of the server process."""
    parser = argparse.ArgumentParser(description="Become a Spark Connect server.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ui-port", type=int, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--memory", default="2g", help="heap of the Java process, e.g. 2g")
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    sys.stderr.write(f"{STARTS}\n")
    sys.stderr.flush()
    try:
        os.environ.update(java_environment())
        argv = command(given.port, given.ui_port, given.cores, given.memory, given.folder)
    except PenstockError as err:
        sys.exit(str(err))
    except ModuleNotFoundError as err:
        sys.exit(f"Spark is not installed ({err}); pip install 'penstock[spark]'")
    # Temporary files go here instead of the machine's folder, because Java and killed Python workers leave
    # files behind.
    temporary = given.folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    os.chdir(given.folder)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.pop("SPARK_HOME", None)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # only this machine may reach the status API
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
