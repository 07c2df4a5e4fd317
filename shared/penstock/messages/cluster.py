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
``Refused``). The messages to a role, a job's details and the entries of its log are in modules of their
own, and most of them here by name as well.
"""

from __future__ import annotations

from typing import Any

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
from penstock.messages.job_master import (
    CancelJob,
    ClientHeartbeat,
    OfferReply,
    OfferSlots,
    RequestJobDetails,
    SlotLost,
    SlotOffer,
    SlotReport,
    SlotsUnavailable,
    TaskManagerLost,
    ToJobMaster,
    TriggerSavepoint,
)
from penstock.messages.resource_manager import (
    ClusterOverview,
    DeclareReply,
    DeclareSlots,
    RegisterTaskManager,
    RequestClusterOverview,
    ToResourceManager,
)
from penstock.messages.task_manager import (
    AdoptJob,
    AllocateSlot,
    DeploySlot,
    FreeSlot,
    JobOver,
    LogFiles,
    RequestLogFiles,
    SlotCommand,
    ToTaskManager,
)

#: Of other modules, known by this one's name as well.
__all__ = [
    "AdoptJob",
    "AllocateSlot",
    "CancelJob",
    "CheckpointCompleted",
    "CheckpointDetails",
    "ClientHeartbeat",
    "ClusterOverview",
    "DeclareReply",
    "DeclareSlots",
    "DeploySlot",
    "FreeSlot",
    "JobAccepted",
    "JobDetails",
    "JobOver",
    "JobOverview",
    "LeaderEpoch",
    "LogEntry",
    "LogFiles",
    "OfferReply",
    "OfferSlots",
    "RegisterTaskManager",
    "RequestClusterOverview",
    "RequestJobDetails",
    "RequestLogFiles",
    "Restored",
    "SavepointFailed",
    "SavepointRequested",
    "SlotCommand",
    "SlotLost",
    "SlotOffer",
    "SlotReport",
    "SlotsUnavailable",
    "SubtaskDetails",
    "TaskManagerLost",
    "Terminal",
    "ToJobMaster",
    "ToResourceManager",
    "ToTaskManager",
    "TriggerSavepoint",
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
