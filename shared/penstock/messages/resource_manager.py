"""Messages to the leading resource manager, and its replies."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.messages.base import Message


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a task manager. ``state`` is ``free``, ``allocated`` or ``active``; ``pid``: the process id
    of the slot process, None if there is none."""

    index: int
    state: str
    job_id: str | None = None
    allocation_id: str | None = None
    pid: int | None = None
    #: What the slot process last reported: pid, rss_bytes, cpu_seconds and more.
    details: dict[str, Any] = {}


class RegisterTaskManager(Message, frozen=True, kw_only=True, tag="register-taskmanager"):
    """Registers a task manager, and is its heartbeat afterwards. It always holds all slots of the task
    manager.

    ``data_host``, ``data_port`` and ``unix_path``: where the task manager takes data connections.
    """

    taskmanager_id: str
    host: str
    pid: int
    data_host: str
    data_port: int
    unix_path: str | None = None
    slots: tuple[SlotStatus, ...]
    details: dict[str, Any] = {}


class RegisterReply(Message, frozen=True, kw_only=True, tag="register-reply"):
    """The resource manager that leads, and its epoch."""

    resourcemanager_id: str
    epoch: int


class DeregisterTaskManager(Message, frozen=True, kw_only=True, tag="deregister-taskmanager"):
    """The task manager leaves the cluster."""

    taskmanager_id: str
    reason: str = "shut down"


class DeclareSlots(Message, frozen=True, kw_only=True, tag="declare-slots"):
    """A job master declares how many slots the job needs in total (0: none any more).

    It repeats the message as a heartbeat. A job that is silent for ``heartbeat.timeout`` loses its claim
    to slots that are not allocated yet. ``together``: the slots should be on one task manager; if none has
    enough free slots, they are on several.
    """

    job_id: str
    epoch: int
    needed: int
    together: bool = False


class DeclareReply(Message, frozen=True, kw_only=True, tag="declare-reply"):
    """The slots that the job has and lacks, and those of the whole cluster. ``epoch`` is the resource
    manager's. A changed epoch means that another one leads, which may not know all task managers that were
    lost."""

    allocated: int
    missing: int
    total: int
    free: int
    epoch: int = 0


class RequestClusterOverview(Message, frozen=True, kw_only=True, tag="cluster-overview"):
    """Requests a page of ``ClusterOverview``: the task managers whose ids are greater than ``after``. None: only the
    totals."""

    after: str | None = ""


class TaskManagerDetails(msgspec.Struct, kw_only=True):
    """A task manager as the resource manager knows it. ``last_heartbeat_ms``: milliseconds since 1970."""

    id: str
    host: str
    pid: int
    data_port: int
    last_heartbeat_ms: int
    slots: list[SlotStatus] = []
    details: dict[str, Any] = {}


class ClusterOverview(Message, frozen=True, kw_only=True, tag="cluster-overview-reply"):
    """Task managers with their slots in the order of their ids, and the resource manager that leads. ``count``: how many
    task managers there are. ``more``: whether there are task managers behind the last one of this page."""

    taskmanagers: list[TaskManagerDetails]
    slots_total: int
    slots_free: int
    resourcemanager_id: str
    epoch: int
    count: int = 0
    more: bool = False


ToResourceManager = Union[RegisterTaskManager, DeregisterTaskManager, DeclareSlots, RequestClusterOverview]
