"""``StreamTableEnvironment``: tables and streams of one program, in one job."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from penstock.api.environment import StreamExecutionEnvironment
from penstock.api.sink_casts import implicit_casts
from penstock.api.tables import Tables, timed_step
from penstock.api.transformations import Compiler, plain
from penstock.api.typeinfo import schema_of
from penstock.columnar.rows import Row, make_row
from penstock.errors import SpecError, SqlError, UnsupportedError
from penstock.functions.expr import InputRef
from penstock.jobgraph.artifacts import with_classes
from penstock.plan import nodes as n
from penstock.plan.properties import Analysis
from penstock.spark.support import spark_support
from penstock.sql.inserting import bind_insert
from penstock.sql.session import SqlSession
from penstock.table.descriptors import Schema
from penstock.table.environment import RESULT_MODES, TableEnvironment
from penstock.table.settings import EnvironmentSettings, configuration_texts
from penstock.table.steps import here
from penstock.table.stream_schema import StreamTables, kinds_taken
from penstock.table.table import Table
from penstock.types import logical as t
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.api.datastream import DataStream
    from penstock.api.transformations import Transformation
    from penstock.jobgraph import FunctionArtifact
    from penstock.sql import statements as st

_KIND = "__kind"


class ChangelogMode(enum.Enum):
    """The kinds of rows in a changelog stream: made by ``insert_only()``, ``upsert()`` and ``all()``."""

    INSERT_ONLY = "+I"
    UPSERT = "+I, +U, -D by key"
    ALL = "+I, -U, +U, -D"

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Rows are inserted only."""
        return ChangelogMode.INSERT_ONLY

    @staticmethod
    def upsert() -> ChangelogMode:
        """Rows are inserted, replaced and deleted by their key, without the row that an update replaces."""
        return ChangelogMode.UPSERT

    @staticmethod
    def all() -> ChangelogMode:
        """Rows of every kind: an update comes with the row that it replaces."""
        return ChangelogMode.ALL


