"""Makes tables of streams: which columns they have, and which of them are time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.api.sink_casts import implicit_casts
from penstock.columnar.python_values import is_bare
from penstock.columnar.rows import Row
from penstock.config import LOCAL_TIME_ZONE
from penstock.errors import SpecError, UnsupportedError, nearest
from penstock.functions.expr import InputRef
from penstock.plan import nodes as n
from penstock.plan.properties import Analysis
from penstock.sql import statements as st
from penstock.sql.declaring import declared_watermark
from penstock.sql.errors import Source
from penstock.sql.parsing import parse_script
from penstock.sql.scope import Relation
from penstock.table.expression_base import node_of
from penstock.table.marks import WindowTime
from penstock.table.steps import Step
from penstock.table.syntax import call, column, identifier
from penstock.types import logical as t
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.api.datastream import DataStream
    from penstock.api.transformations import Compiler
    from penstock.table.descriptors import Schema
    from penstock.table.stream_environment import StreamTableEnvironment
    from penstock.table.table import Table

_TIME = t.TimestampLtzType(3)
_KIND = t.Field("__kind", t.TinyIntType(nullable=False))


class StreamTables:
    """The tables of streams. ``env``: their environment; ``streams`` compiles the streams' steps."""

    def __init__(self, env: StreamTableEnvironment, streams: Compiler) -> None:
        self._env = env
        self._streams = streams

    def by_fields(self, stream: DataStream, fields: Sequence[Any], where: str) -> Table:
        """The table whose columns are the expressions ``fields``; all columns of the stream if there are none."""
        items = [_Item(field, where) for field in fields]
        names = _names(stream)
        plain = [item for item in items if not item.time]
        if plain and not any(item.name in names for item in plain):
            if len(plain) > len(names):
                raise SpecError(
                    "more fields than the stream has",
                    expected=f"at most {len(names)}: {', '.join(names)}",
                    got=", ".join(item.name for item in plain),
                    where=where,
                )
            # Flink's rule: fields of which the stream has none name its columns in order.
            for item, name in zip(plain, names, strict=False):
                item.name, item.alias = name, item.alias or item.name
        for item in plain:
            if item.name not in names:
                raise SpecError(
                    f"the stream has no column '{item.name}'", expected=", ".join(names), got=item.name, where=where,
                    remedy=nearest(item.name, names),
                )  # fmt: skip
        rowtimes = [item for item in items if item.time == "ROWTIME"]
        if len(rowtimes) > 1:
            raise SpecError("two event times of one stream", expected="one .rowtime", where=where)
        base = self._base(stream, "__rowtime" if rowtimes else None, where)
        if not items:
            return base
        selected = [item.node() for item in items]
        return base._queried("from_data_stream", exp.Select(expressions=selected))

    def by_schema(self, stream: DataStream, schema: Schema, where: str) -> Table:
        """The table that ``schema`` declares over the stream."""
        declared = self._declared(stream, schema, where)
        physical = [c for c in declared.columns if c.kind == "physical"]
        stream = _with_columns(stream, physical)
        names = _names(stream)
        for wanted in physical:
            if wanted.name not in names:
                raise SpecError(
                    f"the stream has no column '{wanted.name}'", expected=", ".join(names), got=wanted.name,
                    where=where, remedy=nearest(wanted.name, names),
                )  # fmt: skip
        metadata = [c for c in declared.columns if c.kind == "metadata"]
        for wanted in metadata:
            if (wanted.metadata_key or wanted.name) != "rowtime" or len(metadata) > 1:
                raise UnsupportedError(
                    f"metadata '{wanted.metadata_key}' of a stream",
                    expected="'rowtime' once, the event time of the records", got=wanted.name, where=where,
                )  # fmt: skip
        base = self._base(stream, "__rowtime" if metadata else None, where, physical)
        items: list[exp.Expression] = []
        for c in declared.columns:
            if c.kind == "physical":
                items.append(column(c.name))
            else:
                made = column("__rowtime") if c.kind == "metadata" else c.expression
                assert made is not None
                items.append(exp.Alias(this=made, alias=identifier(c.name)))
        table = base._queried("from_data_stream", exp.Select(expressions=items))
        return table if declared.watermark is None else self._watermarked(table, declared.watermark, where)

    def of_changes(self, stream: DataStream, schema: Schema | None, where: str) -> Table:
        """The table that rows with kinds change."""
        kinds = None if stream._step.kinds is None else stream._step.kinds()
        untyped = is_bare(stream.schema) and isinstance(stream.schema.types[0], t.RawType)
        if kinds is not None:
            columns = stream.schema
        elif untyped and schema is not None:
            columns = t.Schema(tuple(t.Field(name, type_) for name, type_ in schema.fields))
        elif untyped:
            raise SpecError(
                "from_changelog_stream: rows of undeclared type without a schema",
                expected="schema=Schema.new_builder().column(…)….build()",
                where=where,
            )
        elif schema is not None:
            return self.by_schema(
                stream, schema, where
            )  # a declared type takes INSERTs alone, and refuses other kinds
        else:
            return self._base(stream, None, where)
        with_kind = t.Schema((*columns.fields, _KIND))
        rows = kinds if kinds is not None else stream.map(_Kinded(len(columns)), t.RowType(with_kind.fields))
        node = self._streams.node(rows._step)
        names = _names(stream) if kinds is not None else columns.names
        made = t.Schema(tuple(t.Field(name, f.type) for name, f in zip(names, columns.fields, strict=True)))
        changes = n.RowKinds(input=node, kind="take", schema=made)
        table = self._env.table_of(Step(lambda ctx: Relation.of(changes), {}, Source(""), where))
        if schema is None or kinds is None:
            return table
        want = t.Schema(tuple(t.Field(name, type_) for name, type_ in schema.fields))
        casts = implicit_casts(made, want, self._env._program.configuration, "from_changelog_stream()")
        casts = casts or tuple(InputRef(i, f.type) for i, f in enumerate(made.fields))
        fields = (t.Field(w.name, c.type) for w, c in zip(want.fields, casts, strict=True))
        fitting = n.Project(input=changes, expressions=casts, schema=t.Schema(tuple(fields)))
        return self._env.table_of(Step(lambda ctx: Relation.of(fitting), {}, Source(""), where))

    # -- parts ----------------------------------------------------------------------------------

    def _base(
        self, stream: DataStream, time: str | None, where: str, physical: Sequence[st.ColumnDef] = ()
    ) -> Table:
        """The columns of the stream under their names in a table; ``time``: a column for the event time behind them;
        ``physical``: columns with other types."""
        node = self._streams.node(stream._step)
        fields = [t.Field(name, f.type) for name, f in zip(_names(stream), stream.schema.fields, strict=True)]
        types = {c.name: c.type for c in physical}
        want = t.Schema(tuple(t.Field(f.name, types.get(f.name) or f.type) for f in fields))
        casts = implicit_casts(
            t.Schema(tuple(fields)), want, self._env._program.configuration, "from_data_stream()"
        )
        exprs: list[Any] = list(casts or (InputRef(i, f.type) for i, f in enumerate(fields)))
        out = [t.Field(f.name, e.type) for f, e in zip(want.fields, exprs, strict=True)]
        if time is not None:
            timed = t.Schema((*stream.schema.fields, t.Field(time, _TIME)))
            node = n.StreamTime(input=node, schema=timed)
            exprs.append(InputRef(len(fields), _TIME))
            out.append(t.Field(time, _TIME))
        named = n.Project(input=node, expressions=tuple(exprs), schema=t.Schema(tuple(out)))
        return self._env.table_of(Step(lambda ctx: Relation.of(named), {}, Source(""), where))

    def _declared(self, stream: DataStream, schema: Schema, where: str) -> st.CreateTable:
        """The schema as CREATE TABLE, with the stream's columns if it has no physical ones."""
        lines = list(schema.columns)
        if not schema.fields:
            of_stream = zip(_names(stream), stream.schema.types, strict=True)
            lines = [f"`{name}` {type_}" for name, type_ in of_stream] + lines
        text = f"CREATE TABLE `stream` ({', '.join([*lines, *schema.constraints])}) WITH ('connector' = 'stream')"
        statement = parse_script(text)[0]
        assert isinstance(statement, st.CreateTable)
        if statement.primary_key:
            raise UnsupportedError(
                "PRIMARY KEY of a stream's table", expected="columns and a watermark", where=where,
                remedy="leave it out: rows of a stream are only inserted",
            )  # fmt: skip
        return statement

    def _watermarked(self, table: Table, clause: st.WatermarkClause, where: str) -> Table:
        session = self._env._session
        below = table._step
        name = ".".join(clause.parts)
        if clause.text.replace(" ", "").upper() == "SOURCE_WATERMARK()":
            node = self._env._bound(below).node
            rowtimes = [node.schema.names[i] for i in Analysis().of(node).rowtimes]
            if name not in rowtimes:
                raise UnsupportedError(
                    f"SOURCE_WATERMARK() for column '{name}'",
                    expected="the event time of the stream: column_by_metadata(name, TIMESTAMP_LTZ(3), 'rowtime')",
                    got=name,
                    where=where,
                    remedy="or give the watermark by an expression of the column",
                )
            return table
        node = self._env._bound(below).node
        zone = LOCAL_TIME_ZONE.read(session.config)
        spec = declared_watermark(clause, node.schema, Source(clause.text), zone, session.catalog)
        timed = n.AssignWatermarks(input=node, watermark=spec, schema=node.schema)
        return self._env.table_of(Step(lambda ctx: Relation.of(timed), {}, Source(""), where))


