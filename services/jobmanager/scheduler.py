"""Makes the deployments: every slot receives all of its tasks, and the locations of all other tasks. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from penstock.messages.slot import Deploy, StateHandle, StorageSettings, TaskDescriptor
from penstock.messages.task_manager import SharedDeploy
from penstock_services.jobmanager.slots import locations

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock_services.jobmanager.execution_graph import ExecutionGraph
    from penstock_services.jobmanager.regions import Layout
    from penstock_services.jobmanager.slots import SlotPool


def attempt_secret(job_secret: str, job_attempt: int) -> str:
    """The key (hex) of this attempt's data connections, so that an attempt cannot connect to another."""
    return hashlib.sha256(f"{job_secret}:{job_attempt}".encode()).hexdigest()


def assign(graph: ExecutionGraph, pool: SlotPool, layout: Layout, vertices: Collection[str]) -> None:
    """Assigns a slot to every execution of these vertices."""
    placed = pool.place(layout)
    for execution in graph.of(vertices):
        held = placed[layout.place(execution.vertex_id, execution.subtask_index)]
        graph.place(execution, held.allocation_id, held.taskmanager_id)


def deployments(
    graph: ExecutionGraph,
    pool: SlotPool,
    layout: Layout,
    vertices: Collection[str],
    *,
    epoch: int,
    job_secret: str,
    storage: StorageSettings,
    config: dict[str, str],
    restored_checkpoint_id: int,
    restore: Mapping[str, tuple[StateHandle, ...]],
) -> tuple[SharedDeploy, list[Deploy]]:
    """The part that all deployments share, and a ``Deploy`` for each slot with tasks of ``vertices``.
    ``restore``: vertex id → its handles."""
    job_graph = graph.job_graph
    by_slot: dict[str, list[TaskDescriptor]] = {}
    for execution in graph.of(vertices):
        assert execution.allocation_id is not None
        by_slot.setdefault(execution.allocation_id, []).append(
            TaskDescriptor(
                execution_id=execution.execution_id,
                vertex_id=execution.vertex_id,
                subtask_index=execution.subtask_index,
                attempt=execution.attempt,
            )
        )
    where = locations(job_graph, layout, pool.place(layout))
    addresses = {a: address for a, address in pool.addresses().items() if a in by_slot}
    shared = SharedDeploy(
        deploy=Deploy(
            job_id=graph.job_id,
            job_attempt=graph.job_attempt,
            epoch=epoch,
            allocation_id="",
            job_graph=job_graph,
            tasks=(),
            locations=where,
            slots=addresses,
            secret=attempt_secret(job_secret, graph.job_attempt),
            storage=storage,
            restored_checkpoint_id=restored_checkpoint_id,
            config=config,
        ),
        restore={v: handles for v, handles in restore.items() if v in vertices},
    )
    return shared, [shared.of(allocation_id, tuple(tasks)) for allocation_id, tasks in by_slot.items()]