class StreamTableEnvironment(TableEnvironment):
    """A table environment whose tables and the streams of a DataStream program become each other.

    Programs call ``create``. The configuration is that of the program: both environments set and read it.
    ``session``: the SQL session; ``program``: the DataStream program.
    """

    def __init__(self, session: SqlSession, program: StreamExecutionEnvironment) -> None:
        super().__init__(session)
        self._program = program
        self._streams = Compiler(prefix="table-")
        session.config = program.configuration
        session.python_path = program.join_tables(Tables(session.config, session), self._streams)
        session.stream_functions = self._stream_functions
        self._of_streams = StreamTables(self, self._streams)

    @staticmethod
    def create(  # type: ignore[override]  # PyFlink's two parameters
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: Any = None,
    ) -> StreamTableEnvironment:
        """A table environment of a DataStream program.

        Args:
            stream_execution_environment: The program. None: a new one.
            environment_settings: ``EnvironmentSettings``, or keys; they are set in the program. None: none.
        """
        program = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        if environment_settings is not None:
            settings = environment_settings
            if isinstance(settings, EnvironmentSettings):
                settings = settings.get_configuration()
            program.configure(configuration_texts(settings))
        session = SqlSession(program.configuration, spark=spark_support(), result_modes=RESULT_MODES)
        return StreamTableEnvironment(session, program)

    def _stream_functions(self) -> Mapping[str, FunctionArtifact]:
        self._streams.check_unchanged()
        if not self._streams.functions and not self._streams.classes:
            return {}
        classes = [*self._streams.classes, *self._program.shipped_classes()]
        return with_classes(self._streams.functions, classes)

    def add_python_file(self, file_path: str) -> None:
        """As ``StreamExecutionEnvironment.add_python_file``."""
        self._program.add_python_file(file_path)

    # -- streams → tables ---------------------------------------------------------------------

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Any) -> Table:
        """A table of the records of a stream.

        Args:
            data_stream: The stream. Its settings (name, uid …) are those of this moment.
            fields_or_schema: Nothing: the columns of the stream; a stream of bare values has the column ``f0``. A
                ``Schema``: physical columns by name, computed ones, ``METADATA FROM 'rowtime'`` (the records' event
                time) and a watermark (``SOURCE_WATERMARK()``: the stream's). Expressions: columns by name, or all of
                them in order by new names; ``col('t').rowtime`` appends the event time, ``col('p').proctime`` the
                processing time.

        Raises:
            SpecError: The stream has no such column, or a type does not fit.
        """
        where = here("from_data_stream()")
        if len(fields_or_schema) == 1 and isinstance(fields_or_schema[0], Schema):
            return self._of_streams.by_schema(data_stream, fields_or_schema[0], where)
        return self._of_streams.by_fields(data_stream, fields_or_schema, where)

    def from_changelog_stream(
        self,
        data_stream: DataStream,
        schema: Schema | None = None,
        changelog_mode: ChangelogMode | None = None,
    ) -> Table:
        """A table that a stream of ``Row`` with kinds changes.

        Args:
            data_stream: A stream whose records are ``Row`` of undeclared type (``PICKLED_BYTE_ARRAY``), or a collection
                of ``Row``. A step of a declared type gives INSERTs alone: it refuses a ``Row`` of another kind.
            schema: The columns. None: those of the collection's type.
            changelog_mode: ``ChangelogMode.all()`` or ``insert_only()``; None: all kinds.

        Raises:
            SpecError: A stream of undeclared type has no ``schema``.
            UnsupportedError: The mode is upsert.
        """
        where = here("from_changelog_stream()")
        _check_mode(changelog_mode, where)
        return self._of_streams.of_changes(data_stream, schema, where)

    def create_temporary_view(self, view_path: str, table_or_query: Any, *fields_or_schema: Any) -> None:
        """Register a table, or the table of a stream, as a view.

        Args:
            view_path: The view's name.
            table_or_query: A ``Table``, or a ``DataStream``.
            fields_or_schema: Of a stream: as in ``from_data_stream``.
        """
        if not isinstance(table_or_query, Table):
            table_or_query = self.from_data_stream(table_or_query, *fields_or_schema)
        super().create_temporary_view(view_path, table_or_query)

    # -- tables → streams ---------------------------------------------------------------------

    def to_data_stream(self, table: Table) -> DataStream:
        """The rows of an append-only table as a stream of ``Row``; their event time is the table's.

        Raises:
            SqlError: Rows of the table are updated.
        """
        return self._program.streams.plain(self._rows_step(table, "to_data_stream()"))

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """The changes of a table as a stream of ``Row`` with kinds (``get_row_kind()``), of undeclared type.

        Args:
            table: The table.
            target_schema: Names and types of the row's fields, in order. None: the table's.
            changelog_mode: ``ChangelogMode.all()`` (also for None), or ``insert_only()``.

        Raises:
            SqlError: The mode is ``insert_only()``, and rows of the table are updated.
            UnsupportedError: The mode is upsert.
        """
        call = "to_changelog_stream()"
        _check_mode(changelog_mode, here(call))
        node = self._node(table)
        known = Analysis().of(node)
        if changelog_mode is ChangelogMode.INSERT_ONLY and known.updating:
            raise _updated(call)
        if target_schema is not None:
            node = self._fitting(node, _columns(target_schema, here(call)), call)
        names = tuple(node.schema.names)
        schema = t.Schema((*node.schema.fields, t.Field(_KIND, t.TinyIntType(nullable=False))))
        changes = n.RowKinds(input=node, kind="append", schema=schema)
        step = timed_step(changes, "Table", known.rowtimes)
        return self._program.streams.plain(step).map(_WithKind(names)).name("Changes")

    def to_append_stream(self, table: Table, type_info: t.LogicalType) -> DataStream:
        """The rows of an append-only table as a stream of ``type_info``, whose fields are the columns in order.

        Raises:
            SqlError: Rows of the table are updated.
            SpecError: A column does not fit its field.
        """
        call = "to_append_stream()"
        return self._program.streams.plain(self._rows_step(table, call, schema_of(type_info)))

    def to_retract_stream(self, table: Table, type_info: t.LogicalType) -> DataStream:
        """The changes of a table as pairs: True and a row to add, or False and a row to take back.

        Raises:
            SpecError: A column does not fit its field of ``type_info``.
        """
        node = self._fitting(self._node(table), schema_of(type_info), "to_retract_stream()")
        schema = t.Schema((*node.schema.fields, t.Field(_KIND, t.TinyIntType(nullable=False))))
        changes = n.RowKinds(input=node, kind="append", schema=schema)
        stream = self._program.streams.plain(timed_step(changes, "Table"))
        return stream.map(_WithSign(tuple(node.schema.names))).name("Changes")

    # -- one job ------------------------------------------------------------------------------

    def attach(self, inserts: Sequence[st.Insert]) -> None:
        """Let the program's job do ``inserts``, too. ``StatementSet.attach_as_datastream`` calls this method."""
        for insert in inserts:
            self._program.attach(bind_insert(self._session.catalog, self._session.config, insert))

    # -- nodes --------------------------------------------------------------------------------

    def _node(self, table: Table) -> n.Node:
        if not isinstance(table, Table) or table._env is not self:
            raise SpecError("no table of this environment", expected="a Table", got=repr(table))
        return self._bound(table._step).node

    def _rows_step(self, table: Table, call: str, want: t.Schema | None = None) -> Transformation:
        node = self._node(table)
        if Analysis().of(node).updating:
            raise _updated(call)
        step = timed_step(node, "Table")
        fields = node.schema.fields
        if want is None:
            want = t.Schema(tuple(t.Field(f.name, f.type, row=True) for f in fields))
        casts = implicit_casts(node.schema, want, self._program.configuration, call)
        casts = casts or tuple(InputRef(i, f.type) for i, f in enumerate(fields))
        schema = t.Schema(
            tuple(t.Field(w.name, cast.type, row=w.row) for w, cast in zip(want.fields, casts, strict=True))
        )
        return plain(
            lambda inputs, c: n.Project(input=inputs[0], expressions=casts, schema=schema),
            (step,),
            schema,
            "Rows",
        )

    def _fitting(self, node: n.Node, want: t.Schema, call: str) -> n.Node:
        casts = implicit_casts(node.schema, want, self._program.configuration, call)
        casts = casts or tuple(InputRef(i, f.type) for i, f in enumerate(node.schema.fields))
        fields = (t.Field(w.name, cast.type) for w, cast in zip(want.fields, casts, strict=True))
        return n.Project(input=node, expressions=casts, schema=t.Schema(tuple(fields)))


