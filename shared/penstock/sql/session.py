"""A SQL session: statements in, results out. Jobs are planned here and run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.config import LATE_TABLE, OPTIONS, check_keys
from penstock.errors import PenstockError, SqlError, UnsupportedError
from penstock.functions.expr import Expr, PythonCall, children
from penstock.functions.expr import Literal as LiteralExpr
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import SinkSpec
from penstock.plan import nodes as n
from penstock.plan.physical import plan_job
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import walk
from penstock.sql import statements as st
from penstock.sql.catalog import Catalog, View, build_table, sink_ref, with_options
from penstock.sql.errors import Position, Source, did_you_mean
from penstock.sql.functions import load_function
from penstock.sql.parsing import parse_script
from penstock.sql.queries import QueryBinder
from penstock.sql.scope import Relation
from penstock.sql.show import describe_rows, show_rows
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.jobgraph.graph import JobGraph
    from penstock.plan.engine import SparkSupport

RESULT_TABLE = "*result*"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job ready to submit. ``result_keys``: columns that a SELECT's rows are updated by,
    None when its changelog must be materialised row by row."""

    job_graph: JobGraph
    kind: Literal["select", "insert"]
    result_schema: t.Schema | None = None
    mode: Literal["append", "upsert", "retract"] = "append"
    result_keys: tuple[int, ...] | None = None
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class StatementResult:
    """``kind`` ddl: done; set: a setting changed; text: EXPLAIN; rows: SHOW, DESCRIBE;
    job: a query or inserts to run."""

    kind: Literal["ddl", "set", "text", "rows", "job"]
    message: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    job: PlannedJob | None = None
    statement: st.Statement | None = None
    position: Position = field(default_factory=Position)


