"""Compiles scans: to Spark's own reader if it gives the same rows, otherwise to our connector."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.connectors.registry import get_connector
from penstock.functions.expr import InputRef, input_refs, shift_refs
from penstock.jobgraph import specs as s
from penstock.spark import files, jdbc
from penstock.spark.datasource import read_table
from penstock.spark.drive import runner
from penstock.spark.expressions import native
from penstock.spark.frames import Frame
from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.partition_program import Program, Step
from penstock.spark.stateless import projected
from penstock.spark.tables import ARRIVAL_BITS, TableRead, discover, read_split
from penstock.spark.typemap import column_names, struct_type, to_spark_array
from penstock.spark.universal import positional
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.graph import Node
    from penstock.spark.partition_program import JobContext


#: Connectors some of whose tables Spark reads itself.
_NATIVE = {"filesystem": files.scan, "jdbc": jdbc.scan}


def scan(session: SparkSession, node: Node, spec: s.SourceSpec, job: JobContext, job_id: str) -> Frame:
    """The rows of a source: by Spark's own reader, in this process, or by the connector in Spark's tasks."""
    table = TableRead(spec, node.node.uid, job_id, job, node.wants_time, node.wants_arrival)
    native = _NATIVE.get(spec.connector)
    frame = None if native is None else native(session, table)
    if frame is None and get_connector(spec.connector).in_process:
        frame = _in_process(session, table)
    if frame is None:
        frame = Frame(read_table(session, table), table.schema, table.time, table.arrival)
    return computed(frame, node, spec, job)


def computed(frame: Frame, node: Node, spec: s.SourceSpec, job: JobContext) -> Frame:
    """The table's computed columns over the columns that were read."""
    if spec.computed is None:
        return frame.renamed(node.output)
    made = projected(frame, None, spec.computed, node.output)
    return made if made is not None else evaluated(frame, node, spec, job)


def evaluated(frame: Frame, node: Node, spec: s.SourceSpec, job: JobContext) -> Frame:
    """The table's computed columns by our own evaluator. The hidden columns stay."""
    assert spec.computed is not None
    return calc_in_python(
        frame, s.CalcSpec(projections=tuple(spec.computed)), node.output, node.node.uid, node.name, job
    )


def calc_in_python(frame: Frame, spec: Any, output: t.Schema, uid: str, name: str, job: JobContext) -> Frame:
    """A Calc by our own evaluator, with ``__arrival`` as one more column. Spark applies the filter if it can,
    and only the columns that are read go to Python."""
    if spec.condition is not None:
        test = native(spec.condition, frame.columns())
        if test is not None:
            frame = frame.over(frame.df.filter(test))
            spec = msgspec.structs.replace(spec, condition=None)
    frame, spec = _only_read(frame, spec)
    incoming, outgoing = frame.schema, output
    if frame.arrival:
        long = t.BigIntType()
        incoming = t.Schema((*incoming.fields, t.Field("arrival", long)))
        outgoing = t.Schema((*outgoing.fields, t.Field("arrival", long)))
        if spec.projections is not None:
            spec = msgspec.structs.replace(
                spec, projections=(*spec.projections, InputRef(len(frame.schema), long))
            )
    step = Step(spec, uid, name, (incoming,), outgoing)
    program = Program((step,), job, timed=frame.time, out_timed=frame.time)
    rows = positional(frame, *([ARRIVAL] if frame.arrival else []))
    names, types = program.layout()
    df = rows.mapInArrow(runner(program), struct_type(types, names))
    if frame.arrival:
        df = df.withColumnRenamed(names[len(output)], ARRIVAL)
    return Frame(df, output, frame.time, frame.arrival)


def _only_read(frame: Frame, spec: Any) -> tuple[Frame, Any]:
    if spec.projections is None:
        return frame, spec
    exprs = [*spec.projections, *([spec.condition] if spec.condition is not None else [])]
    read = sorted(set().union(*(input_refs(e) for e in exprs)))
    if len(read) == len(frame.schema):
        return frame, spec
    at = {column: i for i, column in enumerate(read)}
    spec = msgspec.structs.replace(
        spec,
        projections=tuple(shift_refs(e, at) for e in spec.projections),
        condition=None if spec.condition is None else shift_refs(spec.condition, at),
    )
    schema = t.Schema(tuple(frame.schema.fields[c] for c in read))
    return frame.select(schema, [frame.column(c) for c in read]), spec


# -- rows at hand ----------------------------------------------------------------------------------


def values(session: SparkSession, node: Node, spec: s.CollectionSourceSpec) -> Frame:
    """The rows of a source whose rows are part of the plan."""
    with pa.ipc.open_stream(base64.b64decode(spec.data)) as reader:
        parts = [Batch.from_arrow(node.output, rb) for rb in reader]
    rows = Batch.concat(parts) if parts else Batch.empty(node.output)
    return of_batch(session, rows, time=node.wants_time, arrival=node.wants_arrival)


def of_batch(
    session: SparkSession, batch: Batch, *, time: bool = False, arrival: bool = False, first: Any = None
) -> Frame:
    """Rows that this process holds, as a frame."""
    schema, n = batch.schema, batch.num_rows
    arrays, names = [to_spark_array(c) for c in batch.columns], column_names(schema)
    types: list[t.LogicalType] = list(schema.types)
    if not names:
        arrays, names, types = [pa.nulls(n, pa.bool_())], ["__row"], [t.NullType()]
    if time:
        arrays.append(pa.nulls(n, pa.int64()) if batch.times is None else pa.array(batch.times))
        names.append(TIME)
        types.append(t.BigIntType())
    if arrival:
        order = np.arange(n, dtype=np.int64) if first is None else first
        arrays.append(pa.array(order))
        names.append(ARRIVAL)
        types.append(t.BigIntType())
    rows = pa.Table.from_arrays(arrays, names=names)
    return Frame(session.createDataFrame(rows, struct_type(types, names)), schema, time, arrival)


def _in_process(session: SparkSession, table: TableRead) -> Frame:
    """Reads a connector in this process, because its rows exist only here."""
    batches, order = [], []
    for number, split in enumerate(discover(table)):
        at = 0
        for batch in read_split(table, split, number):
            batches.append(batch)
            first = (number << ARRIVAL_BITS) + at
            order.append(np.arange(first, first + batch.num_rows, dtype=np.int64))
            at += batch.num_rows
    rows = Batch.concat(batches) if batches else Batch.empty(table.schema)
    rows = rows.with_columns(table.schema, rows.columns)
    known = np.concatenate(order) if order else np.zeros(0, np.int64)
    return of_batch(session, rows, time=table.time, arrival=table.arrival, first=known)
