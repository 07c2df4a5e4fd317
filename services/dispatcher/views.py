"""Jobs in Flink's REST shapes. Pure: ``JobDetails`` and a time in, JSON types out.

Our own fields beside Flink's: ``attempt``, ``epoch``, ``jobmanager-id``, ``waiting-for``,
``restored-checkpoint``, ``result-schema``, ``phase`` of a job; rates and watermarks of subtasks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.messages.states import ExecutionState, JobStatus
from penstock.redaction import HIDDEN, without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.cluster import JobDetails, JobOverview, SubtaskDetails, VertexDetails

_E = ExecutionState
#: The state of a vertex is the first of these that one of its subtasks has.
_VERTEX_STATE = (
    _E.FAILED, _E.CANCELING, _E.CANCELED, _E.DEPLOYING, _E.INITIALIZING, _E.SCHEDULED, _E.CREATED,
    _E.RUNNING, _E.FINISHED,
)  # fmt: skip
#: Share of back-pressured time → level, as Flink's.
HIGH, LOW = 0.5, 0.1


def _times(start_ms: int | None, end_ms: int | None, now_ms: int) -> dict[str, int]:
    start = start_ms if start_ms is not None else -1
    end = end_ms if end_ms is not None else -1
    duration = (end if end >= 0 else now_ms) - start if start >= 0 else -1
    return {"start-time": start, "end-time": end, "duration": duration}


def task_counts(tasks: dict[str, int]) -> dict[str, int]:
    counts = {state.value.lower(): tasks.get(state.value, 0) for state in ExecutionState}
    return {"total": sum(counts.values()), **counts}


# -- lists of jobs -----------------------------------------------------------------------


def job_row(job: JobOverview, now_ms: int) -> dict[str, Any]:
    return {
        "jid": job.job_id,
        "name": job.name,
        "state": job.status.value,
        **_times(job.start_ms, job.end_ms, now_ms),
        "last-modification": job.end_ms or now_ms,
        "tasks": task_counts(job.tasks),
        "attempt": job.attempt,
    }


def overview(jobs: Iterable[JobOverview], cluster: Any, version: str) -> dict[str, Any]:
    """``cluster``: ClusterOverview, or None while no resource manager leads."""
    counts = Counter(job.status for job in jobs)
    ended = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)
    return {
        "taskmanagers": len(cluster.taskmanagers) if cluster else 0,
        "slots-total": cluster.slots_total if cluster else 0,
        "slots-available": cluster.slots_free if cluster else 0,
        "jobs-running": sum(n for status, n in counts.items() if status not in ended),
        "jobs-finished": counts[JobStatus.FINISHED],
        "jobs-cancelled": counts[JobStatus.CANCELED],
        "jobs-failed": counts[JobStatus.FAILED],
        "flink-version": f"penstock-{version}",
        "flink-commit": "",
        "resourcemanager": cluster is not None,
    }


# -- one job -----------------------------------------------------------------------------


def _first(subtasks: Iterable[SubtaskDetails]) -> int | None:
    times = (s.timestamps.get(_E.DEPLOYING.value) for s in subtasks)
    return min((t for t in times if t is not None), default=None)


def _end(subtask: SubtaskDetails) -> int | None:
    return subtask.timestamps.get(subtask.state.value) if subtask.state.terminal else None


def _last(subtasks: list[SubtaskDetails]) -> int | None:
    ends = [_end(s) for s in subtasks]
    return None if not ends or None in ends else max(e for e in ends if e is not None)


def vertex_status(vertex: VertexDetails) -> str:
    states = {s.state for s in vertex.subtasks}
    return next((state.value for state in _VERTEX_STATE if state in states), _E.CREATED.value)


def _sum(vertex: VertexDetails, name: str) -> float:
    return sum(s.metrics.get(name) or 0 for s in vertex.subtasks)


def vertex_metrics(vertex: VertexDetails) -> dict[str, Any]:
    """Totals and rates over all subtasks; back-pressure and busyness of the worst one."""
    worst = max((_ratio(s, "back_pressured") for s in vertex.subtasks), default=0.0)
    busiest = max((_ratio(s, "busy") for s in vertex.subtasks), default=0.0)
    return {
        "read-bytes": _sum(vertex, "bytes_in"),
        "read-bytes-complete": True,
        "write-bytes": _sum(vertex, "bytes_out"),
        "write-bytes-complete": True,
        "read-records": _sum(vertex, "records_in"),
        "read-records-complete": True,
        "write-records": _sum(vertex, "records_out"),
        "write-records-complete": True,
        "read-records-per-second": round(_sum(vertex, "records_in_per_second"), 1),
        "write-records-per-second": round(_sum(vertex, "records_out_per_second"), 1),
        "busy-ratio": round(busiest, 3),
        "backpressure-ratio": round(worst, 3),
        "backpressure-level": backpressure_level(worst),
        "watermark": _watermark_ms(vertex),
        "restore": restoring(vertex),
    }


def restoring(vertex: VertexDetails) -> dict[str, int] | None:
    """How many bytes the subtasks that are being restored have read; None: no subtask is being restored."""
    busy = [s.metrics for s in vertex.subtasks if s.state is ExecutionState.INITIALIZING]
    known = [metrics for metrics in busy if metrics.get("restore_bytes")]
    if not known:
        return None
    names = {"bytes": "restore_bytes", "read": "restored_bytes", "local": "restored_local_bytes"}
    return {name: sum(m.get(key) or 0 for m in known) for name, key in names.items()}


def _ratio(subtask: SubtaskDetails, what: str) -> float:
    return min(1.0, (subtask.metrics.get(f"{what}_ms_per_second") or 0.0) / 1000)


def _watermark_ms(vertex: VertexDetails) -> int | None:
    """The lowest output watermark of the subtasks, in ms."""
    found = [s.metrics.get("output_watermark") for s in vertex.subtasks]
    known = [w for w in found if w is not None]
    return min(known) // 1000 if known and len(known) == len(found) else None


def backpressure_level(ratio: float) -> str:
    return "high" if ratio > HIGH else "low" if ratio > LOW else "ok"


def job(details: JobDetails, now_ms: int) -> dict[str, Any]:
    counts = Counter(vertex_status(v) for v in details.vertices)
    spark = spark_progress(details.vertices)
    return {
        "jid": details.job_id,
        "name": details.name,
        "isStoppable": False,
        "state": details.status.value,
        "job-type": "BATCH" if spark is not None and details.bounded else "STREAMING",
        **_times(details.start_ms, details.end_ms, now_ms),
        "maxParallelism": max((v.max_parallelism for v in details.vertices), default=-1),
        "now": now_ms,
        "timestamps": {s.value: details.timestamps.get(s.value, 0) for s in JobStatus},
        "vertices": [_vertex_row(v, now_ms) for v in details.vertices],
        "status-counts": {state.value: counts.get(state.value, 0) for state in ExecutionState},
        "plan": plan(details),
        "attempt": details.attempt,
        "epoch": details.epoch,
        "jobmanager-id": details.jobmanager_id,
        "restored-checkpoint": details.restored_checkpoint_id,
        "waiting-for": details.waiting_for,
        "stalled": details.stalled,
        "spark": spark,
        "phase": details.phase,
        "result-schema": details.result_schema,
    }


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
    """What Spark runs for the job, over all its queries; None if it runs none."""
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


def _vertex_row(vertex: VertexDetails, now_ms: int) -> dict[str, Any]:
    tasks = Counter(s.state.value for s in vertex.subtasks)
    return {
        "id": vertex.id,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": vertex_status(vertex),
        **_times(_first(vertex.subtasks), _last(vertex.subtasks), now_ms),
        "tasks": {state.value: tasks.get(state.value, 0) for state in ExecutionState},
        "metrics": vertex_metrics(vertex),
        "operators": vertex.operators,
    }


def plan(details: JobDetails) -> dict[str, Any]:
    return {
        "jid": details.job_id,
        "name": details.name,
        "type": "STREAMING",
        "nodes": [
            {
                "id": vertex.id,
                "parallelism": vertex.parallelism,
                "operator": "",
                "operator_strategy": "",
                "description": " → ".join(o["name"] for o in vertex.operators) or vertex.name,
                "inputs": [{"num": i, **edge} for i, edge in enumerate(vertex.inputs)],
                "optimizer_properties": {},
            }
            for vertex in details.vertices
        ],
        "text": details.plan,
    }


def job_config(details: JobDetails) -> dict[str, Any]:
    config = redacted(details.config)
    return {
        "jid": details.job_id,
        "name": details.name,
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": config.get("restart-strategy.type", "exponential-delay"),
            "job-parallelism": max((v.parallelism for v in details.vertices), default=1),
            "object-reuse-mode": True,
            "user-config": config,
        },
    }


_SECRET = ("password", "secret", "token", "credential", "apikey", "api-key", "access_key", "access-key")


def redacted(config: dict[str, str]) -> dict[str, str]:
    """The options without secrets: those with a secret's key, and users and passwords in URLs."""
    return {
        k: HIDDEN if any(word in k.lower() for word in _SECRET) else without_credentials(v)
        for k, v in config.items()
    }


