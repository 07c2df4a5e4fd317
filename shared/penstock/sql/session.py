"""A SQL session: statements in, results out. Jobs are planned here and run elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import config as conf
from penstock.errors import PenstockError, SpecError, SqlError, UnsupportedError, nested_too_deeply
from penstock.jobgraph.plain_secrets import plain_secrets
from penstock.jobgraph.specs import SinkSpec
from penstock.plan import nodes as n
from penstock.plan.compiled import decode_plan, encode_plan
from penstock.plan.physical import plan_job
from penstock.plan.properties import Analysis
from penstock.redaction import shown_options
from penstock.sql import statements as st
from penstock.sql.calls import run_call
from penstock.sql.catalog import input_bytes, sink_ref
from penstock.sql.catalogs.session import run_catalog_statement, session_catalog
from penstock.sql.ddl import change_catalog, create_table_as
from penstock.sql.errors import Position, Source
from penstock.sql.insert_checks import check_bounded, check_together
from penstock.sql.inserting import bind_insert
from penstock.sql.job_statements import ClusterJobs, run_job_statement
from penstock.sql.parsing import parse_script
from penstock.sql.plan_files import plan_file
from penstock.sql.plans import explanation, runnable
from penstock.sql.queries import QueryBinder
from penstock.sql.results import PlannedJob, StatementResult, select_of
from penstock.sql.scope import Relation
from penstock.sql.show import describe_rows, show_rows
from penstock.sql.used_functions import python_functions
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.jobgraph.graph import FunctionArtifact, JobGraph
    from penstock.jobgraph.specs import OperatorSpec
    from penstock.plan.engine import SparkSupport

RESULT_TABLE = "*result*"
#: The first word of a statement → that of its job's name, if it is no INSERT.
_JOB_NAMES = {"TRUNCATE": "truncate", "DELETE": "delete", "UPDATE": "update"}


class SqlSession:
    """Runs statements one after another: declarations change its catalog, queries and inserts become jobs.

    Args:
        config: The session's settings, which SET changes.
        python_path: Folders for ``sys.path`` of the jobs' Python functions.
        spark: Lets jobs run on Spark. None: jobs run on the streaming engine only.
        folder: The script's folder, at which relative paths of compiled plans start. None: the working
            folder.
        result_modes: Changelog modes that a SELECT's reader takes; without ``upsert`` an update comes with the row
            that it replaces.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        python_path: Sequence[str] = (),
        spark: SparkSupport | None = None,
        folder: str | None = None,
        result_modes: tuple[str, ...] = ("append", "upsert", "retract"),
    ) -> None:
        self._spark = spark
        self._result_modes = result_modes
        self.folder = folder
        self.config: dict[str, str] = dict(config or {})
        self._initial = dict(self.config)
        self.catalog = session_catalog(lambda: self.config)
        self.python_path: Sequence[str] = tuple(python_path)
        #: Functions of the streams that a program has made tables of.
        self.stream_functions: Callable[[], Mapping[str, FunctionArtifact]] = dict
        #: Gives the cluster whose jobs SHOW JOBS and the like are about; None: there is none.
        self.jobs: Callable[[], ClusterJobs | None] = lambda: None

    # -- running statements ---------------------------------------------------------------

    def execute(self, statement_text: str) -> StatementResult:
        """The result of the one statement in ``statement_text``.

        Raises:
            SqlError: The text holds no statement or several, or the statement is wrong.
        """
        statements = parse_script(statement_text)
        if len(statements) != 1:
            raise SqlError(
                "one statement is expected", got=f"{len(statements)} statements", where="line 1, column 1"
            )
        return self.run(statements[0])

    def run_script(self, text: str) -> Iterator[StatementResult]:
        """The result of each statement of ``text``. A statement runs when its result is requested;
        the whole text is parsed first."""
        for statement in parse_script(text):
            yield self.run(statement)

    def run(self, statement: st.Statement) -> StatementResult:
        """The result of a parsed statement."""
        self.catalog.warnings.clear()
        try:
            result = self._run(statement)
            if result.job is not None:
                self.catalog.warnings.extend(plain_secrets(result.job.job_graph))
            if self.catalog.warnings:
                result = replace(result, warnings=tuple(dict.fromkeys(self.catalog.warnings)))
            return result
        except RecursionError:
            raise nested_too_deeply("statement", str(statement.position)) from None

    def _run(self, statement: st.Statement) -> StatementResult:
        match statement:
            case st.CreateTable() if statement.query is not None:
                message, insert = create_table_as(self.catalog, self.config, statement)
                if insert is None:
                    return StatementResult.of(statement, "ddl", message)
                return StatementResult.of(
                    statement, "job", message, job=self.plan_inserts((insert,), statement.position)
                )
            case (
                st.CreateTable()
                | st.CreateView()
                | st.CreateFunction()
                | st.AlterTable()
                | st.AlterColumns()
                | st.AlterView()
                | st.Drop()
            ):
                return StatementResult.of(
                    statement, "ddl", change_catalog(self.catalog, self.config, statement)
                )
            case st.SetOption() | st.ResetOption():
                return self._setting(statement)
            case st.Explain():
                text = self.explained(self.compile_job(statement.statement).job_graph, statement.details)
                return StatementResult.of(statement, "text", text)
            case st.Show():
                return StatementResult.of(statement, "rows", "", *show_rows(self.catalog, statement))
            case st.Describe():
                return StatementResult.of(statement, "rows", "", *describe_rows(self.catalog, statement))
            case st.JobStatement():
                columns, rows, message = run_job_statement(
                    statement,
                    self.jobs(),
                    zone=conf.LOCAL_TIME_ZONE.read(self.config),
                    directory=self._savepoints(),
                )
                return StatementResult.of(statement, "rows" if columns else "ddl", message, columns, rows)
            case st.ClientCommand():
                raise UnsupportedError(
                    f"{statement.word} outside the SQL client",
                    expected="a statement",
                    where=str(statement.position),
                    remedy="leave it out",
                )
            case st.Use():
                return self._use(statement)
            case st.CatalogStatement():
                done = run_catalog_statement(self.catalog.catalogs, statement)
                if isinstance(done, str):
                    return StatementResult.of(statement, "ddl", done)
                return StatementResult.of(statement, "rows", "", *done)
            case st.Call():
                done = run_call(self.catalog, statement, conf.LOCAL_TIME_ZONE.read(self.config))
                return StatementResult.of(statement, "rows", "", *done)
            case st.CompilePlan():
                message, compiled = self.compile_plan(statement)
                return StatementResult.of(
                    statement, "ddl" if compiled is None else "job", message, job=compiled
                )
            case st.Query() | st.Insert() | st.StatementSet() | st.ExecutePlan():
                return StatementResult.of(statement, "job", job=self.compile_job(statement))
        raise AssertionError(statement)

    # -- jobs --------------------------------------------------------------------------------

    def compile_job(self, statement: st.Query | st.Insert | st.StatementSet | st.ExecutePlan) -> PlannedJob:
        """The job of ``statement``. Raises UnsupportedError, with the position,
        for what the engine cannot run."""
        if isinstance(statement, st.ExecutePlan):
            return self.stored_plan(statement.path, statement.position)
        if isinstance(statement, st.Query):
            return self._plan_select(statement)
        inserts = statement.inserts if isinstance(statement, st.StatementSet) else (statement,)
        return self.plan_inserts(inserts, statement.position)

    def plan_inserts(self, inserts: Sequence[st.Insert], position: Position) -> PlannedJob:
        """One job of all ``inserts``, which reads the parts that they share once. ``position``: their
        position.

        Raises:
            SqlError: ``inserts`` is empty.
            UnsupportedError: A statement that replaces rows reads an unbounded query, or stands beside another.
        """
        if not inserts:
            raise SqlError("the statement set is empty", expected="INSERT INTO …", where=str(position))
        sinks = tuple(bind_insert(self.catalog, self.config, insert) for insert in inserts)
        check_together(self.catalog, inserts)
        verb = _JOB_NAMES.get(inserts[0].verb, "insert-into")
        name = "_".join([verb, *dict.fromkeys(s.table.name for s in sinks)])
        graph = self._plan(sinks, name, position)
        check_bounded(inserts, bounded=graph.bounded)
        return PlannedJob(graph, "insert", bounded=graph.bounded)

    def compile_plan(self, statement: st.CompilePlan) -> tuple[str, PlannedJob | None]:
        """Write the plan of ``statement`` into its file, unless the file exists.

        Returns what was done, in words, and the job of COMPILE AND EXECUTE PLAN. As in Flink, the job is the
        one in the file, also if the file existed before.

        Raises:
            SpecError: COMPILE PLAN names a file that exists, and neither IF NOT EXISTS nor
                ``table.plan.force-recompile`` is set.
        """
        file = plan_file(statement.path, self.folder, str(statement.position))
        there = file.exists()
        replaces = there and conf.PLAN_FORCE_RECOMPILE.read(self.config)
        if there and not (replaces or statement.if_not_exists or statement.execute):
            raise SpecError(
                "the compiled plan is there already",
                expected="a path where nothing is",
                got=file.located,
                where=str(statement.position),
                remedy="COMPILE PLAN … IF NOT EXISTS keeps it; "
                f"SET '{conf.PLAN_FORCE_RECOMPILE.key}' = 'true' replaces it",
            )
        if not there or (replaces and not statement.if_not_exists):
            file.write(encode_plan(self.compile_job(statement.statement).job_graph))
            message = f"the plan was written to {file.located}"
        else:
            message = f"the plan in {file.located} was there; the statement was not compiled"
        if not statement.execute:
            return message, None
        return message, self.stored_plan(statement.path, statement.position)

    def stored_plan(self, path: str, position: Position) -> PlannedJob:
        """The job of the compiled plan, or of the savepoint, at ``path``.
        ``position``: that of the statement."""
        file = plan_file(path, self.folder, str(position))
        return self.plan_of(file.read(), f"plan '{path}' ({position})" if position.line else f"plan '{path}'")

    def plan_of(self, data: bytes, where: str) -> PlannedJob:
        """The job of a compiled plan. Raises SpecError, which names ``where``, if ``data`` is not one."""
        graph = runnable(
            decode_plan(data, where),
            self.config,
            python_path=tuple(self.python_path),
            spark=self._spark,
            where=where,
        )
        collected = [s for s in _specs(graph) if isinstance(s, SinkSpec) and s.connector == "collect"]
        return (
            select_of(graph, collected[0])
            if collected
            else PlannedJob(graph, "insert", bounded=graph.bounded)
        )

    def explained(self, graph: JobGraph, details: Sequence[str]) -> str:
        """The plans of the job ``graph``, as EXPLAIN prints them. ``details``: names of what to print besides."""
        return explanation(graph, self._spark, details, self.catalog.warnings)

    def _plan_select(self, statement: st.Query) -> PlannedJob:
        source = Source(statement.text)
        binder = QueryBinder(self.catalog, self.config, source)
        relation = binder.statement(statement.query)
        # The job of an unbounded result waits for the reader; a bounded result is kept until it is read.
        table = self._result_table(relation, bounded=Analysis().of(relation.node).bounded)
        sink = n.Sink(input=relation.node, table=table, name="result", schema=table.schema)
        graph = self._plan((sink,), "select", statement.position)
        sinks = (x for x in _specs(graph) if isinstance(x, SinkSpec) and x.connector == "collect")
        return select_of(graph, next(sinks))

    def _result_table(self, relation: Relation, *, bounded: bool) -> n.TableRef:
        schema = t.Schema(relation.node.schema.fields)
        return n.TableRef(
            name=RESULT_TABLE,
            connector="collect",
            options={"connector": "collect", "bounded": str(bounded).lower()},
            physical=schema,
            schema=schema,
            sink_modes=self._result_modes,
            guarantee="exactly-once",
        )

    def _plan(self, sinks: tuple[n.Sink, ...], name: str, position: Position) -> JobGraph:
        plan = n.LogicalPlan(name=name, sinks=sinks, config=dict(self.config))
        used = python_functions(sinks)
        try:
            return plan_job(
                plan,
                {**self.catalog.functions.artifacts(used), **self.stream_functions()},
                push_down=self._push_down,
                late_sink=self._table_of(conf.LATE_TABLE),
                letter_table=self._table_of(conf.DEAD_LETTER_TABLE),
                python_path=tuple(self.python_path),
                spark=self._spark,
                input_bytes=input_bytes,
            )
        except PenstockError as err:
            err.where = err.where or str(position)
            raise

    def _table_of(self, key: conf.ConfigOption[str]) -> n.TableRef | None:
        """The table that a configuration key names, as a sink; None if it names none."""
        name = key.read(self.config)
        if not name:
            return None
        where = f"configuration key '{key.key}'"
        return sink_ref(self.catalog.table(name, where))

    def _push_down(
        self, table: n.TableRef, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        from penstock.connectors.registry import get_connector, table_info

        connector = get_connector(table.connector)
        return connector.push_down(table_info(table.physical, table.options), columns=columns, equals=equals)

    # -- settings --------------------------------------------------------------------------------

    def _setting(self, statement: st.SetOption | st.ResetOption) -> StatementResult:
        if isinstance(statement, st.ResetOption):
            if statement.key is None:
                self.config.clear()
                self.config.update(self._initial)
            elif statement.key in self._initial:
                self.config[statement.key] = self._initial[statement.key]
            else:
                self.config.pop(statement.key, None)
            return StatementResult.of(statement, "set", "reset")
        if statement.key is None:
            rows = tuple(sorted(shown_options(self.config).items()))
            return StatementResult.of(statement, "rows", "", ("key", "value"), rows)
        value = statement.value or ""
        try:
            conf.check_job({statement.key: value})
        except PenstockError as err:
            err.where = f"{statement.position}: {err.where}" if err.where else str(statement.position)
            raise
        self.config[statement.key] = value
        said = f"{statement.key} = {shown_options({statement.key: value})[statement.key]}"
        return StatementResult.of(statement, "set", said)

    def _savepoints(self) -> str | None:
        """The folder that the session sets for savepoints."""
        return conf.SAVEPOINT_DIR.read(self.config) if conf.SAVEPOINT_DIR.key in self.config else None

    def _use(self, statement: st.Use) -> StatementResult:
        catalogs, where = self.catalog.catalogs, str(statement.position)
        if statement.what == "CATALOG":
            catalogs.use_catalog(statement.name, where)
        else:
            catalogs.catalog, catalogs.database = catalogs.database_path(statement.name, where)
        return StatementResult.of(statement, "set", f"using {statement.name}")


def _specs(graph: JobGraph) -> list[OperatorSpec]:
    return [op.spec for v in graph.vertices for op in v.operators]
