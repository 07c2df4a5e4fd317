"""Messages to the master of a job, and its replies."""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.messages.base import Message
from penstock.messages.job_events import RequestJobEvents
from penstock.messages.slot import (
    FromSlot,
    StateHandle,
)
from penstock.messages.states import ExecutionState


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a task manager knows of one task. It is enough for a new master to adopt the task.

    ``final``: the last snapshot of a FINISHED task.
    """

    execution_id: str
    vertex_id: str
    subtask_index: int
    state: ExecutionState
    wants_final_checkpoint: bool = False
    final: StateHandle | None = None


class SlotDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """What runs in a slot. ``confirmed_checkpoint_id``: the last checkpoint that the slot was told is
    complete. ``highest_checkpoint_id``: the highest id that the slot was told of or took part in."""

    job_attempt: int
    epoch: int
    tasks: tuple[TaskReport, ...]
    confirmed_checkpoint_id: int = 0
    highest_checkpoint_id: int = 0


class SlotOffer(msgspec.Struct, frozen=True, kw_only=True):
    """One slot. ``deployed`` is None if no task runs in it."""

    allocation_id: str
    slot_index: int
    deployed: SlotDeployment | None = None


class OfferSlots(Message, frozen=True, kw_only=True, tag="offer-slots"):
    """A task manager offers the job the slots that the resource manager allocated to it.

    ``host``, ``data_port`` and ``unix_path``: where the task manager takes data connections.
    """

    command_id: str
    job_id: str
    taskmanager_id: str
    host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotOffer, ...]


class OfferReply(Message, frozen=True, kw_only=True, tag="offer-reply"):
    """The allocation ids of the offered slots that the job takes. The task manager frees the others."""

    accepted: tuple[str, ...]


class SlotReport(Message, frozen=True, kw_only=True, tag="slot-report"):
    """Messages of one slot, in the order in which the slot sent them."""

    job_id: str
    taskmanager_id: str
    allocation_id: str
    reports: tuple[FromSlot, ...]


class SlotLost(Message, frozen=True, kw_only=True, tag="slot-lost"):
    """A slot process has ended, or its task manager has killed it. ``exit_code``: negative for the number of
    the signal that ended the process; None if it is not known."""

    command_id: str
    job_id: str
    taskmanager_id: str
    allocation_id: str
    reason: str
    exit_code: int | None = None


class TaskManagerLost(Message, frozen=True, kw_only=True, tag="taskmanager-lost"):
    """From the resource manager: the task manager's heartbeats stopped, or its process ended."""

    command_id: str
    job_id: str
    taskmanager_id: str
    reason: str


class CancelJob(Message, frozen=True, kw_only=True, tag="cancel-job"):
    """Cancel the job."""

    command_id: str
    job_id: str


class ClientHeartbeat(Message, frozen=True, kw_only=True, tag="client-heartbeat"):
    """The client that waits for the job is alive (``execution.shutdown-on-attached-exit``)."""

    job_id: str


class TriggerSavepoint(Message, frozen=True, kw_only=True, tag="trigger-savepoint"):
    """Take a checkpoint or savepoint now. ``kind`` is ``checkpoint``, ``savepoint``, ``stop`` (a savepoint,
    then the job ends) or ``drain`` (as ``stop``, after the highest watermark)."""

    command_id: str
    job_id: str
    kind: str = "savepoint"
    directory: str | None = None


class RequestJobDetails(Message, frozen=True, kw_only=True, tag="job-details"):
    """Requests ``JobDetails``, which REST shows."""

    job_id: str


class SlotsUnavailable(Message, frozen=True, kw_only=True, tag="slots-unavailable"):
    """From the resource manager: ``missing`` slots of the job are not available now, so the job waits.
    ``total`` and ``free`` count the slots of the whole cluster."""

    job_id: str
    missing: int
    total: int
    free: int


ToJobMaster = Union[
    OfferSlots, SlotReport, SlotLost, TaskManagerLost, CancelJob, ClientHeartbeat, TriggerSavepoint,
    RequestJobDetails, RequestJobEvents, SlotsUnavailable,
]  # fmt: skip
