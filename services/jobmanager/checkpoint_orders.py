"""The commands of a checkpoint to slots, and its manifest. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import __version__
from penstock.messages.slot import CheckpointAborted, CheckpointComplete, StateHandle, TriggerCheckpoint
from penstock.messages.states import ExecutionState
from penstock.messages.task_manager import SlotCommand
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock_services.jobmanager.checkpoints import Pending
from penstock_services.jobmanager.effects import Command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock_services.jobmanager.execution_graph import Execution, ExecutionGraph


def begin(graph: ExecutionGraph, checkpoint_id: int, kind: str, now_ms: int) -> Pending:
    """A checkpoint that begins at ``now_ms``. The final snapshots of finished tasks are in it already."""
    pending = Pending(checkpoint_id, kind, now_ms)
    for execution in graph:
        pending.expected[execution.execution_id] = (execution.vertex_id, execution.subtask_index)
        if execution.execution_id in graph.wanting:
            pending.final_of.add(execution.execution_id)
        if execution.state is ExecutionState.FINISHED:
            pending.handles[execution.execution_id] = execution.final
    return pending


def first_triggered(graph: ExecutionGraph) -> list[Execution]:
    """Running executions that no barrier will reach, because everything upstream has finished."""
    return [e for e in graph if e.state is ExecutionState.RUNNING and graph.upstream_finished(e)]


def orphans(graph: ExecutionGraph, pending: Pending) -> list[Execution]:
    """Tasks that no barrier will reach, because a triggered task upstream finished without taking part. They
    have to be triggered themselves."""
    if not pending.look_for_orphans:
        return []
    pending.look_for_orphans = False
    return [
        e
        for e in first_triggered(graph)
        if e.execution_id not in pending.triggered
        and e.execution_id not in pending.handles
        and not any(u.execution_id in pending.acknowledged for u in graph.upstream(e))
    ]


def trigger(
    epoch: int, pending: Pending, executions: Sequence[Execution], patience_ms: int | None
) -> Iterator[Command]:
    """One command for each slot. ``patience_ms``: how long barriers stay behind the rows before them; None:
    always."""
    by_slot: dict[tuple[str, str], list[str]] = {}
    for e in executions:
        assert e.taskmanager_id is not None
        assert e.allocation_id is not None
        by_slot.setdefault((e.taskmanager_id, e.allocation_id), []).append(e.execution_id)
    for (taskmanager_id, allocation_id), execution_ids in by_slot.items():
        command = TriggerCheckpoint(
            epoch=epoch,
            checkpoint_id=pending.checkpoint_id,
            timestamp_ms=pending.trigger_ms,
            execution_ids=tuple(execution_ids),
            kind=pending.kind,
            unaligned=patience_ms is not None,
            aligned_timeout_ms=patience_ms or 0,
        )
        command_id = f"{epoch}-trigger-{pending.checkpoint_id}-{execution_ids[0]}"
        yield Command(
            taskmanager_id, SlotCommand(command_id=command_id, allocation_id=allocation_id, command=command)
        )


def complete(graph: ExecutionGraph, epoch: int, checkpoint_id: int) -> list[Command]:
    """Tells every slot that the checkpoint is complete."""
    return _to_slots(graph, CheckpointComplete(epoch=epoch, checkpoint_id=checkpoint_id), "complete")


def abort(graph: ExecutionGraph, epoch: int, checkpoint_id: int) -> list[Command]:
    """Tells every slot that the checkpoint is aborted."""
    return _to_slots(graph, CheckpointAborted(epoch=epoch, checkpoint_id=checkpoint_id), "abort")


def _to_slots(
    graph: ExecutionGraph, command: CheckpointComplete | CheckpointAborted, word: str
) -> list[Command]:
    """The command for every slot with tasks that have not ended."""
    slots = {
        (e.taskmanager_id, e.allocation_id)
        for e in graph
        if not e.state.terminal and e.taskmanager_id and e.allocation_id
    }
    return [
        Command(
            taskmanager_id,
            SlotCommand(
                command_id=f"{command.epoch}-{word}-{command.checkpoint_id}-{allocation_id}",
                allocation_id=allocation_id,
                command=command,
            ),
        )
        for taskmanager_id, allocation_id in sorted(slots)
    ]


def manifest_of(pending: Pending, graph: ExecutionGraph, job_name: str, epoch: int) -> CheckpointManifest:
    """The manifest of a checkpoint that every subtask has acknowledged."""
    by_vertex: dict[str, list[StateHandle]] = {}
    for execution_id, (vertex_id, _) in pending.expected.items():
        handle = pending.handles[execution_id]
        if handle is not None:
            by_vertex.setdefault(vertex_id, []).append(handle)
    return CheckpointManifest(
        job_id=graph.job_id,
        job_name=job_name,
        checkpoint_id=pending.checkpoint_id,
        kind=pending.kind,
        timestamp_ms=pending.trigger_ms,
        job_attempt=graph.job_attempt,
        epoch=epoch,
        written_by=__version__,
        vertices=tuple(
            VertexState(
                vertex_id=vertex.id,
                name=vertex.name,
                uids=tuple(node.uid for node in vertex.operators),
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                handles=tuple(by_vertex.get(vertex.id, ())),
            )
            for vertex in graph.job_graph.vertices
        ),
    )
