"""Runs statements, and makes their results: rows at once, or the job that a statement starts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from penstock.api import execution
from penstock.api.attached import ends_with_client
from penstock.config import RUNTIME_MODE
from penstock.errors import SqlError
from penstock.sql import statements as st
from penstock.table.cluster import jobs_of, submit
from penstock.table.results import TableResult
from penstock.table.settings import ResultKind
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.results import PlannedJob, StatementResult
    from penstock.sql.session import SqlSession
    from penstock.table.settings import ExplainDetail

_OK = t.Schema((t.Field("result", t.VarCharType()),))


def run_statement(session: SqlSession, statement: st.Statement) -> TableResult:
    """Run a parsed statement. A job that it starts continues after the function returns."""
    if isinstance(statement, st.JobStatement):
        return _about_jobs(session, statement)
    return _result(session, statement, session.run(statement))


def _about_jobs(session: SqlSession, statement: st.JobStatement) -> TableResult:
    """The answer of the cluster on which the session's jobs run."""
    client = jobs_of(session.config)
    session.jobs = lambda: client
    try:
        return _result(session, statement, session.run(statement))
    finally:
        if client is not None:
            client.close()


def _result(session: SqlSession, statement: st.Statement, result: StatementResult) -> TableResult:
    for words in result.warnings if result.kind != "text" else ():
        warnings.warn(words, stacklevel=4)
    if result.job is not None:
        return started(result.job, session.config, _sinks(statement))
    if result.kind == "rows":
        schema = t.Schema(tuple(t.Field(name, t.VarCharType()) for name in result.columns))
        rows = [tuple(None if v is None else _shown(v) for v in row) for row in result.rows]
        return TableResult(schema, ResultKind.SUCCESS_WITH_CONTENT, rows, config=session.config)
    if result.kind == "text":
        return TableResult(_OK, ResultKind.SUCCESS_WITH_CONTENT, [(result.message,)], config=session.config)
    return TableResult(_OK, ResultKind.SUCCESS, [("OK",)], config=session.config)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sinks(statement: st.Statement) -> list[str]:
    """The tables that a statement writes into, in order."""
    match statement:
        case st.Insert():
            return [statement.table]
        case st.StatementSet():
            return [insert.table for insert in statement.inserts]
        case st.CreateTable():
            return [statement.name]
    return ["plan"]


def started(job: PlannedJob, config: Mapping[str, str], sinks: Sequence[str]) -> TableResult:
    """Submit a job. ``sinks``: names of the tables that it writes into."""
    if job.kind == "select":
        assert job.result_schema is not None
        execution.refuse_when_planning("a query whose rows the program reads")
        client = submit(ends_with_client(job.job_graph), config)
        return TableResult(
            job.result_schema,
            ResultKind.SUCCESS_WITH_CONTENT,
            client=client,
            selects=True,
            config=config,
            changelog=RUNTIME_MODE.read(config) == "STREAMING",
        )
    client_or_none = None if execution.recorded(job.job_graph) else submit(job.job_graph, config)
    names = dict.fromkeys(f"default_catalog.default_database.{name}" for name in sinks)
    schema = t.Schema(tuple(t.Field(name, t.BigIntType()) for name in names))
    return TableResult(
        schema,
        ResultKind.SUCCESS_WITH_CONTENT,
        [tuple(-1 for _ in names)],
        client=client_or_none,
        config=config,
    )


def explained_statement(
    session: SqlSession, statement: st.Statement, details: Sequence[ExplainDetail]
) -> str:
    """The plans of a statement. Raises SqlError for a statement that has none."""
    if isinstance(statement, st.Explain):
        statement = statement.statement
    if not isinstance(statement, (st.Insert, st.Query, st.StatementSet, st.ExecutePlan)):
        raise SqlError(
            "this statement has no plan",
            expected="a query, an INSERT, a statement set or EXECUTE PLAN",
            got=type(statement).__name__,
            where=str(statement.position),
        )
    names = tuple(getattr(detail, "name", str(detail)) for detail in details)
    return session.run(st.Explain(statement, statement.position, statement.text, names)).message
