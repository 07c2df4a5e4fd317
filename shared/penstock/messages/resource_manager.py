"""Messages to the resource manager that leads, and its replies."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.messages.base import Message


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
