"""The failures of a job, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock_services.dispatcher.views.common import Camel, Kebab

if TYPE_CHECKING:
    from penstock.messages.cluster import JobDetails


class ExceptionEntry(Camel, frozen=True, kw_only=True):
    """One failure. ``stacktrace``: the user's traceback comes first. ``timestamp``: ms. ``endpoint``: the id
    of the task manager."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: dict[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None
    concurrent_exceptions: list[ExceptionEntry]
    # Of ours. ``attempt``: the job's. ``not_restarted``: why the job was not restarted.
    attempt: int | None
    operator: str | None
    record: Any
    not_restarted: str | None
    restored_instead: str | None


class ExceptionHistory(Camel, frozen=True, kw_only=True):
    """The newest failures. ``truncated``: there are more."""

    entries: list[ExceptionEntry]
    truncated: bool


class JobExceptions(Kebab, frozen=True, kw_only=True):
    """``GET /jobs/{id}/exceptions``"""

    exception_history: ExceptionHistory = msgspec.field(name="exceptionHistory")
    # Of ours: the newest failure as text and as data.
    root_exception: str | None
    root_error: dict[str, Any] | None
    timestamp: int | None


def exceptions(details: JobDetails, limit: int, labels: dict[str, str] | None = None) -> JobExceptions:
    """At most ``limit`` failures that have all of the ``labels``."""
    wanted = [
        e for e in map(_entry, details.exceptions) if (labels or {}).items() <= e.failure_labels.items()
    ]
    newest = details.exceptions[0] if details.exceptions else {}
    return JobExceptions(
        exception_history=ExceptionHistory(entries=wanted[:limit], truncated=len(wanted) > limit),
        root_exception=newest.get("exception"),
        root_error=newest.get("error"),
        timestamp=newest.get("timestamp_ms"),
    )


def _entry(entry: dict[str, Any]) -> ExceptionEntry:
    error = entry.get("error") or {}
    return ExceptionEntry(
        exception_name=error.get("type", ""),
        stacktrace=entry.get("exception", ""),
        timestamp=entry.get("timestamp_ms") or -1,
        failure_labels={"code": error.get("code", "")},
        task_name=entry.get("task"),
        endpoint=entry.get("location"),
        task_manager_id=entry.get("location"),
        concurrent_exceptions=[_entry(e) for e in entry.get("concurrent", [])],
        attempt=entry.get("attempt"),
        operator=entry.get("operator"),
        record=entry.get("record"),
        not_restarted=entry.get("not_restarted"),
        restored_instead=entry.get("restored_instead"),
    )
