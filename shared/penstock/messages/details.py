"""A job as its master knows it: REST shows it, and the archive keeps it.

All times ``…_ms`` are milliseconds since 1970.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.messages.base import Message
from penstock.messages.job_events import JobEvent
from penstock.messages.states import ExecutionState, JobStatus


class SubtaskDetails(msgspec.Struct, kw_only=True):
    """The current execution of one subtask. ``timestamps``: state → when the execution entered it, in
    milliseconds."""

    subtask_index: int
    execution_id: str
    attempt: int
    state: ExecutionState
    taskmanager_id: str | None = None
    allocation_id: str | None = None
    timestamps: dict[str, int] = {}
    metrics: dict[str, Any] = {}


class VertexDetails(msgspec.Struct, kw_only=True):
    """A vertex with its subtasks. ``operators`` and ``inputs``: what REST shows of its chain and of its
    edges."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    operators: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    subtasks: list[SubtaskDetails] = []


class CheckpointDetails(msgspec.Struct, kw_only=True):
    """One checkpoint or savepoint. ``acknowledged`` of ``total`` subtasks have sent their snapshot."""

    id: int
    status: str
    trigger_timestamp_ms: int
    kind: str = "checkpoint"
    end_timestamp_ms: int | None = None
    #: Bytes written for this checkpoint, and those bytes with all older objects that its deltas build on.
    size_bytes: int = 0
    full_size_bytes: int = 0
    acknowledged: int = 0
    total: int = 0
    path: str | None = None
    failure: str | None = None
    subtasks: list[dict[str, Any]] = []
    #: {operator, vertex_id, subtask_index, phase, ms}: the subtask that took longest, and its longest phase.
    slowest: dict[str, Any] | None = None
    #: ``command_id`` of the TriggerSavepoint that requested it.
    trigger_id: str | None = None


class JobOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One row about a job, for lists. ``tasks``: execution state → number of subtasks."""

    job_id: str
    name: str
    status: JobStatus
    start_ms: int
    end_ms: int | None = None
    attempt: int = 0
    tasks: dict[str, int] = {}
    job_type: str = "STREAMING"
    #: A query whose rows go to the client that asked it, such as a SELECT: it says nothing of jobs that somebody runs.
    interactive: bool = False


class JobDetails(Message, frozen=True, kw_only=True, tag="job-details-reply"):
    """A job with its vertices, checkpoints and exceptions. The last one is archived when the job ends.

    ``timestamps``: job status → when the job entered it. ``plan``: the text of the plan.
    """

    job_id: str
    name: str
    status: JobStatus
    attempt: int
    epoch: int
    start_ms: int
    end_ms: int | None = None
    timestamps: dict[str, int] = {}
    vertices: list[VertexDetails] = []
    #: Whether all of the job's sources end.
    bounded: bool = False
    checkpoints: list[CheckpointDetails] = []
    checkpoint_counts: dict[str, int] = {}
    restored_checkpoint_id: int = 0
    exceptions: list[dict[str, Any]] = []
    config: dict[str, str] = {}
    plan: str = ""
    #: What holds from the sources to each sink: ``jobgraph.guarantees.ChainGuarantee`` as JSON values.
    guarantees: list[dict[str, Any]] = []
    #: Why the job waits, as text ("2 slots are missing: …"); None if it does not wait.
    waiting_for: str | None = None
    #: Slots whose current step does not end: {allocation_id, taskmanager_id, tasks, frame, since_ms}.
    stalled: list[dict[str, Any]] = []
    jobmanager_id: str = ""
    result_schema: Any = None
    #: The last events of the job's life cycle, in their order. Only the archive has them.
    events: tuple[JobEvent, ...] = ()
    #: For a job whose history Spark reads first: the part that runs. Empty for other jobs.
    phase: str = ""

    @property
    def job_type(self) -> str:
        """BATCH: a bounded job on Spark; else STREAMING."""
        on_spark = any(o["kind"].startswith("spark-") for v in self.vertices for o in v.operators)
        return "BATCH" if self.bounded and on_spark else "STREAMING"

    def overview(self) -> JobOverview:
        """The row about this job, for lists."""
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
            job_type=self.job_type,
            interactive=self.result_schema is not None,
        )
