"""Events of a job's life cycle, published on ``<cluster>.jobs.<job>.events`` by the job's master.

An event is told once and may be lost on its way; ``epoch`` and ``sequence`` show a gap, and ``RequestJobEvents`` asks the
master for what it still knows. No decision depends on an event.
"""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.messages.base import Message
from penstock.messages.states import ExecutionState, JobStatus


class JobEventBase(Message, frozen=True, kw_only=True):
    """What every event has. ``epoch``: of the master that tells it. ``sequence``: counts the master's events from 1.
    ``timestamp_ms``: milliseconds since 1970."""

    job_id: str
    epoch: int
    sequence: int
    timestamp_ms: int

    @property
    def position(self) -> tuple[int, int]:
        """Orders the events of one job."""
        return self.epoch, self.sequence

    @property
    def event_id(self) -> str:
        """``<job>:<epoch>-<sequence>``: what a reader gives as Last-Event-ID."""
        return f"{self.job_id}:{self.epoch}-{self.sequence}"


class JobMasterChanged(JobEventBase, frozen=True, kw_only=True, tag="job-master-changed"):
    """A master leads the job from now on: the first event of each epoch."""

    jobmanager_id: str


class JobStatusChanged(JobEventBase, frozen=True, kw_only=True, tag="job-status-changed"):
    """The job has another status. ``attempt``: how often it was started."""

    status: JobStatus
    previous: JobStatus
    attempt: int


class ExecutionStateChanged(JobEventBase, frozen=True, kw_only=True, tag="execution-state-changed"):
    """A subtask's execution has another state. ``previous``: None for a new execution, or for one whose task the
    master has just adopted."""

    vertex_id: str
    vertex_name: str
    subtask_index: int
    attempt: int
    state: ExecutionState
    previous: ExecutionState | None = None
    taskmanager_id: str | None = None


class CheckpointChanged(JobEventBase, frozen=True, kw_only=True, tag="checkpoint-changed"):
    """A checkpoint or savepoint has begun (IN_PROGRESS), is COMPLETED or FAILED. ``kind``: checkpoint, savepoint, stop or
    drain. ``checkpoint_id``: 0 if it never began. ``size_bytes``: written for it."""

    checkpoint_id: int
    kind: str
    status: str
    duration_ms: int | None = None
    size_bytes: int = 0
    path: str | None = None
    failure: str | None = None
    trigger_id: str | None = None


class FailureNoted(JobEventBase, frozen=True, kw_only=True, tag="failure-noted"):
    """A failure of the job. ``code`` and ``message``: of the error, in short; GET /jobs/{id}/exceptions has the
    traceback. ``concurrent``: it came before the job had restarted after an earlier one."""

    code: str
    message: str
    attempt: int
    task: str | None = None
    taskmanager_id: str | None = None
    concurrent: bool = False


JobEvent = Union[JobMasterChanged, JobStatusChanged, ExecutionStateChanged, CheckpointChanged, FailureNoted]


class RequestJobEvents(Message, frozen=True, kw_only=True, tag="job-events"):
    """Requests ``JobEvents``: those after (``epoch``, ``sequence``); with 0 and 0 all that are known."""

    job_id: str
    epoch: int = 0
    sequence: int = 0


class JobEvents(Message, frozen=True, kw_only=True, tag="job-events-told"):
    """Events in their order. ``complete``: False if events between the asked position and the first of these are
    forgotten."""

    events: tuple[JobEvent, ...]
    complete: bool = True


def after(events: tuple[JobEvent, ...], epoch: int, sequence: int) -> JobEvents:
    """The events after a position, of all that are known."""
    found = tuple(event for event in events if event.position > (epoch, sequence))
    known = any(event.position == (epoch, sequence) for event in events)
    follows = bool(events) and events[0].position == (epoch, sequence + 1)
    from_start = not sequence and (not events or events[0].sequence == 1)
    return JobEvents(events=found, complete=known or follows or from_start)


_JobEvent = msgspec.json.Decoder(JobEvent)


def decode_event(data: bytes) -> JobEvent:
    """An event from the bus. Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError."""
    event: JobEvent = _JobEvent.decode(data)
    return event
