"""Runs an unbounded job as Structured Streaming: one query for each sink, with checkpoints in a folder.

Operators without state are Spark's own or run over Arrow batches, as in batch mode. Operators with state are
ours, through ``transformWithState`` (``stream_state``). Sources are our connectors with a position log
(``stream_source``). A micro-batch is written through our sinks and committed once, by its number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as st

from penstock.config import CHECKPOINT_INTERVAL_MS
from penstock.jobgraph import specs as s
from penstock.messages.layout import spark_stream_prefix
from penstock.plan.engine import SPARK_CHECKPOINTS, check_stream_folder
from penstock.spark import sources, universal
from penstock.spark.coverage import check_streaming
from penstock.spark.datasource import read_stream
from penstock.spark.engine import SparkJob
from penstock.spark.errors import translated
from penstock.spark.frames import Frame, col, micros
from penstock.spark.graph import TIME
from penstock.spark.leftovers import note_clone
from penstock.spark.partition_program import Program
from penstock.spark.session import apply_meaning
from penstock.spark.sinks import write
from penstock.spark.stream_state import GroupProcessor, packer, unpacker
from penstock.spark.tables import TableRead, TableWrite
from penstock.spark.typemap import struct_type

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from penstock.jobgraph.graph import JobGraph
    from penstock.spark.graph import Node

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_DEFAULT_TRIGGER_MS = 1_000
_RT = "__rowtime"
_ASK_S = 1


class SparkStreamJob(SparkJob):
    """An unbounded job on a session. ``checkpoint``: a folder (path or ``file:`` URL) that all processes of
    Spark can reach. A job that is started again with this folder continues from its last micro-batch."""

    def __init__(
        self,
        graph: JobGraph,
        session: SparkSession,
        *,
        job_id: str,
        checkpoint: str,
        clones: Path | None = None,
    ) -> None:
        check_streaming(graph)
        super().__init__(graph, session, job_id=job_id, checked=True)
        check_stream_folder(checkpoint)
        self.checkpoint = checkpoint.removeprefix("file://").rstrip("/")
        self._clones = clones
        for node in self.nodes:
            node.wants_arrival = False

    def start(self) -> list[StreamingQuery]:
        """Starts a query for every sink."""
        apply_meaning(self.session, self.graph.config)
        self.session.conf.set(_PROVIDER, ROCKSDB)
        queries = []
        try:
            for number, node in enumerate(n for n in self.nodes if isinstance(n.spec, s.SinkSpec)):
                queries.append(self._start(node, number))
        except Exception as err:
            for query in queries:
                query.stop()
            raise translated(err) from err
        return queries

    def _start(self, node: Node, number: int) -> StreamingQuery:
        assert isinstance(node.spec, s.SinkSpec)
        frame = self.input(node, 0).renamed(node.spec.schema)
        frame = frame.with_hidden(time=False, arrival=False)
        interval = CHECKPOINT_INTERVAL_MS.read(self.graph.config) or _DEFAULT_TRIGGER_MS
        folder = f"{self.checkpoint}/sinks/{number}"
        each = _each_batch(node.spec, node.node.uid, self.job_id, self.context, folder, self._clones)
        return (
            frame.df.writeStream.queryName(f"{self.job_id}-{number}")
            .option("checkpointLocation", f"{folder}/spark")
            .trigger(processingTime=f"{interval} milliseconds")
            .outputMode("append")
            .foreachBatch(each)
            .start()
        )

    # -- compiling -------------------------------------------------------------------------------

    def _scan(self, node: Node, spec: s.SourceSpec) -> Frame:
        table = TableRead(spec, node.node.uid, self.job_id, self.context, time=node.wants_time)
        # Every sink's query reads the source by itself, so each query has a position log of its own.
        table = replace(
            table, log_url=f"file://{self.checkpoint}/sources/{self._reading_for}/{node.node.uid}"
        )
        frame = Frame(read_stream(self.session, table), table.schema, table.time)
        frame = sources.computed(frame, node, spec, self.context)
        return self._watermarked(frame, spec.watermark)

    def _watermarked(self, frame: Frame, watermark: s.WatermarkSpec | None) -> Frame:
        if watermark is None:
            return frame
        if watermark.rowtime is None:
            at = F.timestamp_micros(col(TIME))
        else:
            type_ = frame.schema.types[watermark.rowtime]
            at = F.timestamp_micros(micros(frame.column(watermark.rowtime), type_))
        df = frame.df.withColumn(_RT, at).withWatermark(_RT, f"{watermark.delay_us // 1000} milliseconds")
        return replace(frame, df=df)

    def outputs(self, node: Node) -> dict[str | None, Frame]:
        """The job's outputs, compiled separately for each sink: each sink is a query with its own log and state."""
        return self._compile(node)

    def input(self, node: Node, index: int) -> Frame:
        if isinstance(node.spec, s.SinkSpec):
            self._reading_for = node.node.uid
        return super().input(node, index)

    def _compile(self, node: Node) -> dict[str | None, Frame]:
        spec = node.spec
        made: Frame | None = None
        if isinstance(spec, s.SourceSpec):
            made = self._scan(node, spec)
        else:
            inputs = [self.input(node, i) for i in range(len(node.inputs))]
            if isinstance(spec, s.AssignWatermarksSpec):
                made = self._assigned(node, spec, inputs[0])
            elif spec.alone_on_spark():
                made = self._native(node, spec, inputs)
                if made is None:
                    return universal.stateless(node, inputs[0], self.context)
            else:
                return self._stateful(node, inputs)
        return {None: made.with_hidden(time=node.wants_time, arrival=False)}

    def _assigned(self, node: Node, spec: s.AssignWatermarksSpec, frame: Frame) -> Frame:
        if spec.timestamp_function is not None:
            frame = universal.stateless(node, frame, self.context)[None]
        return self._watermarked(frame.renamed(node.output), spec.watermark)

    def _stateful(self, node: Node, inputs: list[Frame]) -> dict[str | None, Frame]:
        timed = any(f.time for f in inputs)
        program = Program(
            (universal.step_of(node, keep=True),), self.context, timed=timed, out_timed=node.wants_time,
            tags=universal.read_tags(node),
        )  # fmt: skip
        packed = None
        for index, frame in enumerate(inputs):
            frame = frame.with_hidden(time=timed, arrival=False)
            rows = universal.positional(frame)
            keys = node.spec.meeting_keys(index)
            shape = st.StructType(
                [st.StructField("g", st.IntegerType()), st.StructField("payload", st.BinaryType())]
            )
            part = rows.mapInArrow(packer(frame.schema, keys, index, timed), shape)
            packed = part if packed is None else packed.unionAll(part)
        assert packed is not None
        watermarked = _has_watermark(node)
        out: Any = packed.groupBy("g").transformWithState(
            GroupProcessor(program, watermarked), st.StructType([st.StructField("payload", st.BinaryType())]),
            "Append", "EventTime" if watermarked else "None",
        )  # fmt: skip
        names, types = program.layout()
        rows = out.mapInArrow(unpacker, struct_type(types, names))
        return universal.split_outputs(node, rows, program)