class _Item:
    """A field of ``from_data_stream``: a column, perhaps with another name, or a time."""

    def __init__(self, field: Any, where: str) -> None:
        names = getattr(field, "_names", None) or ()
        node = node_of(field)
        self.alias: str | None = names[0] if names else None
        self.time: str | None = None
        if isinstance(node, WindowTime):
            self.time, node = node.args["kind"], node.this
        if not isinstance(node, exp.Column) or self.time not in (None, "ROWTIME", "PROCTIME"):
            raise SpecError(
                "from_data_stream takes columns and times",
                expected="col('a'), col('a').alias('b'), col('t').rowtime, col('p').proctime, or a Schema",
                got=str(field),
                where=where,
            )
        self.name: str = node.name

    def node(self) -> exp.Expression:
        name = identifier(self.alias or self.name)
        if self.time == "ROWTIME":
            return exp.Alias(this=column("__rowtime"), alias=name)
        if self.time == "PROCTIME":
            return exp.Alias(this=call("PROCTIME", []), alias=name)
        return exp.Alias(this=column(self.name), alias=name)


def _names(stream: DataStream) -> list[str]:
    """The names of the stream's columns in a table: a bare value is ``f0``, as in Flink."""
    return ["f0"] if is_bare(stream.schema) else list(stream.schema.names)


def _with_columns(stream: DataStream, physical: Sequence[st.ColumnDef]) -> DataStream:
    """A stream of undeclared type with the declared columns."""
    raw = is_bare(stream.schema) and isinstance(stream.schema.types[0], t.RawType)
    if not raw or not physical:
        return stream
    fields = [t.Field(c.name, c.type, row=True) for c in physical if c.type is not None]
    return stream.map(_Fields(len(fields)), t.RowType(tuple(fields)))


class _Fields:
    """A record of undeclared type as a tuple of ``width`` fields."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, record: Any) -> Any:
        return record if isinstance(record, (tuple, list, dict)) else (record,)


class _Kinded:
    """A ``Row`` as a tuple of ``width`` fields and its kind."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, record: Any) -> Any:
        if not isinstance(record, Row) or len(record) != self.width:
            raise ValueError(
                f"a record of a changelog stream is no Row of {self.width} fields: {type(record).__name__}"
            )
        return (*record, int(record.get_row_kind()))


def kinds_taken(kind: int) -> bool:
    """Whether a row of this kind is added; else it is taken back."""
    return RowKind(kind) in (RowKind.INSERT, RowKind.UPDATE_AFTER)
