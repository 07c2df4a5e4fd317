"""The events of a job's life cycle, found by looking at the job after each step of its master. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.messages import job_events as ev
from penstock_services.jobmanager import effects as fx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.messages.cluster import CheckpointDetails
    from penstock.messages.states import JobStatus
    from penstock_services.jobmanager.job_state import JobState

#: So many events of a job are remembered by its master, and so many go into its archive.
KEPT = 1_000
#: Of an error's message; REST has the whole.
MESSAGE_CHARACTERS = 1_000


class EventFeed:
    """The events of one master."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._sequence = 0
        self._kept: deque[ev.JobEvent] = deque(maxlen=KEPT)
        #: Of the step that is being looked at.
        self._new: list[ev.JobEvent] = []
        self._status: JobStatus = job.status

    @property
    def events(self) -> tuple[ev.JobEvent, ...]:
        """The last events, in their order."""
        return tuple(self._kept)

    def told(self, effects: Sequence[fx.Effect], now_ms: int) -> list[fx.Effect]:
        """The effects of a step, with the events that the step caused. The details that are archived get the events
        of the whole life."""
        if not self._sequence:
            self._add(ev.JobMasterChanged, now_ms, jobmanager_id=self._job.settings.jobmanager_id)
        self._look(now_ms)
        found = list(effects)
        if self._new:
            found.insert(0, fx.PublishEvents(tuple(self._new)))
            self._new.clear()
        return [self._with_events(e) if isinstance(e, fx.Archive) else e for e in found]

    def _with_events(self, effect: fx.Archive) -> fx.Archive:
        return replace(effect, details=msgspec.structs.replace(effect.details, events=self.events))

    def _look(self, now_ms: int) -> None:
        job = self._job
        for change in job.graph.take_changes():
            execution = change.execution
            self._add(
                ev.ExecutionStateChanged,
                change.timestamp_ms,
                vertex_id=execution.vertex_id,
                vertex_name=job.job_graph.vertex(execution.vertex_id).name,
                subtask_index=execution.subtask_index,
                attempt=execution.attempt,
                state=change.state,
                previous=change.previous,
                taskmanager_id=execution.taskmanager_id,
            )
        for entry in job.exceptions.take_added():
            self._failure(entry)
        for details in job.coordinator.history.take_changes():
            self._checkpoint(details, now_ms)
        if job.status is not self._status:
            previous, self._status = self._status, job.status
            self._add(
                ev.JobStatusChanged, now_ms, status=job.status, previous=previous, attempt=job.job_attempt
            )

    def _failure(self, entry: dict[str, Any]) -> None:
        error = entry["error"]
        self._add(
            ev.FailureNoted,
            entry["timestamp_ms"],
            code=str(error.get("code") or error.get("type", "")),
            message=str(error.get("message", ""))[:MESSAGE_CHARACTERS],
            attempt=entry["attempt"],
            task=entry["task"],
            taskmanager_id=entry["location"],
            concurrent=entry["among_others"],
        )

    def _checkpoint(self, details: CheckpointDetails, now_ms: int) -> None:
        end_ms = details.end_timestamp_ms
        self._add(
            ev.CheckpointChanged,
            now_ms if end_ms is None else end_ms,
            checkpoint_id=details.id,
            kind=details.kind,
            status=details.status,
            duration_ms=None if end_ms is None else end_ms - details.trigger_timestamp_ms,
            size_bytes=details.size_bytes,
            path=details.path,
            failure=details.failure,
            trigger_id=details.trigger_id,
        )

    def _add(self, event: Any, timestamp_ms: int, **fields: Any) -> None:
        self._sequence += 1
        job = self._job
        made = event(
            job_id=job.job_id,
            epoch=job.settings.epoch,
            sequence=self._sequence,
            timestamp_ms=timestamp_ms,
            **fields,
        )
        self._kept.append(made)
        self._new.append(made)
