"""Writes rows through a connector's sink writer, from Spark's tasks.

Each task stages its rows and returns the committables of one checkpoint. Spark may run a task twice; the
driver commits the committables of one run of each task. So a connector that writes exactly once does so on
Spark, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import get_connector
from penstock.operators.constraints import Constraints
from penstock.spark.errors import carried
from penstock.spark.tables import TableWrite, source_context
from penstock.spark.typemap import from_spark_array
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.connectors.base import SourceContext


@dataclass
class Committables(WriterCommitMessage):
    """The committables of the rows that one task staged."""

    items: list[bytes]
    rows: int


class Writer(DataSourceArrowWriter):
    """Writes the partitions of a frame to a connector's sink, and commits them together."""

    def __init__(self, table: TableWrite) -> None:
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition; return its committables."""
        return next(carried(self._write(iterator), f"sink '{self._table.spec.connector}'"))

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[WriterCommitMessage]:
        from pyspark import TaskContext

        context = TaskContext.get()
        subtask, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        # The attempt is the number of this run of the task, so that rows staged by a run that lost are never
        # taken for those of the run that won.
        ctx = source_context(self._table, subtask, attempt=attempt)
        schema = self._table.spec.schema
        batches = (
            Batch(
                schema, [from_spark_array(x, rb.column(i)) for i, x in enumerate(schema.types)], num_rows=rb.num_rows
            )
            for rb in iterator
        )  # fmt: skip
        yield asyncio.run(stage(self._table, ctx, batches))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the committables of all partitions."""
        items = [item for m in messages if isinstance(m, Committables) for item in m.items]
        next(carried(iter(self._commit(items)), f"sink '{self._table.spec.connector}'"))

    def _commit(self, items: list[bytes]) -> Iterator[None]:
        yield asyncio.run(commit(self._table, items))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: staged rows stay invisible, and are deleted when the job's other tasks have ended."""


async def stage(table: TableWrite, ctx: SourceContext, batches: Iterator[Batch]) -> Committables:
    """Write all rows and cut them as one checkpoint, not yet committed."""
    spec = table.spec
    writer = get_connector(spec.connector).writer(TableInfo(spec.schema, spec.options))
    constraints = Constraints(spec)
    rows = 0
    try:
        await writer.open(ctx, [])
        for batch in map(constraints.enforce, batches) if constraints else batches:
            if not batch.num_rows:
                continue
            if not writer.ready():
                await writer.wait_ready()
            writer.write(batch)
            rows += batch.num_rows
            await asyncio.sleep(0)
        await writer.flush()
        items = await writer.begin_checkpoint(table.checkpoint)
        return Committables(items, rows)
    finally:
        await writer.close()


async def commit(table: TableWrite, items: list[bytes]) -> None:
    """Makes the rows that the tasks staged visible. The call may be repeated."""
    spec = table.spec
    if table.manifest is not None:
        items = await _agreed(table.manifest, items)
    writer = get_connector(spec.connector).writer(TableInfo(spec.schema, spec.options))
    ctx = source_context(table, 0, attempt=_LAST_ATTEMPT, parallelism=1)
    try:
        await writer.open(ctx, items)
        await writer.commit(table.checkpoint)
        await writer.finish()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await writer.close()


async def abandon(table: TableWrite) -> None:
    """Deletes rows that the tasks staged and that will not be committed."""
    spec = table.spec
    writer = get_connector(spec.connector).writer(TableInfo(spec.schema, spec.options))
    await writer.abandon(source_context(table, 0, attempt=_LAST_ATTEMPT, parallelism=1))


async def _agreed(manifest: str, items: list[bytes]) -> list[bytes]:
    """The committables to commit under this manifest: ``items``, unless the manifest already exists with
    others."""
    from penstock.store.open import open_store

    folder, _, name = manifest.rpartition("/")
    store = open_store(f"file://{folder}")
    if await store.create(name, msgspec.json.encode(items)):
        return items
    return msgspec.json.decode(await store.get(name), type=list[bytes])


async def committed(table: TableWrite) -> bool:
    """Whether the manifest exists. If so, the committables in it are committed once more."""
    assert table.manifest is not None
    from penstock.store.open import open_store

    folder, _, name = table.manifest.rpartition("/")
    try:
        await open_store(f"file://{folder}").get(name)
    except KeyError:
        return False
    await commit(table, [])
    return True


#: An attempt above every task's number: the commit counts as newer than every staged row.
_LAST_ATTEMPT = 999_999
