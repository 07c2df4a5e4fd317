"""The spans of a job's life, made of its events. Pure.

``JobInitialization``: from a start or restart until the job runs. ``Recovery``: from a failure until it runs again.
``Checkpoint``: of a checkpoint or savepoint, a trace of its own. ``Job``: from its first event to its last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.messages import job_events as ev
from penstock.messages.states import JobStatus
from penstock_services.common.spans import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

_STARTS = (JobStatus.CREATED, JobStatus.RESTARTING)


class JobSpans:
    """Turns the events of one master into spans.

    Args:
        name: The job's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun_ms: int | None = None
        self._starting_ms: int | None = None
        self._failure: ev.FailureNoted | None = None
        self._failures = 0

    def spans(self, event: ev.JobEvent) -> Iterator[Span]:
        """The spans that end with an event."""
        if self._begun_ms is None:
            self._begun_ms = self._starting_ms = event.timestamp_ms
        match event:
            case ev.FailureNoted():
                self._failures += 1
                self._failure = self._failure or event
            case ev.CheckpointChanged() if event.duration_ms is not None:
                yield self._checkpoint(event)
            case ev.JobStatusChanged():
                yield from self._status(event)
            case _:
                return

    def _status(self, event: ev.JobStatusChanged) -> Iterator[Span]:
        now_ms = event.timestamp_ms
        if event.status in _STARTS:
            self._starting_ms = now_ms
        elif event.status is JobStatus.RUNNING:
            if self._starting_ms is not None:
                yield self._span("JobInitialization", self._starting_ms, event, attempt=event.attempt)
            if self._failure is not None:
                yield self._recovery(self._failure, event)
            self._starting_ms = self._failure = None
        elif event.status.globally_terminal:
            assert self._begun_ms is not None
            failed = event.status is JobStatus.FAILED
            error = (self._failure.message if self._failure else "the job failed") if failed else None
            fields: dict[str, Any] = {
                "status": event.status.value,
                "attempt": event.attempt,
                "failures": self._failures,
            }
            yield self._span("Job", self._begun_ms, event, error, root=True, **fields)

    def _recovery(self, failure: ev.FailureNoted, event: ev.JobStatusChanged) -> Span:
        fields: dict[str, Any] = {
            "code": failure.code,
            "task": failure.task,
            "taskmanager": failure.taskmanager_id,
        }
        return self._span(
            "Recovery", failure.timestamp_ms, event, failure.message, attempt=event.attempt, **fields
        )

    def _checkpoint(self, event: ev.CheckpointChanged) -> Span:
        assert event.duration_ms is not None
        fields: dict[str, Any] = {
            "checkpointId": event.checkpoint_id,
            "checkpointStatus": event.status,
            "checkpointType": event.kind,
            "checkpointedSize": event.size_bytes,
            "path": event.path,
        }
        start_ms = event.timestamp_ms - event.duration_ms
        return self._span("Checkpoint", start_ms, event, event.failure, own_trace=True, **fields)

    def _span(
        self,
        name: str,
        start_ms: int,
        event: ev.JobEvent,
        error: str | None = None,
        *,
        root: bool = False,
        own_trace: bool = False,
        **fields: Any,
    ) -> Span:
        attributes = {"jobId": event.job_id, "jobName": self._name, **fields}
        return Span(name, start_ms, event.timestamp_ms, event.job_id, attributes, error, root, own_trace)
