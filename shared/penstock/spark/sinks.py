"""Sinks: rows come back to this process, are dropped, or go through a connector's writer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.base import TableInfo
from penstock.connectors.jdbc.connector import only_spark
from penstock.connectors.registry import get_connector
from penstock.operators.constraints import Constraints
from penstock.spark import jdbc
from penstock.spark.datasink import commit, committed, stage
from penstock.spark.datasource import write_table
from penstock.spark.errors import carried
from penstock.spark.frames import Frame
from penstock.spark.tables import TableWrite, source_context
from penstock.spark.typemap import from_spark_array, to_spark_array
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from penstock.jobgraph.specs import SinkSpec

#: Connectors that must write in the process that runs the job.
_HERE = ("print",)
_BATCH_ROWS = 16_384


def collected(frame: Frame) -> list[Batch]:
    """All rows of a frame, in its order."""
    if not len(frame.schema):
        return [Batch(frame.schema, [], num_rows=frame.df.count())]
    rows = frame.df.select(*frame.columns()).toArrow()
    return [batch_of(frame, rb) for rb in rows.to_batches(max_chunksize=_BATCH_ROWS) if rb.num_rows]


def batch_of(frame: Frame, rows: pa.RecordBatch) -> Batch:
    """The rows of an Arrow record batch from Spark as a batch of the frame's columns."""
    columns = [from_spark_array(x, rows.column(i)) for i, x in enumerate(frame.schema.types)]
    return Batch(frame.schema, columns, num_rows=rows.num_rows)


def stages(spec: SinkSpec) -> bool:
    """Whether a connector's writer stages the rows, and commits them at the end."""
    by_spark = spec.connector == "jdbc" and only_spark(spec.options)
    return spec.connector != "blackhole" and not by_spark


def write(frame: Frame, table: TableWrite) -> None:
    """Writes the rows of a frame into a table."""
    spec = table.spec
    if table.manifest is not None and asyncio.run(committed(table)):
        return
    frame = frame.renamed(spec.schema)
    if not stages(spec):
        frame = _checked(frame, spec)
    if spec.connector == "jdbc" and jdbc.write(frame, table):
        return
    rows = _spread(frame, spec)
    if spec.connector == "blackhole":
        rows.write.format("noop").mode("overwrite").save()
    elif spec.connector in _HERE or get_connector(spec.connector).in_process:
        asyncio.run(_write_here(frame, table))
    else:
        write_table(rows, table)


def _spread(frame: Frame, spec: SinkSpec) -> DataFrame:
    """The rows, so distributed over Spark's tasks that those meet in one that the connector wants in one writer."""
    rows = frame.df.select(*frame.columns())
    key = tuple(spec.schema.names[index] for index in spec.keys)
    table = TableInfo(spec.physical, spec.options, primary_key=key)
    together = get_connector(spec.connector).sink_shuffle(table)
    if together is None:
        return rows
    if not together:
        return rows.coalesce(1)
    return rows.repartition(*(frame.column(spec.schema.index(name)) for name in together))


def _checked(frame: Frame, spec: SinkSpec) -> Frame:
    """The frame with the table's checks applied, for Spark's own writers. Our writers check rows when they
    write."""
    constraints = Constraints(spec)
    if not constraints:
        return frame
    schema, names = spec.schema, frame.names

    def enforce(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            columns = [from_spark_array(x, batch.column(i)) for i, x in enumerate(schema.types)]
            kept = constraints.enforce(Batch(schema, columns, num_rows=batch.num_rows))
            arrays = [to_spark_array(c) for c in kept.columns]
            yield pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])

    plain = frame.df.select(*(c.alias(f"c{i}") for i, c in enumerate(frame.columns())))
    checked = plain.mapInArrow(lambda rows: carried(enforce(rows), f"sink '{spec.connector}'"), plain.schema)
    return Frame(checked.toDF(*names), schema)


async def _write_here(frame: Frame, table: TableWrite) -> None:
    batches = iter(collected(frame))
    staged = await stage(table, source_context(table, 0, parallelism=1), batches)
    await commit(table, staged.items)
