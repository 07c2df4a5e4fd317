"""SHOW JOBS, DESCRIBE JOB and STOP JOB: statements about the jobs of the cluster on which a session runs."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.statements import JobStatement

COLUMNS = ("job id", "job name", "status", "start time")

#: A statement's answer: column names and rows; without columns only that it was done, in words.
Answer = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...], str]


class ClusterJobs(Protocol):
    """The jobs of a cluster, as ``penstock.api.client.ClusterClient`` knows them."""

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, finished ones included, with ``jid``, ``name``, ``state`` and ``start-time`` (ms since 1970)."""
        ...

    def job(self, job_id: str) -> dict[str, Any]:
        """One job, with the same fields. Raises an error if there is none."""
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        ...

    def stop(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> str:
        """Stop a job with a savepoint; returns the id of the operation."""
        ...

    def location(
        self,
        job_id: str,
        trigger_id: str,
        what: str,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> str:
        """Wait for the operation ``trigger_id``; returns the path of what it made."""
        ...


def run_job_statement(
    statement: JobStatement, jobs: ClusterJobs | None, *, zone: str, directory: str | None
) -> Answer:
    """The answer to a statement about jobs.

    Args:
        statement: The statement.
        jobs: The cluster; None if the session has none.
        zone: The session's time zone, for start times.
        directory: Where the savepoint of STOP JOB goes; None: where the job's configuration says.

    Raises:
        UnsupportedError: The session has no cluster.
        PenstockError: The cluster has no such job, or is away.
    """
    if jobs is None:
        raise UnsupportedError(
            f"{statement.what} without a cluster",
            expected="a session on a running cluster",
            where=str(statement.position),
            remedy="penstock sql --cluster ADDRESS, or SET 'rest.address' = '…'",
        )
    if statement.what == "SHOW JOBS":
        found = sorted(jobs.jobs(), key=lambda job: -job["start-time"])
        return COLUMNS, tuple(_row(job, zone) for job in found), ""
    assert statement.job_id is not None
    job = jobs.job(statement.job_id)
    if statement.what == "DESCRIBE JOB":
        return COLUMNS, (_row(job, zone),), ""
    if not statement.savepoint:
        jobs.cancel(statement.job_id)
        return (), (), f"job {statement.job_id} is being cancelled"
    trigger = jobs.stop(statement.job_id, directory, drain=statement.drain)
    path = jobs.location(statement.job_id, trigger, "savepoint")
    return ("savepoint path",), ((path,),), ""


def _row(job: dict[str, Any], zone: str) -> tuple[str, ...]:
    started = datetime.datetime.fromtimestamp(job["start-time"] / 1000, ZoneInfo(zone))
    text = started.replace(tzinfo=None).isoformat(" ", "milliseconds")
    return job["jid"], job["name"], job["state"], text
