"""Applications. Each job is the only job of an application with the same id and name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.common import Camel, Shape, Times, times
from penstock_services.dispatcher.views.jobs import JobRow, job_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.cluster import JobDetails, JobOverview

_J = JobStatus
#: Job status → state of the application, where the names differ.
_STATES = {
    _J.INITIALIZING: "CREATED",
    _J.RECONCILING: "RUNNING",
    _J.RESTARTING: "RUNNING",
    _J.SUSPENDED: "RUNNING",
    _J.CANCELLING: "CANCELING",
}
_ALL = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED")


class ApplicationRow(Times, frozen=True, kw_only=True):
    """One application in a list. ``jobs``: every job status → number of jobs."""

    id: str
    name: str
    status: str
    jobs: dict[str, int]


class ApplicationsOverview(Shape, frozen=True, kw_only=True):
    """``GET /applications/overview``"""

    applications: list[ApplicationRow]


class Application(Times, frozen=True, kw_only=True):
    """``GET /applications/{id}``. ``timestamps``: state → when it was last entered, in ms; 0: never."""

    id: str
    name: str
    status: str
    timestamps: dict[str, int]
    jobs: list[JobRow]


class ApplicationException(Camel, frozen=True, kw_only=True):
    """One failure of the application's job. ``timestamp``: ms."""

    exception_name: str
    stacktrace: str
    timestamp: int
    job_id: str


class ApplicationExceptionHistory(Camel, frozen=True, kw_only=True):
    """The failures, newest first."""

    entries: list[ApplicationException]


class ApplicationExceptions(Camel, frozen=True, kw_only=True):
    """``GET /applications/{id}/exceptions``"""

    exception_history: ApplicationExceptionHistory


def _state(status: JobStatus) -> str:
    return _STATES.get(status, status.value)


def overview(jobs: Iterable[JobOverview], now_ms: int) -> ApplicationsOverview:
    """All applications."""
    return ApplicationsOverview(
        applications=[
            ApplicationRow(
                id=job.job_id,
                name=job.name,
                status=_state(job.status),
                **times(job.start_ms, job.end_ms, now_ms),
                jobs={status.value: int(status is job.status) for status in JobStatus},
            )
            for job in jobs
        ]
    )


def application(details: JobDetails, now_ms: int) -> Application:
    """One application."""
    entered = dict.fromkeys(_ALL, 0)
    for status in JobStatus:
        name = _state(status)
        entered[name] = max(entered[name], details.timestamps.get(status.value, 0))
    return Application(
        id=details.job_id,
        name=details.name,
        status=_state(details.status),
        **times(details.start_ms, details.end_ms, now_ms),
        timestamps=entered,
        jobs=[job_row(details.overview(), now_ms)],
    )


def application_exceptions(details: JobDetails) -> ApplicationExceptions:
    """The failures of an application's job."""
    entries = [
        ApplicationException(
            exception_name=(entry.get("error") or {}).get("type", ""),
            stacktrace=entry.get("exception", ""),
            timestamp=entry.get("timestamp_ms") or -1,
            job_id=details.job_id,
        )
        for entry in details.exceptions
    ]
    return ApplicationExceptions(exception_history=ApplicationExceptionHistory(entries=entries))
