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
``Refused``). A job's details and the entries of its log are in modules of their own, and
here by name.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.messages.base import Message
from penstock.messages.decision_log import (
    CheckpointCompleted,
    JobAccepted,
    LeaderEpoch,
    LogEntry,
    Restored,
    SavepointFailed,
    SavepointRequested,
    Terminal,
)
from penstock.messages.details import (
    CheckpointDetails,
    JobDetails,
    JobOverview,
    SubtaskDetails,
    VertexDetails,
)
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
from penstock.messages.states import ExecutionState

#: Of other modules, known by this one's name as well.
__all__ = [
    "CheckpointCompleted",
    "CheckpointDetails",
    "JobAccepted",
    "JobDetails",
    "JobOverview",
    "LeaderEpoch",
    "LogEntry",
    "Restored",
    "SavepointFailed",
    "SavepointRequested",
    "SubtaskDetails",
    "Terminal",
    "VertexDetails",
]


# -- replies ----------------------------------------------------------------------------------


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """Done, or already done."""


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """Not done. ``reason`` is a sentence; ``fenced`` when the sender's epoch is old;
    ``no_slot`` when the allocation is unknown here: whatever ran in it is gone."""

    reason: str
    fenced: bool = False
    no_slot: bool = False


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
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


class SubmitJob(Message, frozen=True, kw_only=True, tag="submit-job"):
    command_id: str
    spec: JobSpec


class SubmitReply(Message, frozen=True, kw_only=True, tag="submit-reply"):
    job_id: str
    name: str
    #: False when a job of this id existed already (the submission was a repeat).
    created: bool = True


class RunJob(Message, frozen=True, kw_only=True, tag="run-job"):
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


class OfferSlots(Message, frozen=True, kw_only=True, tag="offer-slots"):
    """A task manager offers slots that the resource manager told it to give."""

    command_id: str
    job_id: str
    taskmanager_id: str
    host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotOffer, ...]


class OfferReply(Message, frozen=True, kw_only=True, tag="offer-reply"):
    accepted: tuple[str, ...]


class SlotReport(Message, frozen=True, kw_only=True, tag="slot-report"):
    """Relayed reports of a slot, in order."""

    job_id: str
    taskmanager_id: str
    allocation_id: str
    reports: tuple[FromSlot, ...]


class SlotLost(Message, frozen=True, kw_only=True, tag="slot-lost"):
    """A slot process died (pidfd) or was killed by its task manager. ``exit_code``: of a
    process that ended (negative: by that signal), None when it is not known."""

    command_id: str
    job_id: str
    taskmanager_id: str
    allocation_id: str
    reason: str
    exit_code: int | None = None


class TaskManagerLost(Message, frozen=True, kw_only=True, tag="taskmanager-lost"):
    """From the resource manager: heartbeats stopped or the process left."""

    command_id: str
    job_id: str
    taskmanager_id: str
    reason: str


class CancelJob(Message, frozen=True, kw_only=True, tag="cancel-job"):
    command_id: str
    job_id: str


class ClientHeartbeat(Message, frozen=True, kw_only=True, tag="client-heartbeat"):
    """The client that watches the job is there (``execution.shutdown-on-attached-exit``)."""

    job_id: str


class TriggerSavepoint(Message, frozen=True, kw_only=True, tag="trigger-savepoint"):
    """``kind``: checkpoint | savepoint | stop | drain."""

    command_id: str
    job_id: str
    kind: str = "savepoint"
    directory: str | None = None


class RequestJobDetails(Message, frozen=True, kw_only=True, tag="job-details"):
    """→ ``JobDetails`` (what REST shows)."""

    job_id: str


class SlotsUnavailable(Message, frozen=True, kw_only=True, tag="slots-unavailable"):
    """From the resource manager: ``missing`` slots cannot be had now; the job waits."""

    job_id: str
    missing: int
    total: int
    free: int


ToJobMaster = Union[
    OfferSlots, SlotReport, SlotLost, TaskManagerLost, CancelJob, ClientHeartbeat, TriggerSavepoint,
    RequestJobDetails, SlotsUnavailable,
]  # fmt: skip


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


class RegisterTaskManager(Message, frozen=True, kw_only=True, tag="register-taskmanager"):
    """Also the periodic heartbeat: the whole slot report every time (no deltas)."""

    taskmanager_id: str
    host: str
    pid: int
    data_host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotStatus, ...]
    details: dict[str, Any] = {}


class RegisterReply(Message, frozen=True, kw_only=True, tag="register-reply"):
    resourcemanager_id: str
    epoch: int


