"""``StreamExecutionEnvironment``: where a program begins and is executed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api import execution
from penstock.api.attached import ends_with_client
from penstock.api.common import WatermarkStrategy
from penstock.api.connector_tables import sink_table, source_table
from penstock.api.connectors import Sink, Source
from penstock.api.datastream import DataStream
from penstock.api.function_sources import function_source
from penstock.api.plan_json import plan_json
from penstock.api.results import CloseableIterator
from penstock.api.selectors import column_index
from penstock.api.settings import Settings
from penstock.api.sink_casts import implicit_casts
from penstock.api.source_watermarks import per_split
from penstock.api.step_settings import DataStreamSink
from penstock.api.streams import StreamFactory
from penstock.api.transformations import Compiler, Transformation
from penstock.api.typeinfo import checked_type, schema_of, type_of, type_of_values
from penstock.columnar.python_values import columns_of, is_bare, redact
from penstock.columnar.rows import Row, kind_of
from penstock.config import PIPELINE_NAME, RUNTIME_MODE
from penstock.errors import SpecError
from penstock.jobgraph.artifacts import classes_in, with_classes
from penstock.plan import nodes as n
from penstock.plan.engine import explained
from penstock.plan.operators.values.node import encoded
from penstock.plan.properties import Analysis
from penstock.spark.support import spark_support
from penstock.types import Batch
from penstock.types import logical as t
from penstock.types.batch import RowKind
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.api.execution import JobClient, JobExecutionResult
    from penstock.api.tables import Tables
    from penstock.jobgraph import JobGraph
    from penstock.plan.engine import SparkSupport
    from penstock.types.pickling import ClassName


class StreamExecutionEnvironment(Settings):
    """Builds a job and runs it.

    ``configuration``: Flink's keys; values of any kind are written as text. SpecError for an unknown key or a
    malformed value.
    """

    def __init__(self, configuration: Mapping[str, Any] | None = None) -> None:
        super().__init__(configuration)
        self._sinks: list[Transformation] = []
        self._tables: Tables | None = None
        self._shared: Compiler | None = None
        #: Makes the streams of this program; the methods of streams use it.
        self.streams = StreamFactory(self)

    @classmethod
    def get_execution_environment(
        cls, configuration: Mapping[str, Any] | None = None
    ) -> StreamExecutionEnvironment:
        """A new environment; ``configuration`` as in the constructor."""
        return cls(configuration)

    # -- sources -------------------------------------------------------------------------------

    def from_collection(
        self, collection: Iterable[Any], type_info: t.LogicalType | None = None
    ) -> DataStream:
        """A bounded stream of the records of ``collection``. SpecError if its rows have kinds, when the job is planned.

        Args:
            collection: Python values.
            type_info: Type of a record. None: found from the values.
        """
        rows = list(collection)
        schema = schema_of(checked_type(type_info) if type_info is not None else type_of_values(rows))
        # This must precede the encoding of the rows, which needs their classes to have names.
        found = classes_in(rows) if any(isinstance(x, t.RawType) for x in schema.types) else ()
        kinded = [row for row in rows if kind_of(row)] if not is_bare(schema) else []
        plain = [row.with_kind(RowKind.INSERT) for row in rows] if kinded else rows
        data = encoded(Batch(schema, columns_of(schema, plain, "from_collection"), num_rows=len(rows)))
        node = n.Values(schema=schema, data=data)

        def make(step: Transformation, inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            if kinded:
                raise SpecError(
                    "the rows of a collection have kinds, and records of a declared type have none",
                    expected="rows of kind +I (INSERT), or from_changelog_stream of the collection",
                    got=f"{kinded[0].get_row_kind().short} {redact(kinded[0])}",
                    where="from_collection()",
                    remedy="say type_info=Types.PICKLED_BYTE_ARRAY(), so that records keep their kinds",
                )
            compiler.classes.extend(found)
            return node

        step = Transformation(make, (), schema, "Collection", configurable=False, alone=True)
        if len(schema) > 1 and all(isinstance(row, Row) for row in rows):
            step.kinds = lambda: self._with_kinds(rows, schema)
        return DataStream(self, step)

    def _with_kinds(self, rows: Sequence[Row], schema: Schema) -> DataStream:
        """The rows with their kinds in a last column."""
        kind = t.Field("__kind", t.TinyIntType(nullable=False))
        marked = [(*row, int(row.get_row_kind())) for row in rows]
        return self.from_collection(marked, t.RowType((*schema.fields, kind)))

    def from_source(
        self,
        source: Any,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: t.LogicalType | None = None,
        *,
        bounded: bool = False,
    ) -> DataStream:
        """A connector's table as a stream.

        Watermarks are made for each split if the event time is a TIMESTAMP column or the source's own
        timestamp; otherwise a step after the source makes them.

        Args:
            source: ``Source.connector(…)``, what a builder made, or a function (``add_source``).
            watermark_strategy: Event times and watermarks; None for none.
            source_name: The source's name in plans; None: the connector's.
            type_info: Type of a record, which must be the source's own; None: not checked. Of a function: what it gives.
            bounded: Whether a function comes to an end.

        Raises:
            SpecError: ``type_info`` is another type than the source's.
            ConnectorError: An option is unknown, missing or malformed.
            UnsupportedError: The source gives a changelog.
        """
        if not isinstance(source, Source):
            made = self.add_source(source, source_name or "Custom Source", type_info, bounded=bounded)
            if watermark_strategy is None:
                return made
            timed = made.assign_timestamps_and_watermarks(watermark_strategy)
            timed._step.stands_for = made._step
            return timed
        if watermark_strategy == WatermarkStrategy.no_watermarks():
            watermark_strategy = None  # with the source's own timestamps: what a source does by itself
        name = source_name or source.name
        if type_info is not None and schema_of(type_info).types != source.schema.types:
            raise SpecError(
                f"source '{name}' gives records of another type",
                expected=f"type_info={type_of(source.schema)}, or none",
                got=str(type_info),
            )
        table = source_table(source, name)
        schema = table.schema
        watermark = None if watermark_strategy is None else per_split(watermark_strategy, schema, self)
        table = msgspec.structs.replace(table, watermark=watermark)
        step = Transformation(
            lambda s, inputs, c: n.Scan(table=table, schema=schema, uid=s.uid),
            (),
            schema,
            name,
            configurable=False,
            takes_uid=True,
        )
        stream = DataStream(self, step)
        if watermark_strategy is None:
            return stream
        if watermark is None:
            timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        else:
            timed = DataStream(self, stream._with_times(watermark_strategy))
        # The program sees this step as the source, so a uid set on it must go to the source step, whose state
        # holds the positions.
        timed._step.stands_for = step
        return timed

    def add_source(
        self,
        source_func: Any,
        source_name: str = "Custom Source",
        type_info: t.LogicalType | None = None,
        *,
        bounded: bool = False,
    ) -> DataStream:
        """The records that a function of the program gives, in one subtask and in a thread of its own: it may block.

        Args:
            source_func: A generator function, or another callable that gives an iterable, or an object with such a method
                ``run`` (and ``open``, ``close``). After a restart it is called again, and as many records as went out are
                passed over: it must give the same ones. One with an argument gets the position behind which it
                begins, None at first, and gives pairs (record, position behind it).
            source_name: The source's name.
            type_info: Type of a record. None: the annotation of ``source_func`` (``-> Iterator[int]``); without one,
                records are pickled.
            bounded: Whether it comes to an end; then ``BATCH`` may run it.

        Raises:
            SpecError: ``source_func`` is no such function.
        """
        return self.streams.plain(function_source(source_func, source_name, type_info, bounded))

    # -- SQL -------------------------------------------------------------------------------------

    def execute_sql(self, script: str) -> StreamExecutionEnvironment:
        """Run the declarations of ``script`` (CREATE TABLE …, SET …), for ``from_table``, ``insert_into``, ``sql_query``."""
        self.configuration.update(self._session().execute(script))
        return self

    def create_temporary_function(self, name: str, function: Any) -> None:
        """Make ``function`` callable as ``name`` in ``sql_query``. ``udf``, ``udtf`` or ``udaf`` have made it."""
        self._session().create_function(name, function)

    def from_table(self, name: str) -> DataStream:
        """The rows of the declared table ``name``, with the event times and watermarks that the table declares."""
        return DataStream(self, self._session().scan(name))

    def sql_query(self, query: str) -> DataStream:
        """The rows of ``query``, an append-only SELECT over declared tables."""
        return DataStream(self, self._session().query(query))

    def join_tables(self, tables: Tables, shared: Compiler) -> list[str]:
        """Let a table environment's tables be those of this program. Called by ``StreamTableEnvironment``.

        ``shared`` has compiled the streams that tables were made of. Returns the folders of the slots' ``sys.path``,
        to which the program may add.
        """
        self._tables, self._shared = tables, shared
        return self._python_path

    def shipped_classes(self) -> list[ClassName]:
        """The classes that ``register_type`` named. Called by ``StreamTableEnvironment``."""
        return self._classes

    def attach(self, node: n.Sink) -> None:
        """Let the job of this program also do the INSERT ``node``. Called by ``StatementSet``."""
        self._sinks.append(
            Transformation(
                lambda s, inputs, c: node, (), node.schema, node.name or "INSERT", configurable=False
            )
        )

    def _session(self) -> Tables:
        if self._tables is None:
            from penstock.api.tables import Tables

            self._tables = Tables(self.configuration)
        return self._tables

    # -- sinks ------------------------------------------------------------------------------------

    def add_sink_step(self, stream: DataStream, table: n.TableRef) -> DataStreamSink:
        """Write ``stream`` to ``table`` when the job runs. Called by the streams."""
        step = self._sink_step(stream, table)
        self._sinks.append(step)
        return DataStreamSink(step)

    def sink_table(self, stream: DataStream, sink: Sink) -> n.TableRef:
        """The table of ``sink``, checked against the columns of ``stream``. Called by the streams.

        Raises:
            SpecError: ``sink`` is no ``Sink``.
            ConnectorError: An option is unknown, missing or malformed.
        """
        if not isinstance(sink, Sink):
            raise SpecError(
                "not a sink", expected="Sink.connector('print'), NatsSink, FileSink …", got=repr(sink)
            )
        return sink_table(sink, stream.schema)

    def table_sink(self, name: str) -> n.TableRef:
        """The declared table ``name`` as a sink. Called by the streams."""
        return self._session().sink(name)

    def _sink_step(self, stream: DataStream, table: n.TableRef) -> Transformation:
        schema = table.schema
        casts = implicit_casts(stream.schema, schema, self.configuration, f"the sink '{table.name}'")
        keys = tuple(column_index(schema, k, "primary key") for k in table.primary_key)

        def make(step: Transformation, inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            fitting = n.Project(input=inputs[0], expressions=casts, schema=schema) if casts else inputs[0]
            return n.Sink(
                input=fitting,
                table=table,
                upsert_keys=keys,
                name=step.name,
                uid=step.uid,
                parallelism=step.parallelism,
                schema=schema,
            )

        return Transformation(make, (stream._step,), schema, f"Sink: {table.name}")

    # -- running ---------------------------------------------------------------------------------------

    def job_graph(self, job_name: str | None = None) -> JobGraph:
        """The planned job of all sinks so far, for the streaming engine. ``job_name``: the job's name."""
        return self._plan(self._sinks, job_name)

    def get_execution_plan(self) -> str:
        """The job's steps as JSON, in Flink's form. ``explain`` has the plans as text."""
        return plan_json(self.job_graph())

    def explain(self) -> str:
        """The plans as text, as EXPLAIN prints them; of a job for Spark with Spark's own plan."""
        spark = spark_support()
        return explained(self._plan(self._sinks, None, spark), spark)

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the job to its end; under ``penstock run --detached``, submit it.

        In a planner process the plan is recorded instead, and the result is empty. ``job_name``: the job's name.

        Raises:
            PenstockError: The job failed, with its own error; ExternalError if it was cancelled.
        """
        graph = self._take(job_name)
        if execution.recorded(graph):
            return execution.JobExecutionResult("")
        return execution.submit(graph, self.configuration).executed()

    def execute_async(self, job_name: str | None = None) -> JobClient | None:
        """Submit the job and return at once; None in a planner process. ``job_name``: the job's name."""
        graph = self._take(job_name)
        if execution.recorded(graph):
            return None
        return execution.submit(graph, self.configuration)

    def collect(
        self, stream: DataStream, job_name: str | None, limit: int | None
    ) -> CloseableIterator | list[Any]:
        """The records of ``DataStream.execute_and_collect``.

        Args:
            stream: The stream.
            job_name: The job's name.
            limit: A list of so many records at most; None: all of them as they come.
        """
        execution.refuse_when_planning("execute_and_collect()")
        compiler = Compiler(self._shared)
        bounded = Analysis().of(compiler.node(stream._step)).bounded
        step = self._sink_step(
            stream, self.sink_table(stream, Sink.connector("collect", {"bounded": bounded}))
        )
        step.parallelism = 1
        sinks, self._sinks = [*self._sinks, step], []
        graph = ends_with_client(self._plan(sinks, job_name, spark_support()))
        client = execution.submit(graph, self.configuration)
        found = CloseableIterator(client.rows(stream.schema), client.abandon)
        if limit is None:
            return found
        with found:
            return list(itertools.islice(found, limit))

    def _take(self, job_name: str | None) -> JobGraph:
        graph = self._plan(self._sinks, job_name, spark_support())
        self._sinks.clear()
        return graph

    def _in_its_mode(self, sinks: Sequence[n.Node]) -> dict[str, str]:
        """The configuration with AUTOMATIC resolved: BATCH when every source is bounded, else STREAMING. A
        program that sets no mode runs in STREAMING, Flink's default."""
        config = self.configuration
        automatic = RUNTIME_MODE.key in config and RUNTIME_MODE.read(config) == "AUTOMATIC"
        if automatic and all(Analysis().of(sink).bounded for sink in sinks):
            return {**config, RUNTIME_MODE.key: "BATCH"}
        return config

    def _plan(
        self, sinks: list[Transformation], job_name: str | None, spark: SparkSupport | None = None
    ) -> JobGraph:
        from penstock.plan.physical import plan_job

        if not sinks:
            raise SpecError(
                "a job without a sink", expected="sink_to(…) or print() before execute()", got="no sink"
            )
        compiler = Compiler(self._shared)
        nodes = tuple(compiler.node(s) for s in sinks)
        config = self._in_its_mode(nodes)
        if job_name:  # as in Flink, it overrides pipeline.name
            config = {**config, PIPELINE_NAME.key: job_name}
        plan = n.LogicalPlan(
            name="Penstock Streaming Job",
            sinks=nodes,  # type: ignore[arg-type]
            config=config,
        )
        functions = {} if self._tables is None else self._tables.functions()
        classes = [*compiler.classes, *self._classes]
        if self._shared is not None:
            self._shared.check_unchanged()
            functions, classes = {**functions, **self._shared.functions}, [*classes, *self._shared.classes]
        table = with_classes({**functions, **compiler.functions}, classes)
        return plan_job(plan, table, python_path=tuple(self._python_path), spark=spark)
