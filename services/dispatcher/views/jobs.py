"""Jobs: lists of them, and single ones with their vertices and their plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.jobgraph.guarantees import ChainGuarantee
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher.views.common import (
    Shape,
    Times,
    first_ms,
    last_ms,
    state_of,
    states_of,
    times,
    vertex_id,
)
from penstock_services.dispatcher.views.io_metrics import IOMetrics, io_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.cluster import JobDetails, JobOverview, VertexDetails

#: Flink's name of a scheduler that does not change a running job's parallelism.
SCHEDULER = "Default"

# -- lists ---------------------------------------------------------------------------------------


class JobIdWithStatus(Shape, frozen=True, kw_only=True):
    """A job's id and status."""

    id: str
    status: str


class JobIds(Shape, frozen=True, kw_only=True):
    """``GET /jobs``"""

    jobs: list[JobIdWithStatus]


class JobRow(Times, frozen=True, kw_only=True):
    """One job in a list. ``tasks``: ``total`` and every execution state in lower case → number of subtasks."""

    jid: str
    name: str
    state: str
    last_modification: int
    tasks: dict[str, int]
    pending_operators: int = 0
    job_type: str = msgspec.field(name="jobType", default="STREAMING")
    scheduler_type: str = msgspec.field(name="schedulerType", default=SCHEDULER)
    # Of ours: the attempt of the job, counted from 1.
    attempt: int
    # Of ours: a query whose rows go to the client that asked it, such as a SELECT.
    interactive: bool = False


class JobsOverview(Shape, frozen=True, kw_only=True):
    """``GET /jobs/overview``"""

    jobs: list[JobRow]


def job_ids(jobs: Iterable[JobOverview]) -> JobIds:
    """The ids of all jobs."""
    return JobIds(jobs=[JobIdWithStatus(id=j.job_id, status=j.status.value) for j in jobs])


def job_row(job: JobOverview, now_ms: int) -> JobRow:
    """The row of one job."""
    counts = {state.value.lower(): job.tasks.get(state.value, 0) for state in ExecutionState}
    return JobRow(
        jid=job.job_id,
        name=job.name,
        state=job.status.value,
        **times(job.start_ms, job.end_ms, now_ms),
        last_modification=job.end_ms or now_ms,
        tasks={"total": sum(counts.values()), **counts},
        job_type=job.job_type,
        attempt=job.attempt,
        interactive=job.interactive,
    )


def jobs_overview(jobs: Iterable[JobOverview], now_ms: int) -> JobsOverview:
    """The rows of all jobs."""
    return JobsOverview(jobs=[job_row(job, now_ms) for job in jobs])


class EncodedRows:
    """Makes the JSON of ``jobs_overview``, and encodes the row of a job again only when its overview is another object:
    of a row that is known, only the times that grow are new."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[JobOverview, list[bytes]]] = {}

    def jobs_overview(self, jobs: Iterable[JobOverview], now_ms: int) -> bytes:
        """The rows of all jobs."""
        known = {job.job_id: self._of(job) for job in jobs}
        self._known = known
        rows = []
        for job, pieces in known.values():
            if job.end_ms is None:
                before, between, after = pieces
                rows.append(b"%b%d%b%d%b" % (before, now_ms - job.start_ms, between, now_ms, after))
            else:
                rows.append(pieces[0])
        return b'{"jobs":[%b]}' % b",".join(rows)

    def _of(self, job: JobOverview) -> tuple[JobOverview, list[bytes]]:
        found = self._known.get(job.job_id)
        if found is not None and found[0] is job:
            return found
        row = job_row(job, job.start_ms)
        if job.end_ms is not None:
            return job, [msgspec.json.encode(row)]
        # No JSON has a byte 0 in it: they are in strings as \u0000.
        grows: Any = msgspec.Raw(b"\0")
        row = msgspec.structs.replace(row, duration=grows, last_modification=grows)
        return job, msgspec.json.encode(row).split(b"\0")


# -- the plan ------------------------------------------------------------------------------------


class PlanInput(Shape, frozen=True, kw_only=True):
    """One input of a vertex. ``id``: the vertex from which it comes. Of ours: ``tag``, the side output; ``edge``, the id of
    the edge, as ``GET /jobs/{id}/edges`` lists it."""

    num: int
    id: str
    ship_strategy: str
    exchange: str
    tag: str | None = None
    edge: str = ""


class PlanNode(Shape, frozen=True, kw_only=True):
    """One vertex of a plan."""

    id: str
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str
    inputs: list[PlanInput]
    optimizer_properties: dict[str, str] = {}


class Plan(Shape, frozen=True, kw_only=True):
    """The plan of a job. ``text``, ours: the plan as EXPLAIN shows it."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]
    text: str


