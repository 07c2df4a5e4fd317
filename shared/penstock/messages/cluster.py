"""Dispatcher, job master, resource manager and task manager, over NATS.

Subjects (``<cluster>`` is the cluster's name, ``penstock`` by default)::

    <cluster>.jobs.submit                     any dispatcher     plain JSON/YAML spec or SubmitJob → SubmitReply
    <cluster>.jobs.list | .status | .cancel   any dispatcher     (what REST offers, by bus)
    <cluster>.jobmanager.run                  any jobmanager     RunJob → Ack: bid for the job's lease
    <cluster>.job.<job>.<verb>                the job's master   ToJobMaster → JobMasterReply
    <cluster>.resourcemanager.<verb>          the leading RM     ToResourceManager → reply
    <cluster>.taskmanager.<tm>.<verb>         that task manager  ToTaskManager → reply
    <cluster>.taskmanagers.<verb>             all of them        ToTaskManagers: no reply
    <cluster>.events.>                        anyone             notifications (never the truth)

``<verb>`` is the message's tag. Every command has ``command_id`` (idempotent repeats) and,
where a master speaks, ``epoch`` (its fencing token: an old one is refused with
``Refused``).
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.messages.slot import (
    CancelTasks,
    CheckpointAborted,
    CheckpointComplete,
    Deploy,
    FromSlot,
    MasterChanged,
    StateHandle,
    TaskDescriptor,
    TriggerCheckpoint,
)
from penstock.messages.states import ExecutionState, JobStatus


class _Msg(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


# -- replies ----------------------------------------------------------------------------------


class Ack(_Msg, frozen=True, kw_only=True, tag="ack"):
    """Done, or already done."""


class Refused(_Msg, frozen=True, kw_only=True, tag="refused"):
    """Not done. ``reason`` is a sentence; ``fenced`` when the sender's epoch is old;
    ``no_slot`` when the allocation is unknown here: whatever ran in it is gone."""

    reason: str
    fenced: bool = False
    no_slot: bool = False


class Failed(_Msg, frozen=True, kw_only=True, tag="failed"):
    """The command raised: ``PenstockError.to_dict()``."""

    error: dict[str, Any]


# -- jobs --------------------------------------------------------------------------------------


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user submits, as JSON or YAML. Exactly one of ``sql``, ``python`` and
    ``job_graph`` (an already planned job, from the CLI).

    ``sql``: a script; its INSERTs (or one SELECT) make one job.
    ``python``: source text of a module that builds a job on
    ``StreamExecutionEnvironment``; ``entry``: a function in it to call, else its
    top level runs with ``__name__ == "__main__"``.
    ``files``: object keys of archives put on ``sys.path``.
    """

    name: str | None = None
    job_id: str | None = None
    sql: str | None = None
    python: str | None = None
    entry: str | None = None
    args: list[str] = []
    files: list[str] = []
    parallelism: int | None = None
    config: dict[str, str | int | float | bool] = {}
    job_graph: dict[str, Any] | None = None


class SubmitJob(_Msg, frozen=True, kw_only=True, tag="submit-job"):
    command_id: str
    spec: JobSpec


class SubmitReply(_Msg, frozen=True, kw_only=True, tag="submit-reply"):
    job_id: str
    name: str
    #: False when a job of this id existed already (the submission was a repeat).
    created: bool = True


class RunJob(_Msg, frozen=True, kw_only=True, tag="run-job"):
    """An accepted job (its JobAccepted entry is in the decision log)."""

    command_id: str
    job_id: str


