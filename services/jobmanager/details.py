"""Makes ``JobDetails``, which REST shows and the archive keeps, from the core of a job master or, while no
master leads the job, from the decision log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.jobgraph.specs import SinkSpec
from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails
from penstock.messages.states import JobStatus
from penstock_services.jobmanager.checkpoint_history import waiting
from penstock_services.jobmanager.execution_graph import ExecutionGraph
from penstock_services.jobmanager.inheritance import in_phase

if TYPE_CHECKING:
    from penstock.jobgraph import JobEdge, JobGraph, JobVertex
    from penstock_services.jobmanager.execution_graph import Execution
    from penstock_services.jobmanager.inheritance import LoggedJob
    from penstock_services.jobmanager.job_state import JobState


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


def edge_details(edge: JobEdge) -> dict[str, Any]:
    """What REST shows of an edge, beside its target."""
    tag = type(edge.partitioning).__struct_config__.tag
    return {
        "id": edge.source,
        "edge": edge.id,
        "ship_strategy": str(tag).upper(),
        "exchange": "pipelined",
        "tag": edge.tag,
    }


def _vertex(job_graph: JobGraph, graph: ExecutionGraph, vertex: JobVertex) -> VertexDetails:
    return VertexDetails(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        slot_sharing_group=vertex.slot_sharing_group,
        operators=[
            {"uid": node.uid, "name": node.name, "kind": str(type(node.spec).__struct_config__.tag)}
            for node in vertex.operators
        ],
        inputs=[edge_details(edge) for edge in job_graph.inputs_of(vertex.id)],
        subtasks=[_subtask(execution) for execution in graph.vertex(vertex.id)],
    )


def _result_schema(job_graph: JobGraph) -> Any:
    """The schema of the ``collect`` sink if the job has one (a SELECT)."""
    for vertex in job_graph.vertices:
        for node in vertex.operators:
            if isinstance(node.spec, SinkSpec) and node.spec.connector == "collect":
                return msgspec.to_builtins(node.spec.schema)
    return None


def job_details(core: JobState, now_ms: int) -> JobDetails:
    """The details of a job whose master is this one."""
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
        vertices=[_vertex(core.job_graph, core.graph, vertex) for vertex in core.job_graph.vertices],
        checkpoints=core.coordinator.details(now_ms),
        checkpoint_counts=dict(core.coordinator.history.counts),
        restored_checkpoint_id=core.restored_checkpoint_id,
        exceptions=core.exceptions.all(),
        config=core.settings.config,
        plan=core.job_graph.plan,
        guarantees=msgspec.to_builtins(core.job_graph.guarantees),
        waiting_for=core.waiting_for,
        stalled=list(core.stalled.values()),
        jobmanager_id=core.settings.jobmanager_id,
        result_schema=_result_schema(core.job_graph),
        phase=core.settings.phase,
    )


def logged_details(job_id: str, job_graph: JobGraph, logged: LoggedJob, epoch: int) -> JobDetails:
    """The details of an accepted job without a master: its plan, and the attempts and checkpoints in the log.
    The states of its tasks are not known and are shown as CREATED."""
    accepted, inherited = logged.accepted, logged.inherited
    assert accepted is not None
    job_graph, phase = in_phase(job_graph, logged)
    started = inherited.job_attempt > 0 and not inherited.handed_over
    starts = [inherited.vertices.get(v.id, inherited.base) for v in job_graph.vertices] if started else []
    graph = ExecutionGraph(job_id, job_graph)
    attempts = [attempt for attempt, _ in starts] or [inherited.job_attempt + 1] * len(job_graph.vertices)
    graph.resume(dict(zip((v.id for v in job_graph.vertices), attempts, strict=True)), accepted.timestamp_ms)
    status = JobStatus.RECONCILING if started else JobStatus.INITIALIZING
    return JobDetails(
        job_id=job_id,
        name=job_graph.name,
        bounded=job_graph.bounded,
        status=status,
        attempt=inherited.job_attempt,
        epoch=epoch,
        start_ms=accepted.timestamp_ms,
        timestamps={JobStatus.INITIALIZING.value: accepted.timestamp_ms},
        vertices=[_vertex(job_graph, graph, vertex) for vertex in job_graph.vertices],
        checkpoints=[*waiting(inherited.requests), *reversed(inherited.history)],
        checkpoint_counts={
            "completed": inherited.checkpoints_completed,
            "failed": inherited.checkpoints_failed,
            "in_progress": 0,
            "restored": inherited.checkpoints_restored,
            "total": inherited.checkpoints_completed + inherited.checkpoints_failed,
        },
        restored_checkpoint_id=max((checkpoint_id for _, checkpoint_id in starts), default=0),
        config=dict(job_graph.config),
        plan=job_graph.plan,
        guarantees=msgspec.to_builtins(job_graph.guarantees),
        waiting_for="no job manager leads the job at the moment"
        + ("; its tasks run on, and a new job manager adopts them" if started else ""),
        result_schema=_result_schema(job_graph),
        phase=phase,
    )
