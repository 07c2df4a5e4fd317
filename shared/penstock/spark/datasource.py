"""Penstock's connectors as Spark Python data sources: one adapter for all of them.

``penstock`` reads any connector: its enumerator's splits are Spark's partitions, its reader's
batches go over as Arrow. It writes through any sink writer (``datasink``). Everything about
the table travels in one option.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from penstock.connectors.base import SourceContext, Split, TableInfo
from penstock.connectors.registry import get_connector
from penstock.errors import RecordError
from penstock.metrics import MetricGroup
from penstock.spark.drive import load_job_functions
from penstock.spark.errors import carried
from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.typemap import column_names, spark_type, to_spark_array
from penstock.types.batch import Batch
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.jobgraph.specs import SinkSpec, SourceSpec
    from penstock.spark.drive import JobContext

NAME = "penstock"
_OPTION = "penstock.table"
#: Bits of ``__arrival`` below a split's number.
ARRIVAL_BITS = 40


@dataclass(frozen=True)
class TableRead:
    """What a reader is to give: the source's columns, ``__time``, ``__arrival``."""

    spec: SourceSpec
    uid: str
    job_id: str
    job: JobContext
    time: bool = False
    arrival: bool = False
    #: Of an unbounded read: where its position log lies.
    log_url: str | None = None

    @property
    def schema(self) -> Schema:
        metadata = get_connector(self.spec.connector).metadata
        fields = [Field(key, metadata[key]) for key in self.spec.metadata]
        return Schema((*self.spec.schema.select(self.spec.projection).fields, *fields))


@dataclass(frozen=True)
class TableWrite:
    """``manifest``: a file that says what is to be committed, written before it is: what is
    repeated after that only commits again. ``checkpoint``: what is written at once is one, and
    a batch job has one a sink; who writes into a table again counts on."""

    spec: SinkSpec
    uid: str
    job_id: str
    job: JobContext
    manifest: str | None = None
    checkpoint: int = 1


def register(session: SparkSession) -> None:
    """Make the adapter known to a session, once."""
    if session not in _known:
        session.dataSource.register(PenstockDataSource)
        _known.add(session)


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def read_table(session: SparkSession, table: TableRead) -> DataFrame:
    register(session)
    return session.read.format(NAME).schema(_struct(table)).option(_OPTION, _encoded(table)).load()


def read_stream(session: SparkSession, table: TableRead) -> DataFrame:
    register(session)
    return session.readStream.format(NAME).schema(_struct(table)).option(_OPTION, _encoded(table)).load()


def write_table(frame: DataFrame, table: TableWrite) -> None:
    """Runs the job; returns when everything is committed."""
    register(frame.sparkSession)
    frame.write.format(NAME).option(_OPTION, _encoded(table)).mode("append").save()


def _encoded(table: TableRead | TableWrite) -> str:
    return base64.b64encode(cloudpickle.dumps(table)).decode()


def _struct(table: TableRead) -> st.StructType:
    schema = table.schema
    fields = [
        st.StructField(n, spark_type(x)) for n, x in zip(column_names(schema), schema.types, strict=True)
    ]
    hidden = [TIME] * table.time + [ARRIVAL] * table.arrival
    return st.StructType([*fields, *(st.StructField(n, st.LongType()) for n in hidden)])


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def _table(self) -> Any:
        return cloudpickle.loads(base64.b64decode(self.options[_OPTION]))

    def schema(self) -> st.StructType:
        return _struct(self._table())

    def reader(self, schema: st.StructType) -> DataSourceReader:
        return _Reader(self._table())

    def streamReader(self, schema: st.StructType) -> DataSourceStreamReader:
        from penstock.spark.stream_source import StreamReader

        return StreamReader(self._table())

    def writer(self, schema: st.StructType, overwrite: bool) -> DataSourceArrowWriter:  # type: ignore[override]
        from penstock.spark.datasink import Writer

        return Writer(self._table())


# -- reading ---------------------------------------------------------------------------------------


class SplitPartition(InputPartition):
    """One split; ``number``: its place among all."""

    def __init__(self, number: int, split: bytes) -> None:
        super().__init__(number)
        self.number, self.split = number, split


class _Reader(DataSourceReader):
    def __init__(self, table: TableRead) -> None:
        self._table = table

    def partitions(self) -> Sequence[InputPartition]:
        # A generator so that an error is carried to the driver whole.
        return next(carried(iter(self._partitions()), self._where()))

    def _partitions(self) -> Iterator[list[InputPartition]]:
        splits = discover(self._table)
        yield [SplitPartition(i, msgspec.json.encode(s)) for i, s in enumerate(splits)] or [
            SplitPartition(0, b"")
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        assert isinstance(partition, SplitPartition)
        return carried(self._read(partition), self._where())

    def _where(self) -> str:
        return f"source '{self._table.spec.connector}'"

    def _read(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        if not partition.split:
            return
        load_job_functions(self._table.job)
        split = msgspec.json.decode(partition.split, type=Split)
        names = [*column_names(self._table.schema), *self._hidden_names()]
        at = 0
        for batch in read_split(self._table, split, partition.number):
            arrays = [to_spark_array(c) for c in batch.columns]
            if self._table.time:
                arrays.append(
                    pa.nulls(len(batch), pa.int64()) if batch.times is None else pa.array(batch.times)
                )
            if self._table.arrival:
                first = (partition.number << ARRIVAL_BITS) + at
                arrays.append(pa.array(np.arange(first, first + len(batch), dtype=np.int64)))
            at += len(batch)
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _hidden_names(self) -> list[str]:
        return [TIME] * self._table.time + [ARRIVAL] * self._table.arrival


async def _discover(table: TableRead, known: set[str]) -> list[Split]:
    spec = table.spec
    enumerator = get_connector(spec.connector).enumerator(TableInfo(spec.schema, spec.options))
    try:
        return list(await enumerator.discover(source_context(table, 0), known))
    finally:
        await enumerator.close()


def discover(table: TableRead, known: set[str] | None = None) -> list[Split]:
    """The splits that there are now, but for those ``known``."""
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
        return reader.poll()  # some readers start tasks while polled

    return loop.run_until_complete(poll())


def source_context(
    table: TableRead | TableWrite, subtask: int, *, attempt: int = 1, parallelism: int | None = None
) -> SourceContext:
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
        schema=spec.schema,
        projection=() if sink else spec.projection,
        metadata=() if sink else spec.metadata,
        pushed={} if sink else spec.pushed,
        config=table.job.config,
        metrics=MetricGroup(),
        on_error=spec.on_error,
        run=run,
        now_ms=lambda: time.time_ns() // 1_000_000,
        bad_record=_bad_record(spec.on_error),
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
