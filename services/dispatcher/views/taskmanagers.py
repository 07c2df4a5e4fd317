"""Task managers, their slots and their resources.

A slot is a process without a share of memory or CPU, and a task manager has no Java heap. Sizes that would
describe such shares are 0; what is measured is in ``hardware`` and ``details``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock_services.dispatcher.views.common import Camel

if TYPE_CHECKING:
    from penstock.messages.cluster import ClusterOverview
    from penstock.messages.resource_manager import SlotStatus, TaskManagerDetails


class Resource(Camel, frozen=True, kw_only=True):
    """Sizes are in MiB, as in Flink."""

    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(Camel, frozen=True, kw_only=True):
    """Sizes are in bytes; 0: not reported."""

    cpu_cores: int
    physical_memory: int
    free_memory: int = 0
    managed_memory: int = 0


class MemoryConfiguration(Camel, frozen=True, kw_only=True):
    """Sizes are in bytes. Python has none of these pools."""

    framework_heap: int = 0
    task_heap: int = 0
    framework_off_heap: int = 0
    task_off_heap: int = 0
    network_memory: int = 0
    managed_memory: int = 0
    jvm_metaspace: int = 0
    jvm_overhead: int = 0
    total_flink_memory: int = 0
    total_process_memory: int = 0


class GarbageCollector(Camel, frozen=True, kw_only=True):
    """One garbage collector. ``time``: ms."""

    name: str
    count: int
    time: int


class ProcessMetrics(Camel, frozen=True, kw_only=True):
    """``heapUsed`` and ``heapCommitted``: resident bytes of the slot processes. Python has none of the other
    pools."""

    heap_used: int
    heap_committed: int
    heap_max: int
    non_heap_used: int = 0
    non_heap_committed: int = 0
    non_heap_max: int = 0
    direct_count: int = 0
    direct_used: int = 0
    direct_max: int = 0
    mapped_count: int = 0
    mapped_used: int = 0
    mapped_max: int = 0
    netty_shuffle_memory_segments_available: int = 0
    netty_shuffle_memory_segments_used: int = 0
    netty_shuffle_memory_segments_total: int = 0
    netty_shuffle_memory_available: int = 0
    netty_shuffle_memory_used: int = 0
    netty_shuffle_memory_total: int = 0
    garbage_collectors: list[GarbageCollector] = []


class AllocatedSlot(Camel, frozen=True, kw_only=True):
    """A slot of a job. ``assignedTasks``: 1 if the slot has a process."""

    job_id: str
    resource: Resource = Resource()
    assigned_tasks: int


class TaskManager(Camel, frozen=True, kw_only=True):
    """One of ``GET /taskmanagers``. ``timeSinceLastHeartbeat``: when the last heartbeat came, in ms since
    1970, as in Flink."""

    id: str
    path: str
    data_port: int
    jmx_port: int = -1
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    total_resource: Resource
    free_resource: Resource = Resource()
    hardware: Hardware
    memory_configuration: MemoryConfiguration = MemoryConfiguration()
    blocked: bool = False
    assigned_tasks: int
    # Of ours.
    pid: int
    host: str
    slots: list[dict[str, Any]]
    details: dict[str, Any]


class TaskManagerDetailsInfo(TaskManager, frozen=True, kw_only=True):
    """``GET /taskmanagers/{id}``"""

    allocated_slots: list[AllocatedSlot]
    metrics: ProcessMetrics


class TaskManagers(Camel, frozen=True, kw_only=True):
    """``GET /taskmanagers``"""

    taskmanagers: list[TaskManager]


def taskmanagers(cluster: ClusterOverview) -> TaskManagers:
    """All task managers."""
    return TaskManagers(taskmanagers=[TaskManager(**_fields(m)) for m in cluster.taskmanagers])


def taskmanager(details: TaskManagerDetails) -> TaskManagerDetailsInfo:
    """One task manager."""
    rss_bytes = sum(slot.details.get("rss_bytes") or 0 for slot in details.slots)
    return TaskManagerDetailsInfo(
        **_fields(details),
        allocated_slots=[
            AllocatedSlot(job_id=slot.job_id, assigned_tasks=_runs(slot))
            for slot in details.slots
            if slot.job_id is not None
        ],
        metrics=ProcessMetrics(
            heap_used=rss_bytes, heap_committed=rss_bytes, heap_max=details.details.get("memory_bytes") or 0
        ),
    )


def _runs(slot: SlotStatus) -> int:
    return int(slot.pid is not None)


def _fields(details: TaskManagerDetails) -> dict[str, Any]:
    """The fields of ``TaskManager``."""
    cores = details.details.get("cpu_cores") or 0
    memory = details.details.get("memory_bytes") or 0
    return {
        "id": details.id,
        "path": f"{details.host}:{details.pid}",
        "data_port": details.data_port,
        "time_since_last_heartbeat": details.last_heartbeat_ms,
        "slots_number": len(details.slots),
        "free_slots": sum(slot.state == "free" for slot in details.slots),
        "total_resource": Resource(cpu_cores=float(cores)),
        "hardware": Hardware(cpu_cores=cores, physical_memory=memory),
        "assigned_tasks": sum(_runs(slot) for slot in details.slots),
        "pid": details.pid,
        "host": details.host,
        "slots": msgspec.to_builtins(details.slots),
        "details": details.details,
    }