class DeregisterTaskManager(Message, frozen=True, kw_only=True, tag="deregister-taskmanager"):
    taskmanager_id: str
    reason: str = "shut down"


class DeclareSlots(Message, frozen=True, kw_only=True, tag="declare-slots"):
    """A job master declares how many slots the job needs in all (0 = none any more).
    Repeated as a heartbeat; a job not heard of for ``heartbeat.timeout`` loses its
    claims to slots that were not yet allocated. ``together``: they should be of one task
    manager; where none has as many free, they are of several."""

    job_id: str
    epoch: int
    needed: int
    together: bool = False


class DeclareReply(Message, frozen=True, kw_only=True, tag="declare-reply"):
    """``epoch``: of the resource manager; when another leads it may not know who was lost."""

    allocated: int
    missing: int
    total: int
    free: int
    epoch: int = 0


class RequestClusterOverview(Message, frozen=True, kw_only=True, tag="cluster-overview"):
    """→ ``ClusterOverview``."""


class TaskManagerDetails(msgspec.Struct, kw_only=True):
    id: str
    host: str
    pid: int
    data_port: int
    last_heartbeat_ms: int
    slots: list[SlotStatus] = []
    details: dict[str, Any] = {}


class ClusterOverview(Message, frozen=True, kw_only=True, tag="cluster-overview-reply"):
    taskmanagers: list[TaskManagerDetails]
    slots_total: int
    slots_free: int
    resourcemanager_id: str
    epoch: int


ToResourceManager = Union[RegisterTaskManager, DeregisterTaskManager, DeclareSlots, RequestClusterOverview]

# -- to a task manager -------------------------------------------------------------------------------


class AllocateSlot(Message, frozen=True, kw_only=True, tag="allocate-slot"):
    """From the resource manager: give this slot to the job; the task manager then offers
    it to the job's master."""

    command_id: str
    epoch: int
    slot_index: int
    job_id: str
    allocation_id: str


class FreeSlot(Message, frozen=True, kw_only=True, tag="free-slot"):
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


class DeploySlot(Message, frozen=True, kw_only=True, tag="deploy-slot"):
    """From the job master: fork the slot's process and run these tasks. In a large job
    ``tasks`` (without what they restore) and ``deploy_key``, the object of a
    ``SharedDeploy``, stand for ``deploy``."""

    command_id: str
    allocation_id: str
    deploy: Deploy | None = None
    deploy_key: str | None = None
    tasks: tuple[TaskDescriptor, ...] = ()


class SlotCommand(Message, frozen=True, kw_only=True, tag="slot-command"):
    """From the job master, relayed to the slot process."""

    command_id: str
    allocation_id: str
    command: Union[CancelTasks, TriggerCheckpoint, CheckpointComplete, CheckpointAborted, MasterChanged]


class RequestTaskManagerDetails(Message, frozen=True, kw_only=True, tag="taskmanager-details"):
    """→ ``RegisterTaskManager`` (the same report)."""


class RequestLogFiles(Message, frozen=True, kw_only=True, tag="log-files"):
    """→ ``LogFiles``."""


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    mtime_ms: int


class LogFiles(Message, frozen=True, kw_only=True, tag="log-files-listed"):
    """In the order in which they were last written to; what slots print is named as in
    ``slot_output.py``."""

    files: tuple[LogFile, ...]


class RequestLogPiece(Message, frozen=True, kw_only=True, tag="log-piece"):
    """→ ``LogPiece``: bytes of a file from ``offset``, at most ``limit``, and never more than fit a
    message."""

    name: str
    offset: int = 0
    limit: int = 128 * 1024


class LogPiece(Message, frozen=True, kw_only=True, tag="log-piece-read"):
    """``size``: of the whole file at that moment. Empty ``data``: there is no more yet."""

    data: bytes
    size: int


ToTaskManager = Union[
    AllocateSlot,
    FreeSlot,
    DeploySlot,
    SlotCommand,
    RequestTaskManagerDetails,
    RequestLogFiles,
    RequestLogPiece,
]


class AdoptJob(Message, frozen=True, kw_only=True, tag="adopt-job"):
    """A new master of this epoch leads the job: offer it every slot that the job has here
    (``OfferSlots``, with what is deployed), and refuse its predecessors."""

    job_id: str
    epoch: int


class JobOver(Message, frozen=True, kw_only=True, tag="job-over"):
    """The job is globally terminal: whoever still has slots of it frees them. ``epoch``: of
    the Terminal entry's master or a later one."""

    job_id: str
    epoch: int


ToTaskManagers = Union[AdoptJob, JobOver]