def run_stream(
    graph: JobGraph, session: SparkSession, job_id: str, store_url: str, clones: Path | None = None
) -> None:
    """Run an unbounded job until one of its queries fails, or the caller is interrupted.

    Its checkpoints are in the folder of Spark's own key ``spark.sql.streaming.checkpointLocation``. Without
    the key they are in the cluster's object store (``store_url``).
    """
    location = graph.config.get(SPARK_CHECKPOINTS) or f"{store_url.rstrip('/')}/{spark_stream_prefix(job_id)}"
    made = SparkStreamJob(graph, session, job_id=job_id, checkpoint=location, clones=clones)
    queries = made.start()
    try:
        while True:
            for query in queries:
                if query.awaitTermination(_ASK_S):
                    return
    except Exception as err:
        raise translated(err) from err
    finally:
        for query in queries:
            query.stop()


def _has_watermark(node: Node) -> bool:
    """Whether event time passes before the node."""
    if isinstance(node.spec, s.SourceSpec | s.AssignWatermarksSpec) and node.spec.watermark is not None:
        return True
    return any(_has_watermark(e.source) for port in node.inputs for e in port)


def _each_batch(
    spec: s.SinkSpec, uid: str, job_id: str, context: Any, folder: str, clones: Path | None
) -> Any:
    """Makes the function for ``foreachBatch`` that writes one micro-batch, once."""

    def each(df: Any, batch: int) -> None:
        table = TableWrite(spec, uid, f"{job_id}-{batch}", context, f"{folder}/commits/{batch:012d}")
        try:
            write(Frame(df, spec.schema), table)
        finally:
            # Spark's Python processes for the query carry the id of this session, which only runs the query. The
            # client knows the id as soon as Spark has answered it once.
            if clones is not None:
                cloned = df.sparkSession.client._server_session_id
                if cloned is not None:
                    note_clone(clones, cloned)

    return each