def exceptions(details: JobDetails, limit: int = 20) -> dict[str, Any]:
    entries = [_exception(entry) for entry in details.exceptions[:limit]]
    failed = details.exceptions[0] if details.exceptions else None
    return {
        "root-exception": failed["exception"] if failed else None,
        "timestamp": failed["timestamp_ms"] if failed else None,
        "root-error": failed["error"] if failed else None,
        "all-exceptions": [
            {
                "exception": e["stacktrace"],
                "task": e["taskName"],
                "location": e["endpoint"],
                "timestamp": e["timestamp"],
                "taskManagerId": e["taskManagerId"],
            }
            for e in entries
        ],
        "truncated": len(details.exceptions) > limit,
        "exceptionHistory": {"entries": entries, "truncated": len(details.exceptions) > limit},
    }


def _exception(entry: dict[str, Any]) -> dict[str, Any]:
    error = entry.get("error") or {}
    return {
        "exceptionName": error.get("type", ""),
        "stacktrace": entry.get("exception", ""),
        "timestamp": entry.get("timestamp_ms"),
        "failureLabels": {"code": error.get("code", "")},
        "taskName": entry.get("task"),
        "endpoint": entry.get("location"),
        "taskManagerId": entry.get("location"),
        "attempt": entry.get("attempt"),
        "operator": entry.get("operator"),
        "record": entry.get("record"),
        "notRestarted": entry.get("not_restarted"),
        "restoredInstead": entry.get("restored_instead"),
        "concurrentExceptions": [_exception(e) for e in entry.get("concurrent", [])],
    }


