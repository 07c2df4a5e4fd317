"""Tables that Spark reads or writes through Penstock's connectors: the data that goes to the executors, and
how an executor reads a split."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceContext, Split, TableInfo
from penstock.connectors.registry import get_connector
from penstock.errors import RecordError
from penstock.metrics import MetricGroup
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import SinkSpec, SourceSpec
    from penstock.spark.partition_program import JobContext
    from penstock.types.batch import Batch

#: Bits of ``__arrival`` below a split's number.
ARRIVAL_BITS = 40


@dataclass(frozen=True)
class TableRead:
    """A table to read, and which columns the reader must give: the source's, ``__time``, ``__arrival``."""

    spec: SourceSpec
    uid: str
    job_id: str
    job: JobContext
    time: bool = False
    arrival: bool = False
    #: The URL of the position log of an unbounded read.
    log_url: str | None = None

    @property
    def schema(self) -> Schema:
        """The projected columns, then the metadata columns."""
        metadata = get_connector(self.spec.connector).metadata
        fields = [Field(key, metadata[key]) for key in self.spec.metadata]
        return Schema((*self.spec.schema.select(self.spec.projection).fields, *fields))


@dataclass(frozen=True)
class TableWrite:
    """A table to write to.

    ``manifest``: a file that lists what is to be committed. It is written before the commit, so that a
    repetition only commits again. ``checkpoint``: the number of the write, which counts as one checkpoint. A
    batch job has one for each sink; a writer that reopens a table continues its numbers.
    """

    spec: SinkSpec
    uid: str
    job_id: str
    job: JobContext
    manifest: str | None = None
    checkpoint: int = 1


async def _discover(table: TableRead, known: set[str]) -> list[Split]:
    spec = table.spec
    enumerator = get_connector(spec.connector).enumerator(TableInfo(spec.schema, spec.options))
    try:
        return list(await enumerator.discover(source_context(table, 0), known))
    finally:
        await enumerator.close()


def discover(table: TableRead, known: set[str] | None = None) -> list[Split]:
    """The splits that exist now, without those whose ids are in ``known``."""
    return asyncio.run(_discover(table, known or set()))


def read_split(table: TableRead, split: Split, number: int) -> Iterator[Batch]:
    """All rows of a bounded split, in order."""
    spec = table.spec
    reader = get_connector(spec.connector).reader(TableInfo(spec.schema, spec.options))
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_opened(reader, source_context(table, number), split))
        while True:
            fetched = _polled(loop, reader)
            if fetched is not None:
                yield fetched.batch
            elif split.id in reader.finished_splits():
                return
            else:
                loop.run_until_complete(reader.wait())
    finally:
        loop.run_until_complete(reader.close())
        loop.close()


async def _opened(reader: Any, ctx: SourceContext, split: Split) -> None:
    await reader.open(ctx)
    reader.add_splits([split])


def _polled(loop: asyncio.AbstractEventLoop, reader: Any) -> Any:
    async def poll() -> Any:
        return reader.poll()  # some readers start tasks when they are polled

    return loop.run_until_complete(poll())


def source_context(
    table: TableRead | TableWrite, subtask: int, *, attempt: int = 1, parallelism: int | None = None
) -> SourceContext:
    """The context of a connector that runs in a process of Spark."""
    spec: Any = table.spec
    sink = isinstance(table, TableWrite)

    async def run(call: Any) -> Any:
        return call()

    return SourceContext(
        job_id=table.job_id,
        uid=table.uid,
        subtask_index=subtask,
        parallelism=subtask + 1 if parallelism is None else parallelism,
        attempt=attempt,
        options=spec.options,
        schema=spec.physical if sink else spec.schema,
        projection=() if sink else spec.projection,
        metadata=spec.metadata,
        pushed={"mode": spec.mode, "keys": list(spec.keys)} if sink else spec.pushed,
        config=table.job.config,
        metrics=MetricGroup(reported=False),
        on_error=spec.on_error,
        run=run,
        now_ms=lambda: time.time_ns() // 1_000_000,
        bad_record=_bad_record(spec.on_error),
        gathered=True,
    )


def _bad_record(policy: str) -> Any:
    def handle(error: Exception, record: bytes | None, where: str) -> None:
        if policy == "fail":
            if isinstance(error, RecordError):
                error.where = error.where or where
                if record is not None and error.got is None:
                    error.got = repr(record[:200])
            raise error
        # Spark keeps the workers' standard error with the task's log.
        sys.stderr.write(f"penstock: a bad record was left out ({where}): {error}\n")

    return handle
