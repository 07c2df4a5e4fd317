"""SHOW JOBS, DESCRIBE JOB and STOP JOB against a cluster that is made up. With a real one: tests/e2e/test_sql_gateway.py."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession

JOBS = [
    {"jid": "a" * 32, "name": "first", "state": "FINISHED", "start-time": 1_700_000_000_000},
    {"jid": "b" * 32, "name": "second", "state": "RUNNING", "start-time": 1_700_000_060_500},
]
FIRST = ("a" * 32, "first", "FINISHED", "2023-11-14 22:13:20.000")
SECOND = ("b" * 32, "second", "RUNNING", "2023-11-14 22:14:20.500")
COLUMNS = ("job id", "job name", "status", "start time")


class Cluster:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def jobs(self) -> list[dict[str, Any]]:
        return list(JOBS)

    def job(self, job_id: str) -> dict[str, Any]:
        found = next((job for job in JOBS if job["jid"] == job_id), None)
        if found is None:
            raise PenstockError(f"there is no job '{job_id}'")
        return found

    def cancel(self, job_id: str) -> None:
        self.asked.append(("cancel", job_id))

    def stop(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> str:
        self.asked.append(("stop", job_id, directory, drain))
        return "trigger"

    def location(self, job_id: str, trigger_id: str, what: str, tell: Any = None) -> str:
        assert (job_id, trigger_id, what) == ("b" * 32, "trigger", "savepoint")
        return "file:///savepoints/1"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def session(cluster: Cluster) -> SqlSession:
    made = SqlSession({"table.local-time-zone": "UTC"})
    made.jobs = lambda: cluster
    return made


def test_jobs_are_shown_the_newest_first(session: SqlSession) -> None:
    result = session.execute("SHOW JOBS")
    assert (result.kind, result.columns, result.rows) == ("rows", COLUMNS, (SECOND, FIRST))


def test_start_times_are_in_the_zone_of_the_session(session: SqlSession) -> None:
    session.execute("SET 'table.local-time-zone' = 'Asia/Tokyo'")
    assert session.execute(f"DESC JOB '{'a' * 32}'").rows[0][3] == "2023-11-15 07:13:20.000"


def test_one_job_is_described(session: SqlSession) -> None:
    result = session.execute(f"DESCRIBE JOB '{'b' * 32}'")
    assert (result.columns, result.rows) == (COLUMNS, (SECOND,))


@pytest.mark.parametrize(
    ("words", "asked", "path"),
    [
        ("", ("cancel", "b" * 32), None),
        ("WITH SAVEPOINT", ("stop", "b" * 32, None, False), "file:///savepoints/1"),
        ("with savepoint with drain", ("stop", "b" * 32, None, True), "file:///savepoints/1"),
        ("WITH DRAIN WITH SAVEPOINT", ("stop", "b" * 32, None, True), "file:///savepoints/1"),
    ],
)
def test_a_job_is_stopped(
    session: SqlSession, cluster: Cluster, words: str, asked: Any, path: str | None
) -> None:
    result = session.execute(f"STOP JOB '{'b' * 32}' {words}")
    assert cluster.asked == [asked]
    if path is None:
        assert (result.kind, result.rows) == ("ddl", ())
    else:
        assert (result.kind, result.columns, result.rows) == ("rows", ("savepoint path",), ((path,),))


def test_the_savepoint_goes_where_the_session_says(session: SqlSession, cluster: Cluster) -> None:
    session.execute("SET 'execution.checkpointing.savepoint-dir' = 'file:///mine'")
    session.execute(f"STOP JOB '{'b' * 32}' WITH SAVEPOINT")
    assert cluster.asked == [("stop", "b" * 32, "file:///mine", False)]


@pytest.mark.parametrize("statement", ["DESCRIBE JOB 'c'", "STOP JOB 'c'", "STOP JOB 'c' WITH SAVEPOINT"])
def test_a_job_that_is_not_there_is_an_error(session: SqlSession, cluster: Cluster, statement: str) -> None:
    with pytest.raises(PenstockError, match="no job 'c'"):
        session.execute(statement)
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("STOP JOB abc", "syntax error at 'abc'"),
        ("STOP JOB 'a' WITH DRAIN", "syntax error at end of statement"),
        ("STOP JOB 'a' WITH LOVE", "syntax error at 'LOVE'"),
        ("DESCRIBE JOB", "syntax error at end of statement"),
    ],
)
def test_what_is_no_statement_about_jobs_is_an_error(
    session: SqlSession, statement: str, message: str
) -> None:
    with pytest.raises(PenstockError, match=message):
        session.execute(statement)


def test_without_a_cluster_the_error_says_how_to_name_one() -> None:
    with pytest.raises(PenstockError, match="SHOW JOBS without a cluster") as caught:
        SqlSession().execute("SHOW JOBS")
    assert "rest.address" in str(caught.value.remedy)
