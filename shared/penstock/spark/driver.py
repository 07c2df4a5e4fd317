"""The process that talks to Spark for a slot: it receives a job, and sends rows and progress.

``python -m penstock.spark.driver --fd N`` reads a ``DriverJob`` from the socket N and answers with the
messages of ``penstock.messages.spark``. With ``--listen PATH`` the process first gets ready, then waits at
PATH for a slot to connect; meanwhile it ends the sessions that killed drivers have left on the Spark beside
PATH (``--server URL --server-pid N``). When the slot closes its half, or at SIGTERM, the query is interrupted
and the process ends.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from penstock.config import RESTART_STRATEGY
from penstock.errors import ExternalError, FunctionError, InternalError, PenstockError
from penstock.jobgraph.specs import SparkProgramSpec
from penstock.messages.spark import Done, DriverJob, Failed, FromDriver, Progress, Rows
from penstock.plan.engine import decode_content
from penstock.processes import ProcessHandle, die_with_parent, is_alive
from penstock.spark.reach import reached
from penstock.spark.server import TOKEN_VARIABLE
from penstock.spark.server_log import last_words, unready

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.jobgraph.graph import JobGraph
    from penstock.spark.engine import SparkJob
    from penstock.types.batch import Batch

_BATCH_ROWS = 16_384
#: While a driver waits for a job, it looks this often for sessions that killed drivers have left on Spark.
_SWEEP_EVERY_S = 3.0
#: Java may start slowly on a busy machine. A Java that ends is noticed at once, so the limit may be long.
_SERVER_START_S = 300.0


class Channel:
    """Sends frames to the slot. Several threads use it, because Spark's client reports progress from its own
    thread."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb")
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, frame: FromDriver) -> None:
        """Send a frame; any thread may call it."""
        data = self._encoder.encode(frame)
        with self._lock:
            self._file.write(len(data).to_bytes(4, "big") + data)
            self._file.flush()


def main() -> None:
    """The entry point of the driver process."""
    die_with_parent(int(os.environ.get("PENSTOCK_DRIVER_PARENT", os.getppid())))
    parser = argparse.ArgumentParser(description="Talk to Spark for a slot.")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--fd", type=int)
    how.add_argument("--listen", type=Path)
    parser.add_argument("--server")
    parser.add_argument("--server-pid", type=int)
    given = parser.parse_args()
    if given.listen is None:
        connection = socket.socket(fileno=given.fd)
    else:
        connection = _awaited(given.listen, given.server, given.server_pid)
    channel = Channel(os.dup(connection.fileno()))
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        job = msgspec.json.decode(_received(connection), type=DriverJob)
        threading.Thread(target=_until_closed, args=(connection,), name="slot", daemon=True).start()
        # The folder holds the code that is shipped to Spark, which reads it as long as the query runs.
        with tempfile.TemporaryDirectory(prefix="spark-driver-", dir=job.folder or None) as folder:
            _run(job, channel, Path(folder))
        channel.send(Done())
    except PenstockError as err:
        channel.send(Failed(error=err.to_dict()))
    except KeyboardInterrupt:
        channel.send(Failed(error=InternalError("the query was cancelled").to_dict()))
    except Exception as err:
        from penstock.spark.errors import translated

        channel.send(Failed(error=translated(err).to_dict()))
    # Spark's client leaves threads behind, which would keep a normal exit waiting.
    sys.stderr.flush()
    os._exit(0)