class JobPlan(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/plan``"""

    plan: Plan


def plan(details: JobDetails) -> Plan:
    """The plan of a job."""
    return Plan(
        jid=details.job_id,
        name=details.name,
        type=details.job_type,
        nodes=[
            PlanNode(
                id=vertex_id(vertex.id),
                parallelism=vertex.parallelism,
                description=" → ".join(o["name"] for o in vertex.operators) or vertex.name,
                inputs=[
                    PlanInput(
                        num=i,
                        id=vertex_id(edge["id"]),
                        ship_strategy=edge["ship_strategy"],
                        exchange=edge["exchange"],
                        tag=edge.get("tag"),
                        edge=edge.get("edge", ""),
                    )
                    for i, edge in enumerate(vertex.inputs)
                ],
            )
            for vertex in details.vertices
        ],
        text=details.plan,
    )


# -- one job -------------------------------------------------------------------------------------


class JobVertex(Times, frozen=True, kw_only=True):
    """One vertex of a job. ``tasks``: every execution state → number of subtasks."""

    id: str
    slot_sharing_group_id: str = msgspec.field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = msgspec.field(name="maxParallelism")
    parallelism: int
    status: str
    tasks: dict[str, int]
    metrics: IOMetrics
    # Of ours: {uid, name, kind} of each operator.
    operators: list[dict[str, Any]]


class Job(Times, frozen=True, kw_only=True):
    """``GET /jobs/{id}``. ``stream-graph`` is null: a job has one plan."""

    jid: str
    name: str
    is_stoppable: bool = msgspec.field(name="isStoppable", default=False)
    state: str
    job_type: str
    scheduler_type: str = msgspec.field(name="schedulerType", default=SCHEDULER)
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertex]
    status_counts: dict[str, int]
    plan: Plan
    stream_graph: None = None
    pending_operators: int = 0
    application_id: str
    # Of ours.
    attempt: int
    epoch: int
    jobmanager_id: str
    restored_checkpoint: int
    waiting_for: str | None
    stalled: list[dict[str, Any]]
    spark: dict[str, int] | None
    phase: str
    #: What holds from the sources to each sink.
    guarantees: list[ChainGuarantee]
    result_schema: Any


class JobState(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/status``"""

    status: str


def job(details: JobDetails, now_ms: int) -> Job:
    """One job."""
    counts = Counter(state_of(v.subtasks) for v in details.vertices)
    return Job(
        jid=details.job_id,
        name=details.name,
        state=details.status.value,
        job_type=details.job_type,
        **times(details.start_ms, details.end_ms, now_ms),
        max_parallelism=max((v.max_parallelism for v in details.vertices), default=-1),
        now=now_ms,
        timestamps={s.value: details.timestamps.get(s.value, 0) for s in JobStatus},
        vertices=[_vertex_row(v, now_ms) for v in details.vertices],
        status_counts={state.value: counts.get(state.value, 0) for state in ExecutionState},
        plan=plan(details),
        application_id=details.job_id,
        attempt=details.attempt,
        epoch=details.epoch,
        jobmanager_id=details.jobmanager_id,
        restored_checkpoint=details.restored_checkpoint_id,
        waiting_for=details.waiting_for,
        stalled=details.stalled,
        spark=spark_progress(details.vertices),
        guarantees=msgspec.convert(details.guarantees, list[ChainGuarantee]),
        phase=details.phase,
        result_schema=details.result_schema,
    )


def _vertex_row(vertex: VertexDetails, now_ms: int) -> JobVertex:
    return JobVertex(
        id=vertex_id(vertex.id),
        slot_sharing_group_id=vertex_id(vertex.slot_sharing_group),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=state_of(vertex.subtasks),
        **times(first_ms(vertex.subtasks), last_ms(vertex.subtasks), now_ms),
        tasks=states_of(vertex.subtasks),
        metrics=io_metrics(vertex.subtasks),
        operators=vertex.operators,
    )


_SPARK_METRICS = {
    "starting": "sparkStarting",
    "stages": "sparkStages",
    "stages-completed": "sparkStagesCompleted",
    "tasks": "sparkTasks",
    "tasks-completed": "sparkTasksCompleted",
    "tasks-active": "sparkTasksActive",
    "tasks-failed": "sparkTasksFailed",
    "bytes-read": "sparkBytesRead",
    "rows-read": "sparkRowsRead",
    "shuffle-bytes": "sparkShuffleBytes",
    "spilled-bytes": "sparkSpilledBytes",
}


def spark_progress(vertices: Iterable[VertexDetails]) -> dict[str, int] | None:
    """The progress of Spark for the job, over all its queries; None if Spark runs none."""
    gauges = [
        operator.get("gauges", {})
        for details in vertices
        for subtask in details.subtasks
        for operator in subtask.metrics.get("operators", ())
    ]
    queries = [g for g in gauges if "sparkTasks" in g]
    if not queries:
        return None
    return {name: sum(g.get(metric) or 0 for g in queries) for name, metric in _SPARK_METRICS.items()}
