"""Messages to a task manager, and to all of them."""

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