# -- to the job master ----------------------------------------------------------------------------


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a task manager knows of one task: enough for a new master to go on with it.
    ``final``: the last snapshot of a FINISHED one."""

    execution_id: str
    vertex_id: str
    subtask_index: int
    state: ExecutionState
    wants_final_checkpoint: bool = False
    final: StateHandle | None = None


class SlotDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """What runs in a slot. ``confirmed_checkpoint_id``: the last one it was told is
    complete; ``highest_checkpoint_id``: the last one it was told of, or took part in."""

    job_attempt: int
    epoch: int
    tasks: tuple[TaskReport, ...]
    confirmed_checkpoint_id: int = 0
    highest_checkpoint_id: int = 0


class SlotOffer(msgspec.Struct, frozen=True, kw_only=True):
    """``deployed`` None: nothing runs in it."""

    allocation_id: str
    slot_index: int
    deployed: SlotDeployment | None = None


class OfferSlots(_Msg, frozen=True, kw_only=True, tag="offer-slots"):
    """A task manager offers slots that the resource manager told it to give."""

    command_id: str
    job_id: str
    taskmanager_id: str
    host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotOffer, ...]


class OfferReply(_Msg, frozen=True, kw_only=True, tag="offer-reply"):
    accepted: tuple[str, ...]


class SlotReport(_Msg, frozen=True, kw_only=True, tag="slot-report"):
    """Relayed reports of a slot, in order."""

    job_id: str
    taskmanager_id: str
    allocation_id: str
    reports: tuple[FromSlot, ...]


class SlotLost(_Msg, frozen=True, kw_only=True, tag="slot-lost"):
    """A slot process died (pidfd) or was killed by its task manager. ``exit_code``: of a
    process that ended (negative: by that signal), None when it is not known."""

    command_id: str
    job_id: str
    taskmanager_id: str
    allocation_id: str
    reason: str
    exit_code: int | None = None


class TaskManagerLost(_Msg, frozen=True, kw_only=True, tag="taskmanager-lost"):
    """From the resource manager: heartbeats stopped or the process left."""

    command_id: str
    job_id: str
    taskmanager_id: str
    reason: str


class CancelJob(_Msg, frozen=True, kw_only=True, tag="cancel-job"):
    command_id: str
    job_id: str


class TriggerSavepoint(_Msg, frozen=True, kw_only=True, tag="trigger-savepoint"):
    """``kind``: checkpoint | savepoint | stop | drain."""

    command_id: str
    job_id: str
    kind: str = "savepoint"
    directory: str | None = None


class RequestJobDetails(_Msg, frozen=True, kw_only=True, tag="job-details"):
    """→ ``JobDetails`` (what REST shows)."""

    job_id: str


class SlotsUnavailable(_Msg, frozen=True, kw_only=True, tag="slots-unavailable"):
    """From the resource manager: ``missing`` slots cannot be had now; the job waits."""

    job_id: str
    missing: int
    total: int
    free: int


ToJobMaster = Union[
    OfferSlots, SlotReport, SlotLost, TaskManagerLost, CancelJob, TriggerSavepoint,
    RequestJobDetails, SlotsUnavailable,
]  # fmt: skip


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


class JobDetails(_Msg, frozen=True, kw_only=True, tag="job-details-reply"):
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


# -- to the resource manager ----------------------------------------------------------------------


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``state``: free | allocated | active. ``pid``: of the slot process, if there."""

    index: int
    state: str
    job_id: str | None = None
    allocation_id: str | None = None
    pid: int | None = None
    #: pid, rss_bytes, cpu_seconds … as last reported
    details: dict[str, Any] = {}


class RegisterTaskManager(_Msg, frozen=True, kw_only=True, tag="register-taskmanager"):
    """Also the periodic heartbeat: the whole slot report every time (no deltas)."""

    taskmanager_id: str
    host: str
    pid: int
    data_host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotStatus, ...]
    details: dict[str, Any] = {}


class RegisterReply(_Msg, frozen=True, kw_only=True, tag="register-reply"):
    resourcemanager_id: str
    epoch: int


class DeregisterTaskManager(_Msg, frozen=True, kw_only=True, tag="deregister-taskmanager"):
    taskmanager_id: str
    reason: str = "shut down"


class DeclareSlots(_Msg, frozen=True, kw_only=True, tag="declare-slots"):
    """A job master declares how many slots the job needs in all (0 = none any more).
    Repeated as a heartbeat; a job not heard of for ``heartbeat.timeout`` loses its
    claims to slots that were not yet allocated. ``together``: they should be of one task
    manager; where none has as many free, they are of several."""

    job_id: str
    epoch: int
    needed: int
    together: bool = False


class DeclareReply(_Msg, frozen=True, kw_only=True, tag="declare-reply"):
    """``epoch``: of the resource manager; when another leads it may not know who was lost."""

    allocated: int
    missing: int
    total: int
    free: int
    epoch: int = 0


class RequestClusterOverview(_Msg, frozen=True, kw_only=True, tag="cluster-overview"):
    """→ ``ClusterOverview``."""


class TaskManagerDetails(msgspec.Struct, kw_only=True):
    id: str
    host: str
    pid: int
    data_port: int
    last_heartbeat_ms: int
    slots: list[SlotStatus] = []
    details: dict[str, Any] = {}


class ClusterOverview(_Msg, frozen=True, kw_only=True, tag="cluster-overview-reply"):
    taskmanagers: list[TaskManagerDetails]
    slots_total: int
    slots_free: int
    resourcemanager_id: str
    epoch: int


ToResourceManager = Union[RegisterTaskManager, DeregisterTaskManager, DeclareSlots, RequestClusterOverview]

# -- to a task manager -------------------------------------------------------------------------------


class AllocateSlot(_Msg, frozen=True, kw_only=True, tag="allocate-slot"):
    """From the resource manager: give this slot to the job; the task manager then offers
    it to the job's master."""

    command_id: str
    epoch: int
    slot_index: int
    job_id: str
    allocation_id: str


