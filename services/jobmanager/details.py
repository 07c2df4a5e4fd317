"""``JobDetails`` of a job master's core: what REST shows and the archive keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.jobgraph.specs import SinkSpec
from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails

if TYPE_CHECKING:
    from penstock.jobgraph import JobEdge, JobVertex
    from services.jobmanager.execution_graph import Execution
    from services.jobmanager.job_state import JobState


def _subtask(execution: Execution) -> SubtaskDetails:
    return SubtaskDetails(
        subtask_index=execution.subtask_index,
        execution_id=execution.execution_id,
        attempt=execution.attempt,
        state=execution.state,
        taskmanager_id=execution.taskmanager_id,
        allocation_id=execution.allocation_id,
        timestamps=execution.timestamps,
        metrics=msgspec.to_builtins(execution.metrics) if execution.metrics is not None else {},
    )


def _input(edge: JobEdge) -> dict[str, Any]:
    tag = type(edge.partitioning).__struct_config__.tag
    return {"id": edge.source, "ship_strategy": str(tag).upper(), "exchange": "pipelined", "tag": edge.tag}


def _vertex(core: JobState, vertex: JobVertex) -> VertexDetails:
    return VertexDetails(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        operators=[
            {"uid": node.uid, "name": node.name, "kind": str(type(node.spec).__struct_config__.tag)}
            for node in vertex.operators
        ],
        inputs=[_input(edge) for edge in core.job_graph.inputs_of(vertex.id)],
        subtasks=[_subtask(execution) for execution in core.graph.vertex(vertex.id)],
    )


def _result_schema(core: JobState) -> Any:
    """Schema of the ``collect`` sink, when the job has one (a SELECT)."""
    for vertex in core.job_graph.vertices:
        for node in vertex.operators:
            if isinstance(node.spec, SinkSpec) and node.spec.connector == "collect":
                return msgspec.to_builtins(node.spec.schema)
    return None


def job_details(core: JobState, now_ms: int) -> JobDetails:
    return JobDetails(
        job_id=core.job_id,
        name=core.job_graph.name,
        bounded=core.job_graph.bounded,
        status=core.status,
        attempt=core.job_attempt,
        epoch=core.settings.epoch,
        start_ms=core.start_ms,
        end_ms=core.end_ms,
        timestamps=dict(core.timestamps),
        vertices=[_vertex(core, vertex) for vertex in core.job_graph.vertices],
        checkpoints=core.coordinator.details(now_ms),
        checkpoint_counts=dict(core.coordinator.counts),
        restored_checkpoint_id=core.restored_checkpoint_id,
        exceptions=core.exceptions.all(),
        config=core.settings.config,
        plan=core.job_graph.plan,
        waiting_for=core.waiting_for,
        stalled=list(core.stalled.values()),
        jobmanager_id=core.settings.jobmanager_id,
        result_schema=_result_schema(core),
        phase=core.settings.phase,
    )