def execution_result(details: JobDetails) -> dict[str, Any]:
    if not details.status.globally_terminal:
        return {"status": {"id": "IN_PROGRESS"}}
    outcome = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.FAILED: "FAILED", JobStatus.CANCELED: "CANCELED"}
    result: dict[str, Any] = {
        "id": details.job_id,
        "application-status": outcome[details.status],
        "accumulator-results": {},
        "net-runtime": (details.end_ms or details.start_ms) - details.start_ms,
    }
    if details.status is JobStatus.FAILED and details.exceptions:
        entry = details.exceptions[0]
        result["failure-cause"] = {
            "class": (entry.get("error") or {}).get("type", ""),
            "stack-trace": entry.get("exception", ""),
        }
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def counters(details: JobDetails) -> dict[str, int]:
    """Every operator's counters, summed by name over the job."""
    found: Counter[str] = Counter()
    for vertex in details.vertices:
        for subtask in vertex.subtasks:
            for operator in subtask.metrics.get("operators", ()):
                found.update(operator.get("counters", {}))
    return dict(found)


def accumulators(details: JobDetails) -> dict[str, Any]:
    return {
        "job-accumulators": [],
        "user-task-accumulators": [
            {"name": name, "type": "LongCounter", "value": str(value)}
            for name, value in sorted(counters(details).items())
        ],
        "serialized-user-task-accumulators": {},
    }
