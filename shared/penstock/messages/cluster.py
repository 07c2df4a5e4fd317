"""Messages of dispatcher, job master, resource manager and task manager over NATS.

Subjects (``<cluster>`` is the cluster id, ``penstock`` by default)::

    <cluster>.jobs.submit                     any dispatcher     plain JSON/YAML spec or SubmitJob → SubmitReply
    <cluster>.jobs.list | .status | .cancel   any dispatcher     (what REST offers, over the bus)
    <cluster>.jobs.<job>.events               anyone             JobEvent (``job_events.py``), which may be lost
    <cluster>.jobmanager.run                  any job manager    RunJob → Ack: compete for the job's lease
    <cluster>.job.<job>.<verb>                the job's master   ToJobMaster → JobMasterReply
    <cluster>.resourcemanager.<verb>          the leading RM     ToResourceManager → reply
    <cluster>.taskmanager.<tm>.<verb>         that task manager  ToTaskManager → reply
    <cluster>.taskmanagers.<verb>             all of them        ToTaskManagers: no reply
    <cluster>.events.>                        anyone             notifications, which may be lost

``<verb>`` is the message's tag. Every command has a ``command_id``, so that a repeat is recognised. A
command of a master also has its ``epoch``, the fencing token; a receiver answers an old epoch with
``Refused``. The messages to each role, a job's details and the entries of its decision log have modules of
their own; most of them can be imported from this module as well.
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

#: Messages of other modules that can be imported from this one as well.
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
    """The command is done, or was done before."""


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The command was not done, for the reason in ``reason`` (a sentence). ``fenced``: the sender's epoch is
    old. ``no_slot``: the receiver does not know the allocation, so no task runs in it any more."""

    reason: str
    fenced: bool = False
    no_slot: bool = False


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """The command raised an error; ``error`` is ``PenstockError.to_dict()``."""

    error: dict[str, Any]


# -- jobs --------------------------------------------------------------------------------------


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submission of a user, as JSON or YAML. Exactly one of ``sql``, ``python`` and ``job_graph`` is given.

    ``sql``: a script whose INSERTs, or whose one SELECT, make one job. ``python``: the source text of a
    module that builds a job on ``StreamExecutionEnvironment``. ``entry``: the function of that module to
    call; without it the module runs with ``__name__ == "__main__"``. ``job_graph``: a planned job, as the
    command line sends it. ``args``: ``sys.argv[1:]``, and the arguments of ``entry``. ``files``: object
    keys of archives that are put on ``sys.path``.
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
    """Submit a job. A repeat with the same ``command_id`` submits it once. The reply is ``SubmitReply``."""

    command_id: str
    spec: JobSpec


class SubmitReply(Message, frozen=True, kw_only=True, tag="submit-reply"):
    """The job runs, or will run, under ``job_id``."""

    job_id: str
    name: str
    #: False if a job with this id already existed, so that the submission was a repeat.
    created: bool = True
    #: What the user is to be told, though it is no error.
    warnings: tuple[str, ...] = ()


class RunJob(Message, frozen=True, kw_only=True, tag="run-job"):
    """Run an accepted job, whose JobAccepted entry is in its decision log. Sent to every job manager."""

    command_id: str
    job_id: str
