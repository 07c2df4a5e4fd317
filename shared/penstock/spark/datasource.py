"""Penstock's connectors as Spark Python data sources: one adapter for all of them.

The data source ``penstock`` reads any connector: the enumerator's splits are Spark's partitions, and the
reader's batches go to Spark as Arrow. It writes through any sink writer (``datasink``). Everything that it
needs to know of the table travels in one option.
"""

from __future__ import annotations

import base64
import weakref
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

from penstock.connectors.base import Split
from penstock.spark.datasink import Writer
from penstock.spark.errors import carried
from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.partition_program import load_job_functions
from penstock.spark.stream_source import StreamReader
from penstock.spark.tables import ARRIVAL_BITS, TableRead, TableWrite, discover, read_split
from penstock.spark.typemap import column_names, spark_type, to_spark_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


NAME = "penstock"
_OPTION = "penstock.table"


def register(session: SparkSession) -> None:
    """Registers the adapter with a session, once."""
    if session not in _known:
        session.dataSource.register(PenstockDataSource)
        _known.add(session)


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def read_table(session: SparkSession, table: TableRead) -> DataFrame:
    """A bounded table as a DataFrame."""
    register(session)
    return session.read.format(NAME).schema(_struct(table)).option(_OPTION, _encoded(table)).load()


def read_stream(session: SparkSession, table: TableRead) -> DataFrame:
    """A table as a streaming DataFrame."""
    register(session)
    return session.readStream.format(NAME).schema(_struct(table)).option(_OPTION, _encoded(table)).load()


def write_table(frame: DataFrame, table: TableWrite) -> None:
    """Writes a frame into a table. Returns when everything is committed."""
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
    """The Spark data source whose tables are Penstock's connectors. Its option holds the pickled table."""

    @classmethod
    def name(cls) -> str:
        """The name under which the data source is registered."""
        return NAME

    def _table(self) -> Any:
        return cloudpickle.loads(base64.b64decode(self.options[_OPTION]))

    def schema(self) -> st.StructType:
        """The columns of the table, hidden ones included."""
        return _struct(self._table())

    def reader(self, schema: st.StructType) -> DataSourceReader:
        """The reader of a bounded table."""
        return _Reader(self._table())

    def streamReader(self, schema: st.StructType) -> DataSourceStreamReader:
        """The reader of a stream."""
        return StreamReader(self._table())

    def writer(self, schema: st.StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of a table."""
        return Writer(self._table())


# -- reading ---------------------------------------------------------------------------------------


class SplitPartition(InputPartition):
    """One split. ``number``: its position among all splits."""

    def __init__(self, number: int, split: bytes) -> None:
        super().__init__(number)
        self.number, self.split = number, split


class _Reader(DataSourceReader):
    def __init__(self, table: TableRead) -> None:
        self._table = table

    def partitions(self) -> Sequence[InputPartition]:
        # The method is a generator, so that ``carried`` brings an error to the driver whole.
        return next(carried(iter(self._partitions()), self._where()))

    def _partitions(self) -> Iterator[list[InputPartition]]:
        splits = discover(self._table)
        yield [SplitPartition(i, msgspec.json.encode(s)) for i, s in enumerate(splits)] or [
            SplitPartition(0, b"")
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
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
