"""Plans a whole script as one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.sql import statements as st
from penstock.sql.ddl import create_table_as
from penstock.sql.errors import Position
from penstock.sql.parsing import parse_script
from penstock.sql.results import PlannedJob
from penstock.sql.session import SqlSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.plan.engine import SparkSupport


def plan_script(
    text: str,
    config: Mapping[str, str] | None = None,
    *,
    python_path: Sequence[str] = (),
    spark: SparkSupport | None = None,
    folder: str | None = None,
) -> PlannedJob:
    """Plan a script in a new session, as ``plan_in`` does.

    Args:
        text: The script.
        config: As in ``SqlSession``.
        python_path: As in ``SqlSession``.
        spark: As in ``SqlSession``.
        folder: As in ``SqlSession``.
    """
    return plan_in(SqlSession(config, python_path=python_path, spark=spark, folder=folder), text)


def plan_in(session: SqlSession, text: str) -> PlannedJob:
    """The whole script ``text`` as one job, in ``session``.

    Declarations and SET are run; all INSERTs go into the job. Instead of them the script may have exactly one SELECT
    or one EXECUTE PLAN.

    Raises:
        SqlError: There is nothing to run, or more than one job.
    """
    inserts: list[st.Insert] = []
    queries: list[st.Query] = []
    plans: list[PlannedJob] = []
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
            case st.ExecutePlan():
                plans.append(session.compile_job(statement))
                first = statement.position
            case st.CompilePlan(execute=True):
                _, planned = session.compile_plan(statement)
                plans.extend([planned] if planned is not None else [])
                first = statement.position
            case st.CreateTable() if statement.query is not None:
                _, insert = create_table_as(session.catalog, session.config, statement)
                inserts.extend([insert] if insert is not None else [])
                first = first if first.line else statement.position
            case _:
                session.run(statement)
    if plans and (inserts or queries or len(plans) > 1):
        raise SqlError(
            "a compiled plan is a job of its own",
            expected="one EXECUTE PLAN, and no INSERT or SELECT beside it",
            got=f"{len(plans)} plans, {len(inserts)} INSERTs and {len(queries)} SELECTs",
            where=str(first),
            remedy="put the statements into one STATEMENT SET and compile that, or run the script with "
            "penstock sql -f, which makes a job of each",
        )
    if plans:
        return plans[0]
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