class FreeSlot(_Msg, frozen=True, kw_only=True, tag="free-slot"):
    """From the job master: done with this allocation; its process is ended."""

    command_id: str
    job_id: str
    allocation_id: str
    epoch: int


class SharedDeploy(msgspec.Struct, frozen=True, kw_only=True):
    """What all deployments of one attempt have in common, stored once (MessagePack).
    ``deploy``: without tasks; ``restore``: vertex id → its handles."""

    deploy: Deploy
    restore: dict[str, tuple[StateHandle, ...]] = {}

    def of(self, allocation_id: str, tasks: tuple[TaskDescriptor, ...]) -> Deploy:
        """One slot's; ``tasks`` without what they restore."""
        return msgspec.structs.replace(
            self.deploy,
            allocation_id=allocation_id,
            tasks=tuple(
                msgspec.structs.replace(task, restore=self.restore.get(task.vertex_id, ())) for task in tasks
            ),
        )


class DeploySlot(_Msg, frozen=True, kw_only=True, tag="deploy-slot"):
    """From the job master: fork the slot's process and run these tasks. In a large job
    ``tasks`` (without what they restore) and ``deploy_key``, the object of a
    ``SharedDeploy``, stand for ``deploy``."""

    command_id: str
    allocation_id: str
    deploy: Deploy | None = None
    deploy_key: str | None = None
    tasks: tuple[TaskDescriptor, ...] = ()


class SlotCommand(_Msg, frozen=True, kw_only=True, tag="slot-command"):
    """From the job master, relayed to the slot process."""

    command_id: str
    allocation_id: str
    command: Union[CancelTasks, TriggerCheckpoint, CheckpointComplete, CheckpointAborted, MasterChanged]


class RequestTaskManagerDetails(_Msg, frozen=True, kw_only=True, tag="taskmanager-details"):
    """→ ``RegisterTaskManager`` (the same report)."""


ToTaskManager = Union[AllocateSlot, FreeSlot, DeploySlot, SlotCommand, RequestTaskManagerDetails]


class AdoptJob(_Msg, frozen=True, kw_only=True, tag="adopt-job"):
    """A new master of this epoch leads the job: offer it every slot that the job has here
    (``OfferSlots``, with what is deployed), and refuse its predecessors."""

    job_id: str
    epoch: int


class JobOver(_Msg, frozen=True, kw_only=True, tag="job-over"):
    """The job is globally terminal: whoever still has slots of it frees them. ``epoch``: of
    the Terminal entry's master or a later one."""

    job_id: str
    epoch: int


ToTaskManagers = Union[AdoptJob, JobOver]


# -- the decision log ----------------------------------------------------------------------------------


class JobAccepted(_Msg, frozen=True, kw_only=True, tag="job-accepted"):
    job_id: str
    name: str
    timestamp_ms: int
    #: Object key of the encoded JobGraph, and of the JobSpec.
    job_graph_key: str
    spec_key: str
    max_parallelism: dict[str, int] = {}


class LeaderEpoch(_Msg, frozen=True, kw_only=True, tag="leader-epoch"):
    """The fencing token is this entry's own number in the log."""

    leader_id: str
    timestamp_ms: int


class CheckpointCompleted(_Msg, frozen=True, kw_only=True, tag="checkpoint-completed"):
    epoch: int
    checkpoint_id: int
    manifest_key: str
    timestamp_ms: int
    kind: str = "checkpoint"
    #: of one that was asked for: by whom, and where its savepoint lies
    trigger_id: str | None = None
    path: str | None = None


class SavepointRequested(_Msg, frozen=True, kw_only=True, tag="savepoint-requested"):
    """Somebody was promised an outcome: CheckpointCompleted or SavepointFailed with this
    ``trigger_id``."""

    epoch: int
    trigger_id: str
    kind: str
    directory: str | None = None


class SavepointFailed(_Msg, frozen=True, kw_only=True, tag="savepoint-failed"):
    """``checkpoint_id`` 0: it was never begun."""

    epoch: int
    trigger_id: str
    kind: str
    reason: str
    timestamp_ms: int
    checkpoint_id: int = 0


class Restored(_Msg, frozen=True, kw_only=True, tag="restored"):
    """The job (re)started as ``job_attempt`` from this checkpoint (0 = from nothing).
    ``vertices``: those that did (empty = all); the others run on in their own attempt.
    ``slots``: how many it runs in (0 = not known)."""

    epoch: int
    job_attempt: int
    checkpoint_id: int
    timestamp_ms: int
    vertices: tuple[str, ...] = ()
    slots: int = 0


class Terminal(_Msg, frozen=True, kw_only=True, tag="terminal"):
    epoch: int
    status: JobStatus
    timestamp_ms: int
    error: dict[str, Any] | None = None


LogEntry = Union[
    JobAccepted, LeaderEpoch, CheckpointCompleted, SavepointRequested, SavepointFailed, Restored, Terminal
]
