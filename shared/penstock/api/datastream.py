"""``DataStream``: records without keys. ``keyed.py``, ``windowed.py`` and ``connected.py`` have the other
kinds of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from penstock.api.common import WatermarkStrategy
from penstock.api.connectors import PreparedSink, Sink
from penstock.api.function_slots import check_function
from penstock.api.html import columns_html
from penstock.api.keying import check_key_types, key_columns, of_untyped
from penstock.api.partitions import Partitions
from penstock.api.process_steps import output_schema, policy, process_step
from penstock.api.selectors import FromColumns, column_index, traced
from penstock.api.step_settings import DataStreamSink, StepSettings
from penstock.api.transformations import Compiler, Transformation, plain, side_output, transform
from penstock.api.typeinfo import annotated_type, type_of
from penstock.config import WATERMARK_INTERVAL_MS
from penstock.errors import SpecError, UnsupportedError
from penstock.functions.expr import InputRef, Literal, PythonCall
from penstock.jobgraph.specs import PythonSpec, RecordTimeSpec, WatermarkSpec
from penstock.operators.operator_state import part_with_state
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.all_windowed import AllWindowedStream
    from penstock.api.connected import BroadcastStream, ConnectedStreams
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.keyed import KeyedStream
    from penstock.api.results import CloseableIterator
    from penstock.api.window_assigner import WindowAssigner
    from penstock.api.window_joins import Where
    from penstock.operators.output_tag import OutputTag


class DataStream(StepSettings, Partitions):
    """A stream of records.

    Methods such as ``map`` return new streams. ``name``, ``uid``, ``set_parallelism`` and the like set the step
    that made this stream, and return the stream itself.

    Programs get streams from a ``StreamExecutionEnvironment`` (``env``); ``step`` is the step that makes this one.
    """

    def __init__(self, env: StreamExecutionEnvironment, step: Transformation) -> None:
        super().__init__(step)
        self._env = env

    @property
    def schema(self) -> Schema:
        """Names and types of the columns."""
        return self._step.schema

    def get_type(self) -> t.LogicalType:
        """The type of a record: a ROW, or the type of the value in a stream of bare values."""
        return type_of(self.schema)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._env

    def _repr_html_(self) -> str:
        """What a notebook shows of the stream."""
        return columns_html("DataStream", self.schema, "execute_and_collect() runs it and gives its records.")

    # -- functions ----------------------------------------------------------------------------

    def map(
        self,
        func: Any,
        output_type: t.LogicalType | None = None,
        *,
        batch: bool = False,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits one record for each record.

        Args:
            func: A callable, or a ``MapFunction``.
            output_type: Type of the output, ``Types.…()``. None: the return annotation of ``func``; without one,
                the output is pickled.
            batch: ``func`` takes and returns Arrow: an array, or a record batch for rows.
            on_error: What happens to a record on which ``func`` raises: ``fail``, ``skip`` or ``dead-letter``.
        """
        return self._python("map", func, output_type, batch, on_error)

    def flat_map(
        self,
        func: Any,
        output_type: t.LogicalType | None = None,
        *,
        batch: bool = False,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits any number of records for each record.

        Args:
            func: A callable or ``FlatMapFunction`` that returns an iterable, or yields.
            output_type: Type of one output record; as in ``map``.
            batch: ``func`` takes and returns Arrow, as in ``map``.
            on_error: As in ``map``.
        """
        return self._python("flat_map", func, output_type, batch, on_error)

    def filter(self, func: Any, *, batch: bool = False, on_error: str = "fail") -> DataStream:
        """The records for which ``func`` is true.

        Args:
            func: A callable, or a ``FilterFunction``.
            batch: ``func`` takes Arrow and returns a boolean array.
            on_error: As in ``map``.
        """
        return self._python("filter", func, None, batch, on_error)

    def _python(
        self, kind: str, func: Any, output_type: t.LogicalType | None, batch: bool, on_error: str
    ) -> DataStream:
        on_error = policy(on_error)
        check_function(func, kind, on_error)
        schema = self.schema if kind == "filter" else output_schema(func, output_type, kind, needed=batch)

        def spec(step: Transformation, compiler: Compiler) -> PythonSpec:
            return PythonSpec(
                kind=kind,  # type: ignore[arg-type]
                function=compiler.function(func, kind),
                per="batch" if batch else "record",
                on_error=on_error,  # type: ignore[arg-type]
                operator_state=part_with_state(func) is not None,
            )

        title = {"map": "Map", "flat_map": "Flat Map", "filter": "Filter"}[kind]
        return self._then(transform(spec, (self._step,), schema, title))

    def process(
        self, func: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """The records that a process function emits. State and timers need ``key_by`` first.

        Args:
            func: A ``ProcessFunction``: it sees timestamps and may send to side outputs.
            output_type: As in ``map``.
            on_error: As in ``map``.
        """
        return process_step(self._env, [(self._step, (), None)], "process", func, output_type, on_error)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records that the process function or window that made this stream sent to ``output_tag``."""
        return DataStream(self._env, side_output(self._step, output_tag.tag_id, output_tag.schema))

    # -- time -----------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """The same records with event times and watermarks by ``watermark_strategy``.

        Raises:
            SpecError: The strategy's column is no event time, or is not there.
        """
        strategy = watermark_strategy
        timed = self._with_times(strategy)
        idle = strategy.idle_timeout_ms

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            watermark = WatermarkSpec(
                delay_us=strategy.delay_us,
                idle_timeout_ms=self._env.idle_timeout_ms() if idle is None else idle,
                idle_source=idle is not None or self._env.idle_sources,
                interval_ms=WATERMARK_INTERVAL_MS.read(self._env.configuration),
            )
            own = strategy.generator
            generator = None if own is None else compiler.function(own, "watermark")
            return n.AssignWatermarks(
                input=inputs[0], watermark=watermark, generator=generator, schema=timed.schema
            )

        return self._then(plain(make, (timed,), timed.schema, "Timestamps/Watermarks"))

    def _with_times(self, strategy: WatermarkStrategy) -> Transformation:
        """Records with the strategy's event time."""
        column: int | None = None
        extract: Callable[[Any, int], int] | None = None
        if strategy.column is not None:
            column = column_index(self.schema, strategy.column, "with_timestamp_column")
        elif strategy.assigner is not None:
            check_function(strategy.assigner, "timestamp assigner")
            extract = getattr(strategy.assigner, "extract_timestamp", strategy.assigner)
            found = traced(extract, self.schema, 0)
            if found is not None and len(found) == 1 and _time_unit(self.schema.types[found[0]]):
                column = found[0]
        if column is not None:
            if (unit := _time_unit(self.schema.types[column])) is None:
                raise SpecError(
                    f"column '{self.schema.names[column]}' is no event time",
                    expected="TIMESTAMP, TIMESTAMP_LTZ, or BIGINT milliseconds",
                    got=str(self.schema.types[column]),
                )
            spec = RecordTimeSpec(kind="assign", column=column, unit_us=unit)
            return transform(lambda s, c: spec, (self._step,), self.schema, "Event time")
        if extract is not None:
            assigner = strategy.assigner

            def by_function(step: Transformation, compiler: Compiler) -> RecordTimeSpec:
                return RecordTimeSpec(kind="function", function=compiler.function(assigner, "timestamp"))

            return transform(by_function, (self._step,), self.schema, "Event time")
        return self._step

    # -- keys, unions, partitions ------------------------------------------------------------------

    def key_by(
        self, *selector: Any, key_selector: Any = None, key_type: t.LogicalType | None = None
    ) -> KeyedStream:
        """The stream by key: records of one key meet in one subtask.

        Args:
            selector: Names or numbers of columns, or one function of the record. A function that only reads fields
                (``lambda r: r.user``) costs nothing per record. A type behind the function is ``key_type``.
            key_selector: The function, by its name in PyFlink.
            key_type: Type of the key that the function makes. None: its return annotation; without one, any Python
                value, compared by value.
        """
        if key_selector is not None:
            selector = (key_selector, *selector)
        if len(selector) > 1 and isinstance(selector[-1], t.LOGICAL_TYPES):
            *rest, key_type = selector
            selector = tuple(rest)
        selector = of_untyped(self.schema, selector)
        step, keys = self._step, key_columns(self.schema, selector)
        if keys is None:
            function = getattr(selector[0], "get_key", selector[0])
            step = self._with_key(function, key_type or annotated_type(selector[0], "get_key"))
            keys = (len(step.schema) - 1,)
        check_key_types([step.schema.types[k] for k in keys])
        return self._env.streams.keyed(self._step, step, keys)

    def _with_key(self, function: Any, key_type: t.LogicalType | None) -> Transformation:
        type_ = key_type or t.RawType()
        schema = Schema((*self.schema.fields, t.Field("__key", type_)), self.schema.rowtime)
        wrapped = FromColumns(function, self.schema)

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            refs = tuple(InputRef(i, f.type) for i, f in enumerate(self.schema.fields))
            key = PythonCall(compiler.function(wrapped, "key"), refs, type_)
            return n.Project(input=inputs[0], expressions=(*refs, key), schema=schema)

        return plain(make, (self._step,), schema, "Key")

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """The stream in the windows of ``window_assigner``, without keys: one subtask does the work."""
        schema = Schema(
            (*self.schema.fields, t.Field("__key", t.IntType(nullable=False))), self.schema.rowtime
        )

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            refs = tuple(InputRef(i, f.type) for i, f in enumerate(self.schema.fields))
            return n.Project(
                input=inputs[0], expressions=(*refs, Literal(0, t.IntType(nullable=False))), schema=schema
            )

        step = plain(make, (self._step,), schema, "One key")
        keyed = self._env.streams.keyed(self._step, step, (len(schema) - 1,))
        return self._env.streams.all_windowed(keyed, window_assigner)

    def project(self, *field_indexes: int) -> DataStream:
        """The fields with the numbers ``field_indexes``, as tuples.

        Raises:
            SpecError: There is no such field.
        """
        found = [column_index(self.schema, i, "project") for i in field_indexes]
        refs = tuple(InputRef(i, self.schema.types[i]) for i in found)
        schema = Schema(tuple(t.Field(f"f{k}", ref.type) for k, ref in enumerate(refs)))

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            return n.Project(input=inputs[0], expressions=refs, schema=schema)

        return self._then(plain(make, (self._step,), schema, "Projection"))

    def union(self, *streams: DataStream) -> DataStream:
        """All records of this stream and of ``streams``.

        Raises:
            SpecError: The types of the columns differ.
        """
        for other in streams:
            if other.schema.types != self.schema.types:
                raise SpecError(
                    "a union of different types", expected=str(self.schema), got=str(other.schema)
                )
        steps = (self._step, *(s._step for s in streams))
        schema = self.schema
        return self._then(
            plain(lambda inputs, c: n.Union_(inputs=inputs, schema=schema), steps, schema, "Union")
        )

    def transform(self, name: str, make: Callable[..., n.Node], *others: DataStream) -> DataStream:
        """An operator of another package over this stream (docs/adr/0020-operators-declare-their-traits.md).

        Args:
            name: The operator's name, as plans and the dashboard show it.
            make: ``make(node, …)`` gives its plan node over the nodes of the streams. It is called once more
                before that, with placeholder nodes of the same columns, to find the output columns.
            others: Its further inputs.
        """
        steps = (self._step, *(other._step for other in others))
        # The streams have no nodes yet, so empty VALUES nodes with the same columns take their places.
        shown = make(*(n.Values(schema=step.schema, data="") for step in steps))
        return self._then(plain(lambda inputs, c: make(*inputs), steps, shown.schema, name))

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams:
        """This stream and ``ds`` as the two inputs of one function."""
        return self._env.streams.connected(self, ds)

    def cache(self) -> DataStream:
        """Flink's way to keep a batch job's rows for the next job.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"cache of '{self._step.name}'",
            expected="a job that reads what another has written",
            remedy="write the stream into a table (insert_into, FileSink) and read that in the next job",
        )

    def join(self, other: DataStream) -> Where:
        """Pairs of records of this stream and ``other`` with equal keys in one window:
        ``.where(key).equal_to(key).window(assigner).apply(function)``."""
        return self._env.streams.window_join(self, other, "join")

    def co_group(self, other: DataStream) -> Where:
        """As ``join``, but the function gets all records of a key and window at once, of one stream alone, too."""
        return self._env.streams.window_join(self, other, "co_group")

    # -- out ------------------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the records to ``sink``.

        Raises:
            SpecError: ``sink`` is no ``Sink``, or the records do not fit its schema.
        """
        stream = sink.prepare(self) if isinstance(sink, PreparedSink) else self
        return self._env.add_sink_step(stream, self._env.sink_table(stream, sink))

    def insert_into(self, table: str) -> DataStreamSink:
        """Write the records into ``table``, which ``env.execute_sql("CREATE TABLE …")`` has declared."""
        return self._env.add_sink_step(self, self._env.table_sink(table))

    def add_sink(self, sink_func: Sink) -> DataStreamSink:
        """``sink_to(sink_func)``, under Flink's older name."""
        return self.sink_to(sink_func)

    def print(self, sink_identifier: str = "") -> DataStreamSink:
        """Print the records to the standard output of the subtasks (on a cluster: to their log).

        A bare value is printed as it is, a tuple as ``(a,1)``, a row with names as ``+I[a,1]``. ``sink_identifier``:
        text before each line.
        """
        options = {"print-identifier": sink_identifier} if sink_identifier else {}
        return self.sink_to(Sink.connector("print", {**options, "print-style": "record"}))

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None) -> CloseableIterator: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job now and give its records as they come; with ``limit`` a list of so many at most.

        Args:
            job_execution_name: The job's name.
            limit: End after this many records.

        Returns:
            An iterator. Closing it, or leaving its ``with`` block, cancels the job.
        """
        return self._env.collect(self, job_execution_name, limit)

    def _then(self, step: Transformation) -> DataStream:
        return DataStream(self._env, step)


def _time_unit(type_: t.LogicalType) -> int | None:
    """µs of one unit of an event-time column: timestamps are µs, whole numbers ms."""
    if isinstance(type_, t.TIMESTAMPS):
        return 1
    return 1_000 if isinstance(type_, (t.BigIntType, t.IntType)) else None