class SqlSession:
    """``config``: the session's settings, changed by SET. ``spark``: jobs may run on Spark
    (None: on the streaming engine only)."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        python_path: Sequence[str] = (),
        spark: SparkSupport | None = None,
    ) -> None:
        self._spark = spark
        self.config: dict[str, str] = dict(config or {})
        self._initial = dict(self.config)
        self.catalog = Catalog()
        self.python_path = tuple(python_path)

    # -- running statements ---------------------------------------------------------------

    def execute(self, statement_text: str) -> StatementResult:
        """One statement. SqlError when the text holds none or several."""
        statements = parse_script(statement_text)
        if len(statements) != 1:
            raise SqlError(
                "one statement is expected", got=f"{len(statements)} statements", where="line 1, column 1"
            )
        return self.run(statements[0])

    def run_script(self, text: str) -> Iterator[StatementResult]:
        """Each statement's result, as it is asked for. The whole text is parsed first."""
        for statement in parse_script(text):
            yield self.run(statement)

    def run(self, statement: st.Statement) -> StatementResult:
        match statement:
            case st.CreateTable() | st.CreateView() | st.CreateFunction() | st.Drop():
                message = self._ddl(statement)
                return StatementResult("ddl", message, statement=statement, position=statement.position)
            case st.SetOption() | st.ResetOption():
                return self._setting(statement)
            case st.Explain():
                planned = self.compile_job(statement.statement)
                return StatementResult(
                    "text", planned.job_graph.plan, statement=statement, position=statement.position
                )
            case st.Show():
                columns, rows = show_rows(self.catalog, statement)
                return StatementResult(
                    "rows", "", columns, rows, statement=statement, position=statement.position
                )
            case st.Describe():
                columns, rows = describe_rows(self.catalog, statement)
                return StatementResult(
                    "rows", "", columns, rows, statement=statement, position=statement.position
                )
            case st.Use():
                return self._use(statement)
            case st.Query() | st.Insert() | st.StatementSet():
                job = self.compile_job(statement)
                return StatementResult("job", job=job, statement=statement, position=statement.position)
        raise AssertionError(statement)

    # -- jobs --------------------------------------------------------------------------------

    def compile_job(self, statement: st.Query | st.Insert | st.StatementSet) -> PlannedJob:
        """A statement's job graph. UnsupportedError for what the engine cannot run, naming
        the statement's place."""
        if isinstance(statement, st.Query):
            return self._plan_select(statement)
        inserts = statement.inserts if isinstance(statement, st.StatementSet) else (statement,)
        return self.plan_inserts(inserts, statement.position)

    def plan_inserts(self, inserts: Sequence[st.Insert], position: Position) -> PlannedJob:
        """All inserts as one job, sharing what they have in common."""
        if not inserts:
            raise SqlError("the statement set is empty", expected="INSERT INTO …", where=str(position))
        sinks = tuple(self._insert(insert) for insert in inserts)
        name = "insert-into_" + "_".join(dict.fromkeys(s.table.name for s in sinks))
        graph = self._plan(sinks, name, position)
        return PlannedJob(graph, "insert", bounded=graph.bounded)

    def _plan_select(self, statement: st.Query) -> PlannedJob:
        source = Source(statement.text)
        binder = QueryBinder(self.catalog, self.config, source)
        relation = self._result(binder, binder.query(statement.query))
        # An unbounded result waits for whoever reads it; a bounded one is kept for them.
        table = self._result_table(relation, bounded=Analysis().of(relation.node).bounded)
        sink = n.Sink(input=relation.node, table=table, name="result", schema=table.schema)
        graph = self._plan((sink,), "select", statement.position)
        specs = [op.spec for v in graph.vertices for op in v.operators]
        spec = next(x for x in specs if isinstance(x, SinkSpec) and x.connector == "collect")
        return PlannedJob(
            graph,
            "select",
            table.schema,
            spec.mode,
            spec.keys if spec.mode == "upsert" else None,
            graph.bounded,
        )

    def _result(self, binder: QueryBinder, relation: Relation) -> Relation:
        relation = binder._compact(relation)
        return relation

    def _result_table(self, relation: Relation, *, bounded: bool) -> n.TableRef:
        schema = t.Schema(relation.node.schema.fields)
        return n.TableRef(
            name=RESULT_TABLE,
            connector="collect",
            options={"connector": "collect", "bounded": str(bounded).lower()},
            physical=schema,
            schema=schema,
            sink_modes=("append", "upsert", "retract"),
            guarantee="exactly-once",
        )

    def _insert(self, insert: st.Insert) -> n.Sink:
        source = Source(insert.text)
        if insert.overwrite:
            raise UnsupportedError("INSERT OVERWRITE", where=str(insert.position), remedy="use INSERT INTO")
        if insert.table in self.catalog.views:
            raise SqlError(
                f"'{insert.table}' is a view",
                expected="a table",
                got=repr(insert.table),
                where=str(insert.position),
            )
        table = self.catalog.table(insert.table, str(insert.position))
        ref = sink_ref(with_options(table, insert.options))
        binder = QueryBinder(self.catalog, self.config, source)
        relation = binder._compact(binder.query(insert.query))
        node = self._fit(binder, insert, relation, ref)
        return n.Sink(input=node, table=ref, upsert_keys=(), schema=ref.schema)

    def _fit(self, binder: QueryBinder, insert: st.Insert, relation: Relation, table: n.TableRef) -> n.Node:
        """The query's columns, by position, as the table's columns."""
        source = binder.source
        wanted = list(table.schema.fields)
        targets = wanted
        if insert.columns:
            names = {f.name: f for f in wanted}
            for identifier in insert.columns:
                if identifier.name not in names:
                    raise source.error(
                        f"table '{table.name}' has no column '{identifier.name}'",
                        identifier,
                        expected="one of " + ", ".join(names),
                        got=repr(identifier.name),
                        remedy=did_you_mean(identifier.name, names),
                    )
            targets = [names[i.name] for i in insert.columns]
        given = relation.visible
        if len(given) != len(targets):
            raise SqlError(
                f"the query gives {len(given)} columns, table '{table.name}' takes {len(targets)}",
                expected=", ".join(f"{f.name} {f.type}" for f in targets),
                got=", ".join(f"{c.name} {c.type}" for c in given),
                where=source.where(insert.query),
            )
        values: dict[str, Expr] = {}
        for column, field_ in zip(given, targets, strict=True):
            values[field_.name] = self._assign(
                binder, insert, relation.ref(column), column.name, field_, table
            )
        expressions: list[Expr] = []
        for field_ in wanted:
            value = values.get(field_.name)
            if value is None:
                if not field_.type.nullable:
                    raise SqlError(
                        f"column '{field_.name}' of '{table.name}' is NOT NULL and gets no value",
                        expected=f"a value for {field_.name}",
                        where=str(insert.position),
                    )
                value = LiteralExpr(None, field_.type)
            expressions.append(value)
        schema = t.Schema(tuple(t.Field(f.name, e.type) for f, e in zip(wanted, expressions, strict=True)))
        return n.Project(input=relation.node, expressions=tuple(expressions), schema=schema)

    def _assign(
        self,
        binder: QueryBinder,
        insert: st.Insert,
        value: Expr,
        name: str,
        target: t.Field,
        table: n.TableRef,
    ) -> Expr:
        have, want = value.type.with_nullable(True), target.type.with_nullable(True)
        if have == want:
            return value
        if not assignable(have, want):
            raise SqlError(
                f"column '{name}' does not fit column '{target.name}' of table '{table.name}'",
                expected=f"{target.name} {target.type}",
                got=f"{name} {value.type}",
                where=binder.source.where(insert.query),
                remedy=f"CAST({name} AS {target.type.sql()})",
            )
        return make_call(
            "CAST", [value], type=target.type.with_nullable(value.type.nullable), zone=binder.zone
        )

    def _plan(self, sinks: tuple[n.Sink, ...], name: str, position: Position) -> JobGraph:
        plan = n.LogicalPlan(name=name, sinks=sinks, config=dict(self.config))
        used = _python_functions(sinks)
        try:
            return plan_job(
                plan,
                self.catalog.functions.artifacts(used),
                push_down=self._push_down,
                late_sink=self._late_sink(),
                python_path=self.python_path,
                spark=self._spark,
            )
        except PenstockError as err:
            err.where = err.where or str(position)
            raise

    def _late_sink(self) -> n.TableRef | None:
        name = LATE_TABLE.read(self.config)
        if not name:
            return None
        where = f"configuration key '{LATE_TABLE.key}'"
        return sink_ref(self.catalog.table(name, where))

    def _push_down(
        self, table: n.TableRef, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        from penstock.connectors.registry import get_connector, table_info

        connector = get_connector(table.connector)
        return connector.push_down(table_info(table.physical, table.options), columns=columns, equals=equals)

    # -- DDL and settings ----------------------------------------------------------------------

    def _ddl(self, statement: st.CreateTable | st.CreateView | st.CreateFunction | st.Drop) -> str:
        where = str(statement.position)
        match statement:
            case st.CreateTable():
                return self._create_table(statement, where)
            case st.CreateView():
                exists = statement.name in self.catalog.views
                if exists and statement.if_not_exists:
                    return f"view '{statement.name}' exists already"
                if not (exists and statement.or_replace):
                    self.catalog.check_free(statement.name, where)
                self.catalog.views[statement.name] = self._view(statement)
                return f"view '{statement.name}' created"
            case st.CreateFunction():
                if statement.language != "PYTHON":
                    raise UnsupportedError(
                        f"functions in {statement.language}", expected="LANGUAGE PYTHON", where=where
                    )
                if self.catalog.functions.has(statement.name):
                    if statement.if_not_exists:
                        return f"function '{statement.name}' exists already"
                    raise SqlError(
                        f"function '{statement.name}' exists already", where=where, remedy="DROP it first"
                    )
                self.catalog.functions.add(load_function(statement.name, statement.target, where=where))
                return f"function '{statement.name}' created"
            case st.Drop():
                return self._drop(statement, where)
        raise AssertionError(statement)

    def _create_table(self, statement: st.CreateTable, where: str) -> str:
        if statement.name in self.catalog.tables and statement.if_not_exists:
            return f"table '{statement.name}' exists already"
        self.catalog.check_free(statement.name, where)
        if statement.query is not None:
            raise UnsupportedError(
                "CREATE TABLE … AS SELECT", where=where, remedy="CREATE TABLE with columns, then INSERT INTO"
            )
        zone = QueryBinder(self.catalog, self.config, Source(statement.text)).zone
        table = build_table(statement, self.catalog, zone=zone)
        from penstock.connectors.registry import connector_of

        connector_of(table.options, where=f"table '{table.name}' ({where})")
        self.catalog.tables[statement.name] = table
        return f"table '{statement.name}' created"

    def _view(self, statement: st.CreateView) -> View:
        binder = QueryBinder(self.catalog, self.config, Source(statement.text))
        relation = binder._compact(binder.query(statement.query))
        if statement.columns and len(statement.columns) != len(relation.visible):
            raise SqlError(
                f"view '{statement.name}' names {len(statement.columns)} columns",
                expected=f"{len(relation.visible)} names",
                got=", ".join(statement.columns),
                where=str(statement.position),
            )
        names = statement.columns or tuple(c.name for c in relation.visible)
        types = [c.type for c in relation.visible]
        schema = t.Schema(tuple(t.Field(a, b) for a, b in zip(names, types, strict=True)))
        return View(
            statement.name, statement.query, tuple(names), schema, statement.text, statement.temporary
        )

    def _drop(self, statement: st.Drop, where: str) -> str:
        kind, name = statement.kind.lower(), statement.name
        if statement.kind == "FUNCTION":
            found = self.catalog.functions.remove(name)
            known = self.catalog.functions.names()
        else:
            store: dict[str, Any] = self.catalog.tables if statement.kind == "TABLE" else self.catalog.views
            known = list(store)
            found = store.pop(name, None) is not None
        if not found and not statement.if_exists:
            raise self.catalog.unknown(name, where, known, kind)
        return f"{kind} '{name}' dropped" if found else f"no {kind} '{name}'"

    def _setting(self, statement: st.SetOption | st.ResetOption) -> StatementResult:
        if isinstance(statement, st.ResetOption):
            if statement.key is None:
                self.config = dict(self._initial)
            elif statement.key in self._initial:
                self.config[statement.key] = self._initial[statement.key]
            else:
                self.config.pop(statement.key, None)
            return StatementResult("set", "reset", statement=statement, position=statement.position)
        if statement.key is None:
            rows = tuple(sorted(self.config.items()))
            return StatementResult(
                "rows", "", ("key", "value"), rows, statement=statement, position=statement.position
            )
        value = statement.value or ""
        try:
            check_keys({statement.key: value})
            if statement.key in OPTIONS:
                OPTIONS[statement.key].read({statement.key: value})
        except PenstockError as err:
            err.where = str(statement.position)
            raise
        self.config[statement.key] = value
        return StatementResult(
            "set", f"{statement.key} = {value}", statement=statement, position=statement.position
        )

    def _use(self, statement: st.Use) -> StatementResult:
        if statement.name not in ("default_catalog", "default_database", "default_catalog.default_database"):
            raise UnsupportedError(
                f"{statement.what.lower()} '{statement.name}'",
                expected="default_catalog.default_database",
                where=str(statement.position),
            )
        return StatementResult(
            "set", f"using {statement.name}", statement=statement, position=statement.position
        )


def assignable(have: t.LogicalType, want: t.LogicalType) -> bool:
    """Whether INSERT casts implicitly: within numbers, strings, binaries, timestamps."""
    numbers = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
    for family in (numbers, t.STRINGS, t.BINARIES):
        if isinstance(have, family) and isinstance(want, family):
            return True
    if isinstance(have, t.NullType):
        return True
    if isinstance(have, (t.DateType, *t.TIMESTAMPS)) and isinstance(want, t.TIMESTAMPS):
        return True
    if isinstance(have, t.TimeType) and isinstance(want, t.TimeType):
        return True
    if isinstance(have, t.ArrayType) and isinstance(want, t.ArrayType):
        return assignable(have.element, want.element)
    if isinstance(have, t.MapType) and isinstance(want, t.MapType):
        return assignable(have.key, want.key) and assignable(have.value, want.value)
    if isinstance(have, t.RowType) and isinstance(want, t.RowType):
        return len(have.fields) == len(want.fields) and all(
            assignable(a.type, b.type) for a, b in zip(have.fields, want.fields, strict=True)
        )
    return have.with_nullable(True) == want.with_nullable(True)


def _python_functions(sinks: Sequence[n.Sink]) -> list[str]:
    names: set[str] = set()

    def visit(expr: Expr | None) -> None:
        if expr is None:
            return
        if isinstance(expr, PythonCall):
            names.add(expr.function)
        for child in children(expr):
            visit(child)

    for node in walk(sinks):
        match node:
            case n.Project():
                for e in node.expressions:
                    visit(e)
            case n.Filter() | n.Join() | n.TemporalJoin():
                visit(node.condition)
            case n.Scan():
                for e in node.table.computed or ():
                    visit(e)
            case n.Correlate():
                for e in node.args:
                    visit(e)
                if not node.builtin:
                    names.add(node.function)
            case n.Aggregate() | n.WindowAggregate() | n.Over():
                names.update(c.python for c in node.aggregates if c.python)
    return sorted(names)


def plan_script(
    text: str,
    config: Mapping[str, str] | None = None,
    *,
    python_path: Sequence[str] = (),
    spark: SparkSupport | None = None,
) -> PlannedJob:
    """A whole script as one job: DDL and SET are run, all INSERTs go into one job; or the
    script has exactly one SELECT instead."""
    session = SqlSession(config, python_path=python_path, spark=spark)
    inserts: list[st.Insert] = []
    queries: list[st.Query] = []
    first = Position()
    for statement in parse_script(text):
        match statement:
            case st.Insert():
                inserts.append(statement)
                first = first if first.line else statement.position
            case st.StatementSet():
                inserts.extend(statement.inserts)
                first = first if first.line else statement.position
            case st.Query():
                queries.append(statement)
            case _:
                session.run(statement)
    if queries and (inserts or len(queries) > 1):
        raise SqlError(
            "a job is made of INSERTs, or of one SELECT",
            expected="INSERT INTO statements only, or exactly one SELECT",
            got=f"{len(inserts)} INSERTs and {len(queries)} SELECTs",
            where=str(queries[-1].position),
        )
    if queries:
        return session.compile_job(queries[0])
    if not inserts:
        raise SqlError(
            "the script starts no job", expected="INSERT INTO … or SELECT …", got="no such statement"
        )
    return session.plan_inserts(inserts, first)