def _awaited(path: Path, server: str, server_pid: int) -> socket.socket:
    """Imports everything that takes time, waits for one slot to connect, and returns the connection."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        importlib.import_module("pyspark.sql.connect.session")
        for name in ("engine", "outputs", "packages", "progress", "session", "errors", "leftovers"):
            importlib.import_module(f"penstock.spark.{name}")
        listening.settimeout(_SWEEP_EVERY_S)
        while True:
            _sweep(path.parent, server, server_pid)
            with contextlib.suppress(TimeoutError):
                connection, _ = listening.accept()
                break
    path.unlink()
    return connection


def _received(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        return file.read(int.from_bytes(file.read(4), "big"))


def _until_closed(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupted(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(job: DriverJob, channel: Channel, folder: Path) -> None:
    sys.path[:0] = job.python_path
    graph = msgspec.structs.replace(
        decode_content(job.graph), functions=job.functions, python_path=job.python_path, config=job.config
    )
    channel.send(Progress(stage="connecting"))
    if job.server_pid:
        _await_server(job)
        _watch_server(job, channel)
        os.environ[TOKEN_VARIABLE] = job.token
    else:
        reached(job.url)
    from penstock.spark.leftovers import Hold, interrupt_others
    from penstock.spark.packages import ship
    from penstock.spark.session import open_session
    from penstock.spark.workers import end_workers_of

    server = Path(job.server_log).parent  # of the task manager's Spark
    url = job.url
    if job.server_pid:
        _sweep(server, url, job.server_pid)
        if job.backfill:
            interrupt_others(server, url, job.server_pid, job.job_id, _note)
    elif job.backfill:
        url = resumable(url, job.job_id)
    steps = any(isinstance(o.spec, SparkProgramSpec) for v in graph.vertices for o in v.operators)
    session = open_session(url, job.config, name=job.job_name, users_code=steps)
    if not job.server_pid:
        ship(session, job.python_path, folder)
        _drive(job, graph, session, channel)
        return
    hold = Hold(server, job.job_id, job.server_pid, session)
    try:
        _drive(job, graph, session, channel, hold.clones)
    finally:
        end_workers_of(job.server_pid, hold.sessions())
        hold.release()


def _sweep(server: Path, url: str, server_pid: int) -> None:
    from penstock.spark.leftovers import sweep

    ended = sweep(server, url, server_pid, _note)
    if ended:
        _note(f"ended Python processes that drivers which were killed had left on Spark: {ended}")


def _drive(
    job: DriverJob, graph: JobGraph, session: SparkSession, channel: Channel, clones: Path | None = None
) -> None:
    """``clones``: where a streaming query notes the session in which Spark runs it."""
    from penstock.spark.engine import SparkJob
    from penstock.spark.outputs import rows_of, run_sinks
    from penstock.spark.progress import watched

    if job.backfill:
        _backfill(job, graph, session, channel)
        return
    if not graph.bounded:
        from penstock.spark.streaming import run_stream

        with watched(session, channel.send, job.ui):
            run_stream(graph, session, job.job_id, job.storage.url if job.storage else "", clones)
        return
    made = SparkJob(graph, session, job_id=job.job_id)
    try:
        with watched(session, channel.send, job.ui):
            if job.rows is None:
                run_sinks(made, job.sinks)
            else:
                for batch in rows_of(made, job.sinks[0]):
                    channel.send(Rows(data=encode(batch)))
    except BaseException as err:
        if isinstance(err, KeyboardInterrupt):
            session.interruptAll() if job.url.startswith("sc://") else session.stop()
        elif isinstance(err, FunctionError):
            # A batch job has no checkpoint: a restart would read the same rows and fail in the same way.
            err.retryable = RESTART_STRATEGY.key in job.config
        _clean_up(job, session, made)
        raise
    finally:
        made.close()


def _clean_up(job: DriverJob, session: SparkSession, made: SparkJob) -> None:
    """Deletes the rows that a failed attempt staged. An error here does not replace the one that failed the
    job."""
    from penstock.spark.workers import end_workers

    try:
        if job.server_pid:
            end_workers(job.server_pid, session)  # first, because some may still write
        made.abandon()
    except Exception as err:
        sys.stderr.write(f"what the job staged is left: {type(err).__name__}: {err}\n")


def _backfill(job: DriverJob, graph: JobGraph, session: SparkSession, channel: Channel) -> None:
    from penstock.config import BACKFILL_EMIT
    from penstock.spark.backfill import Backfill
    from penstock.spark.errors import translated
    from penstock.spark.progress import watched
    from penstock.spark.session import apply_meaning

    assert job.storage is not None
    if job.url.startswith("sc://") and not job.server_pid:
        session.interruptAll()  # queries of a driver that was killed
    apply_meaning(session, graph.config)
    made = Backfill(
        graph, session, job_id=job.job_id, attempt=job.attempt, storage=job.storage,
        emit=BACKFILL_EMIT.read(job.config),
    )  # fmt: skip
    try:
        with watched(session, channel.send, job.ui):
            made.run(lambda doing: _note(f"backfill: {doing}"))
    except KeyboardInterrupt:
        session.interruptAll() if job.url.startswith("sc://") else session.stop()
        raise
    except Exception as err:
        raise translated(err) from err


def _note(text: str) -> None:
    """Writes a line into the driver's log."""
    sys.stderr.write(f"{text}\n")


def resumable(url: str, job_id: str) -> str:
    """The URL of a session on a standing Spark. All drivers of the job get the same session."""
    if not url.startswith("sc://"):
        return url
    own = f"session_id={uuid.uuid5(uuid.NAMESPACE_OID, job_id)}"
    return f"{url};{own}" if ";" in url else f"{url.rstrip('/')}/;{own}"


def encode(batch: Batch) -> bytes:
    """A batch in external Arrow types as one IPC stream."""
    rows = batch.to_arrow()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return out.getvalue().to_pybytes()


def _await_server(job: DriverJob) -> None:
    """Waits until the task manager's Spark listens. Raises ExternalError with Spark's last output if Spark
    ends."""
    address = urlsplit(job.url)
    deadline = time.monotonic() + _SERVER_START_S
    while True:
        try:
            socket.create_connection((address.hostname or "localhost", address.port or 0), 5).close()
            return
        except OSError as err:
            ended = not is_alive(job.server_pid)
            if not ended and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise unready(
                job.url, job.server_log, ended=ended, waited_s=_SERVER_START_S, refused=str(err)
            ) from None


def _watch_server(job: DriverJob, channel: Channel) -> None:
    """Ends this process when the server is dead, because Spark's client would try for minutes to reach it."""

    def watch() -> None:
        try:
            server = ProcessHandle(job.server_pid)
        except ProcessLookupError:
            pass  # The server has ended already.
        else:
            end = select.poll()
            end.register(server, select.POLLIN)
            end.poll()
        error = ExternalError(
            "the task manager's Spark ended in the middle of the query",
            got=last_words(job.server_log),
            where=job.server_log,
            remedy="the job begins anew; if memory was short, raise taskmanager.spark.memory",
        )
        channel.send(Failed(error=error.to_dict()))
        os._exit(1)

    threading.Thread(target=watch, name="spark-server", daemon=True).start()


if __name__ == "__main__":
    main()