class _WithKind:
    """A row of columns, the last of which is its kind, as a ``Row`` with that kind."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, record: Any) -> Row:
        return make_row(self.names, record[:-1]).with_kind(RowKind(record[-1]))


class _WithSign(_WithKind):
    """A row of columns, the last of which is its kind, as a pair: whether the row is added, and the row."""

    def __call__(self, record: Any) -> Any:
        return kinds_taken(record[-1]), make_row(self.names, record[:-1])


def _columns(schema: Schema, where: str) -> t.Schema:
    if len(schema.columns) != len(schema.fields) or schema.constraints:
        raise UnsupportedError(
            "a target schema with more than physical columns",
            expected="column(name, type) alone",
            got=str(schema),
            where=where,
        )
    return t.Schema(tuple(t.Field(name, type_) for name, type_ in schema.fields))


def _check_mode(mode: ChangelogMode | None, where: str) -> None:
    if mode is ChangelogMode.UPSERT:
        raise UnsupportedError(
            "a changelog stream with ChangelogMode.upsert()",
            expected="ChangelogMode.all(): an update comes with the row that it replaces",
            where=where,
            remedy="leave the mode out; of a stream of updates by key make a table by a connector with a key",
        )


def _updated(call: str) -> SqlError:
    return SqlError(
        f"{call} of a table whose rows are updated",
        expected="an append-only query: filters, projections, windows, interval joins",
        where=here(call),
        remedy="to_changelog_stream(table) gives the changes",
    )
