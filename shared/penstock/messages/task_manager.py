"""Messages to one task manager and to all of them, and their replies."""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.messages.base import Message
from penstock.messages.slot import (
    CancelTasks,
    CheckpointAborted,
    CheckpointComplete,
    Deploy,
    MasterChanged,
    StateHandle,
    TaskDescriptor,
    TriggerCheckpoint,
)
from penstock.messages.stack_samples import StacksSampled
from penstock.messages.taps import EdgeTapped, Tap


class AllocateSlot(Message, frozen=True, kw_only=True, tag="allocate-slot"):
    """From the resource manager: allocate this slot to the job. The task manager then offers it to the job's
    master."""

    command_id: str
    epoch: int
    slot_index: int
    job_id: str
    allocation_id: str


class FreeSlot(Message, frozen=True, kw_only=True, tag="free-slot"):
    """From the job master: the job no longer needs this allocation. The task manager ends the slot process."""

    command_id: str
    job_id: str
    allocation_id: str
    epoch: int


class SharedDeploy(msgspec.Struct, frozen=True, kw_only=True):
    """The common part of all deployments of one attempt, stored once (MessagePack).

    ``deploy``: a ``Deploy`` without tasks. ``restore``: vertex id → its handles.
    """

    deploy: Deploy
    restore: dict[str, tuple[StateHandle, ...]] = {}

    def of(self, allocation_id: str, tasks: tuple[TaskDescriptor, ...]) -> Deploy:
        """The ``Deploy`` of one slot. ``tasks`` come without ``restore``, which is added here."""
        return msgspec.structs.replace(
            self.deploy,
            allocation_id=allocation_id,
            tasks=tuple(
                msgspec.structs.replace(task, restore=self.restore.get(task.vertex_id, ())) for task in tasks
            ),
        )


class DeploySlot(Message, frozen=True, kw_only=True, tag="deploy-slot"):
    """From the job master: fork the slot process and run these tasks. For a large job, ``deploy`` is None;
    ``deploy_key`` is then the key of a ``SharedDeploy``, and ``tasks`` come without ``restore``."""

    command_id: str
    allocation_id: str
    deploy: Deploy | None = None
    deploy_key: str | None = None
    tasks: tuple[TaskDescriptor, ...] = ()


class SlotCommand(Message, frozen=True, kw_only=True, tag="slot-command"):
    """From the job master: a command that the task manager relays to the slot process."""

    command_id: str
    allocation_id: str
    command: Union[CancelTasks, TriggerCheckpoint, CheckpointComplete, CheckpointAborted, MasterChanged]


class RequestTaskManagerDetails(Message, frozen=True, kw_only=True, tag="taskmanager-details"):
    """Requests the current ``RegisterTaskManager``."""


class RequestLogFiles(Message, frozen=True, kw_only=True, tag="log-files"):
    """Requests ``LogFiles``."""


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``size`` is in bytes, ``mtime_ms`` in milliseconds since 1970."""

    name: str
    size: int
    mtime_ms: int


class LogFiles(Message, frozen=True, kw_only=True, tag="log-files-listed"):
    """The log files of a task manager, the one that changed last at the end. ``slot_output.py`` explains the
    names of those that hold the output of slots."""

    files: tuple[LogFile, ...]


class RequestLogPiece(Message, frozen=True, kw_only=True, tag="log-piece"):
    """Requests ``LogPiece``: at most ``limit`` bytes of a file from ``offset``, and never more than fit into
    a message."""

    name: str
    offset: int = 0
    limit: int = 128 * 1024


class LogPiece(Message, frozen=True, kw_only=True, tag="log-piece-read"):
    """A part of a log file. ``size``: of the whole file at that moment. ``data`` is empty at the end of the
    file."""

    data: bytes
    size: int


class RequestThreadStacks(Message, frozen=True, kw_only=True, tag="thread-stacks"):
    """→ ``ThreadStacks``."""


class ThreadStacks(Message, frozen=True, kw_only=True, tag="thread-stacks-told"):
    """Of the task manager's own process: a thread's name → its frames as text, the innermost last."""

    stacks: dict[str, str]


class RequestStackSamples(Message, frozen=True, kw_only=True, tag="stack-samples"):
    """Sample all slots of a job on this task manager. → ``StackSamples``."""

    job_id: str
    samples: int
    interval_ms: int


class StackSamples(Message, frozen=True, kw_only=True, tag="stack-samples-taken"):
    """Allocation id → what its slot did. Slots that did not answer are left out: a step in them does not end."""

    slots: dict[str, StacksSampled] = {}


class RequestTap(Message, frozen=True, kw_only=True, tag="tap"):
    """Rows of an edge that passed since the last request, from these slots of a job. → ``TapRows``."""

    job_id: str
    allocation_ids: tuple[str, ...]
    tap: Tap


class TapRows(Message, frozen=True, kw_only=True, tag="tap-rows"):
    """Allocation id → what passed in its slot. Slots that did not answer are left out."""

    slots: dict[str, EdgeTapped] = {}


ToTaskManager = Union[
    AllocateSlot,
    FreeSlot,
    DeploySlot,
    SlotCommand,
    RequestTaskManagerDetails,
    RequestLogFiles,
    RequestLogPiece,
    RequestThreadStacks,
    RequestStackSamples,
    RequestTap,
]


class AdoptJob(Message, frozen=True, kw_only=True, tag="adopt-job"):
    """To all task managers: a new master with this epoch leads the job. Offer it every slot that the job has
    here (``OfferSlots``, with what is deployed), and refuse commands of older epochs."""

    job_id: str
    epoch: int


class JobOver(Message, frozen=True, kw_only=True, tag="job-over"):
    """To all task managers: the job is globally terminal; free the slots that it still has. ``epoch``: that
    of the Terminal entry's master, or a later one."""

    job_id: str
    epoch: int


ToTaskManagers = Union[AdoptJob, JobOver]
