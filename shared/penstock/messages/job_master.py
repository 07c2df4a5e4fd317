"""Messages to the master of a job."""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.messages.base import Message
from penstock.messages.slot import (
    FromSlot,
    StateHandle,
)
from penstock.messages.states import ExecutionState


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
