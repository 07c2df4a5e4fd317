"""A source whose rows Spark computes.

Spark's client blocks and has threads of its own. So it runs in a process beside the slot's
(``penstock.spark.driver``), which ends with the slot. Rows come back in Arrow batches. At most a few batches
wait here; then the driver has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.cancelling import end_tasks
from penstock.config import SPARK_MASTER, SPARK_REMOTE
from penstock.errors import ExternalError, InternalError, SnapshotError, error_from_dict
from penstock.functions.function_table import TaskFunctions
from penstock.messages.spark import Done, DriverJob, Failed, FromDriver, Progress, Rows
from penstock.operators.drivers import SourceDriver
from penstock.operators.operator import MIN_WATERMARK
from penstock.runtime.artifacts import JobFunctions
from penstock.runtime.spark_driver import Driver
from penstock.runtime.spark_report import LogTail, Reporter
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobgraph.specs import SparkQuerySpec
    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import RestoredState

_decoder: msgspec.msgpack.Decoder[FromDriver] = msgspec.msgpack.Decoder(FromDriver)
#: The most batches that wait to be polled.
_WAITING = 8
_LAST_WORDS_BYTES = 2_000
#: The steps of the driver before a query can run. Spark itself may still be starting.
_BEFORE_QUERIES = ("starting", "connecting")


class SparkQueryOperator(SourceDriver):
    """Emits the rows of a Spark query. State: the list ``ended`` (one item when all rows are emitted).

    A query cannot continue in its middle, so a snapshot from there is refused with SnapshotError.
    """

    def __init__(self, spec: SparkQuerySpec) -> None:
        super().__init__()
        self._spec = spec
        self._batches: asyncio.Queue[Batch] = asyncio.Queue(_WAITING)
        self._changed = asyncio.Event()
        self._progress = Progress(stage="starting")
        self._emitted = 0
        self._error: Exception | None = None
        self._done = False
        self._stopped = False
        self._driver: Driver | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        gauge = ctx.metrics.gauge
        gauge("sparkStarting", lambda: int(self._progress.stage in _BEFORE_QUERIES))
        gauge("sparkStages", lambda: self._progress.stages)
        gauge("sparkStagesCompleted", lambda: self._progress.stages_completed)
        gauge("sparkTasks", lambda: self._progress.tasks)
        gauge("sparkTasksCompleted", lambda: self._progress.tasks_completed)
        gauge("sparkTasksActive", lambda: self._progress.tasks_active)
        gauge("sparkTasksFailed", lambda: self._progress.tasks_failed)
        gauge("sparkBytesRead", lambda: self._progress.bytes_read)
        gauge("sparkRowsRead", lambda: self._progress.rows_read)
        gauge("sparkShuffleBytes", lambda: self._progress.shuffle_bytes)
        gauge("sparkSpilledBytes", lambda: self._progress.spilled_bytes)
        if restored is not None:
            states = restored.lists.get("query", [])
            if any(state == b"ended" for state in states):
                self._done = True
            elif any(int(state) > 0 for state in states):
                raise SnapshotError(
                    "a query of Spark cannot be resumed in the middle",
                    expected="a checkpoint of before its first row, or of after its last",
                    got=f"{max(int(s) for s in states)} rows were out",
                    where=ctx.name,
                    remedy="start the job anew",
                )

    async def start(self) -> None:
        if self._done:
            return
        job = self._job()
        spare = self.ctx.config.get("spark.server.driver", "") if job.server_pid else ""
        self._driver = driver = await Driver.open(spare, self.ctx.local_dir)
        logs = [str(driver.log_path), *([job.server_log] if job.server_log else [])]
        self._reporter = Reporter(self.ctx, map(LogTail, logs))
        with contextlib.suppress(ConnectionError):  # it has ended already, which is reported
            await driver.send(job)
        self._tasks = [
            asyncio.create_task(self._read(driver)),
            asyncio.create_task(self._reporter.run(lambda: self._progress)),
        ]

    def _job(self) -> DriverJob:
        ctx, spec, functions = self.ctx, self._spec, self.ctx.function
        functions = functions.table if isinstance(functions, TaskFunctions) else functions
        if not isinstance(functions, JobFunctions):
            raise InternalError(
                "a query on Spark runs in a process of its own, which loads the job's functions again",
                expected="JobFunctions",
                got=type(functions).__name__,
            )
        config = dict(ctx.config)
        url = SPARK_REMOTE.read(config) or SPARK_MASTER.read(config)
        own = not url
        if own:
            port = config.get("spark.server.port")
            url = f"sc://localhost:{port}" if port else "local[2]"
        return DriverJob(
            job_id=ctx.job_id,
            job_name=ctx.job_name,
            attempt=ctx.attempt,
            graph=spec.graph,
            sinks=spec.sinks,
            rows=spec.rows,
            backfill=spec.backfill,
            storage=ctx.storage,
            folder=str(ctx.local_dir),
            url=url,
            token=config.pop("spark.server.token", "") if own else "",
            server_pid=int(config.pop("spark.server.pid", 0)) if own else 0,
            server_log=config.pop("spark.server.log", "") if own else "",
            ui=config.pop("spark.server.ui", "") if own else "",
            config={k: v for k, v in config.items() if not k.startswith("spark.server.")},
            functions=functions.artifacts,
            python_path=functions.python_path,
        )

    async def _read(self, driver: Driver) -> None:
        error: Exception | None = None
        done = False
        try:
            while not done:
                done = await self._handle(_decoder.decode(await driver.frame()))
        except (asyncio.IncompleteReadError, ConnectionError):
            error = ExternalError(
                "the process that talks to Spark ended before the query did",
                got=await driver.outcome() + _last_words(driver.log_path),
                where=self.ctx.name,
                remedy="look for os._exit() and for crashes of native libraries in a Python step; where memory "
                "was short, the kernel's log names the process that it killed",
            )
        except Exception as err:
            error = err
        # This comes first: once ``_done`` is set, the task ends, and this coroutine with it.
        await self._reporter.write(self._progress)
        self._done, self._error = done, error
        self._changed.set()

    async def _handle(self, frame: FromDriver) -> bool:
        """Handles a frame. Returns whether it was the last one."""
        match frame:
            case Progress():
                self._progress = frame
            case Rows(data=data):
                with pa.ipc.open_stream(data) as reader:
                    for part in reader:
                        if part.num_rows:
                            await self._batches.put(Batch.from_arrow(self.ctx.output_schema, part))
                            self._changed.set()
            case Done():
                # Spark's last report may be older than the end of the query.
                now = self._progress
                self._progress = msgspec.structs.replace(
                    now, stages_completed=now.stages, tasks_completed=now.tasks, tasks_active=0
                )
                return True
            case Failed(error=error):
                raise error_from_dict(error)
            case _:
                raise InternalError(f"the driver says {frame!r}")
        return False

    # -- what the task asks --------------------------------------------------------------

    def poll(self) -> Batch | None:
        if self._stopped or self._batches.empty():
            return None
        batch = self._batches.get_nowait()
        self._emitted += batch.num_rows
        return batch

    async def wait(self) -> None:
        while self._batches.empty() and not self._done:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def ended(self) -> bool:
        return self._stopped or (self._done and self._batches.empty())

    def position(self, now_ms: int) -> tuple[int, bool]:
        return MIN_WATERMARK, False

    def stop_reading(self) -> None:
        self._stopped = True

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        state = b"ended" if self.ended() else str(self._emitted).encode()
        return OperatorSnapshot(lists={"query": [state]})

    async def stop(self) -> None:
        """Ends the query as well, by stopping the driver."""
        await end_tasks(self._tasks)
        if self._driver is not None:
            await self._driver.stop()


def _last_words(path: Path) -> str:
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _LAST_WORDS_BYTES))
        text = log.read().decode(errors="replace").strip()
    return f"; it said last:\n{text}" if text else ""
