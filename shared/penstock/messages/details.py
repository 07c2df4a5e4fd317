"""Everything a master knows of its job, as REST shows it and the archive keeps it."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.messages.base import Message
from penstock.messages.states import ExecutionState, JobStatus


class SubtaskDetails(msgspec.Struct, kw_only=True):
    subtask_index: int
    execution_id: str
    attempt: int
    state: ExecutionState
    taskmanager_id: str | None = None
    allocation_id: str | None = None
    timestamps: dict[str, int] = {}
    metrics: dict[str, Any] = {}


class VertexDetails(msgspec.Struct, kw_only=True):
    id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    subtasks: list[SubtaskDetails] = []


class CheckpointDetails(msgspec.Struct, kw_only=True):
    id: int
    status: str
    trigger_timestamp_ms: int
    kind: str = "checkpoint"
    end_timestamp_ms: int | None = None
    #: written for it, and with what its deltas build on
    size_bytes: int = 0
    full_size_bytes: int = 0
    acknowledged: int = 0
    total: int = 0
    path: str | None = None
    failure: str | None = None
    subtasks: list[dict[str, Any]] = []
    #: {operator, vertex_id, subtask_index, phase, ms}: who held it up most, and in what.
    slowest: dict[str, Any] | None = None
    #: ``command_id`` of the TriggerSavepoint that asked for it.
    trigger_id: str | None = None


class JobOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One line on a job, for lists. ``tasks``: execution state → number of subtasks."""

    job_id: str
    name: str
    status: JobStatus
    start_ms: int
    end_ms: int | None = None
    attempt: int = 0
    tasks: dict[str, int] = {}


class JobDetails(Message, frozen=True, kw_only=True, tag="job-details-reply"):
    """Everything a master knows of its job; archived on its end."""

    job_id: str
    name: str
    status: JobStatus
    attempt: int
    epoch: int
    start_ms: int
    end_ms: int | None = None
    timestamps: dict[str, int] = {}
    vertices: list[VertexDetails] = []
    #: all of its sources end
    bounded: bool = False
    checkpoints: list[CheckpointDetails] = []
    checkpoint_counts: dict[str, int] = {}
    restored_checkpoint_id: int = 0
    exceptions: list[dict[str, Any]] = []
    config: dict[str, str] = {}
    plan: str = ""
    #: Why it waits, when it waits ("2 slots are missing: …").
    waiting_for: str | None = None
    #: Slots that hang in a step: {allocation_id, taskmanager_id, tasks, frame, since_ms}.
    stalled: list[dict[str, Any]] = []
    jobmanager_id: str = ""
    result_schema: Any = None
    #: Of a job whose history Spark reads first: which part of it runs.
    phase: str = ""

    def overview(self) -> JobOverview:
        tasks: dict[str, int] = {}
        for vertex in self.vertices:
            for subtask in vertex.subtasks:
                tasks[subtask.state.value] = tasks.get(subtask.state.value, 0) + 1
        return JobOverview(
            job_id=self.job_id,
            name=self.name,
            status=self.status,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            attempt=self.attempt,
            tasks=tasks,
        )
