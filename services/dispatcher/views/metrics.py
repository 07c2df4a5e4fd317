"""Metrics by name: of a job, a vertex, a subtask or a task manager; single values, and aggregated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SpecError
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.task_metrics import task_values
from penstock_services.dispatcher.views.common import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.messages.cluster import ClusterOverview, JobDetails, SubtaskDetails, VertexDetails
    from penstock.messages.resource_manager import TaskManagerDetails
    from penstock_services.dispatcher.active_jobs import ActiveJobs


class Metric(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """One metric. Without ``value`` if only names were requested."""

    id: str
    value: str | None = None


class AggregatedMetric(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The requested aggregations of a metric. ``skew``: the mean distance from the mean, in percent of the
    mean."""

    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None
    skew: float | None = None


def _skew(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if mean == 0:
        return 0.0
    distance = sum(abs(v - mean) for v in values) / len(values)
    return min(100.0, 100 * distance / abs(mean))


#: Name → function of at least one value.
AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": _skew,
}

# -- values ------------------------------------------------------------------------------------


def subtask_values(details: SubtaskDetails) -> dict[str, Any]:
    """``"<metric>"`` and ``"<operator>.<metric>"`` → value."""
    found = task_values(details)
    for operator in details.metrics.get("operators", ()):
        for name, value in {**operator.get("counters", {}), **operator.get("gauges", {})}.items():
            found[f"{operator['name']}.{name}"] = value
    return found


def vertex_values(details: VertexDetails) -> dict[str, Any]:
    """``"<subtask>.<metric>"`` and ``"<subtask>.<operator>.<metric>"`` → value."""
    return {
        f"{subtask.subtask_index}.{name}": value
        for subtask in details.subtasks
        for name, value in subtask_values(subtask).items()
    }


def watermarks(details: VertexDetails) -> list[Metric]:
    """The input watermarks in ms, as in Flink. Subtasks without a watermark are left out."""
    found = ((s.subtask_index, s.metrics.get("input_watermark")) for s in details.subtasks)
    return [Metric(id=f"{i}.currentInputWatermark", value=str(w // 1000)) for i, w in found if w is not None]


#: Flink's names of how long a job has been in its state, by that state.
_STATE_TIMES = {
    JobStatus.INITIALIZING: "initializingTime",
    JobStatus.CREATED: "createdTime",
    JobStatus.RUNNING: "runningTime",
    JobStatus.RESTARTING: "restartingTime",
    JobStatus.FAILING: "failingTime",
    JobStatus.CANCELLING: "cancellingTime",
}


def job_values(details: JobDetails, now_ms: int) -> dict[str, Any]:
    """Name → value of a job's metrics. Durations are in ms, sizes in bytes; -1: no checkpoint yet.

    ``…Time``: for how long the job has been in that state; 0 if it is in another. ``fullRestarts`` counts what
    ``numRestarts`` counts: every attempt of the job but the first.
    """
    counts = details.checkpoint_counts
    last = next((c for c in details.checkpoints if c.status == "COMPLETED"), None)
    restarts = max(0, details.attempt - 1)
    return {
        "numRestarts": restarts,
        "fullRestarts": restarts,
        "uptime": _uptime(details, now_ms),
        **{name: _since(details, status, now_ms) for status, name in _STATE_TIMES.items()},
        "totalNumberOfCheckpoints": sum(counts.get(k, 0) for k in ("completed", "failed", "in_progress")),
        "numberOfCompletedCheckpoints": counts.get("completed", 0),
        "numberOfFailedCheckpoints": counts.get("failed", 0),
        "numberOfInProgressCheckpoints": counts.get("in_progress", 0),
        "lastCompletedCheckpointId": last.id if last else -1,
        "lastCheckpointDuration": (last.end_timestamp_ms or 0) - last.trigger_timestamp_ms if last else -1,
        "lastCheckpointSize": last.size_bytes if last else -1,
        "lastCheckpointFullSize": (last.full_size_bytes or last.size_bytes) if last else -1,
    }


def _since(details: JobDetails, status: JobStatus, now_ms: int) -> int:
    """For how many ms the job has been in ``status``; 0 if it is in another one."""
    since_ms = details.timestamps.get(status.value)
    return max(0, now_ms - since_ms) if details.status is status and since_ms is not None else 0


def _uptime(details: JobDetails, now_ms: int) -> int:
    """For how many ms the job has run without interruption; 0 while it does not run, -1 when it has ended."""
    if details.end_ms is not None:
        return -1
    return _since(details, JobStatus.RUNNING, now_ms)


def cluster_values(active: ActiveJobs, cluster: ClusterOverview | None) -> dict[str, Any]:
    """Name → value of the cluster's metrics. Without a leading resource manager only those about jobs."""
    values: dict[str, Any] = {
        "numRunningJobs": sum(job.status is JobStatus.RUNNING for job in active.details),
        "numUnansweredJobs": len(active.unanswered),
    }
    if cluster is not None:
        values |= {
            "numRegisteredTaskManagers": len(cluster.taskmanagers),
            "taskSlotsTotal": cluster.slots_total,
            "taskSlotsAvailable": cluster.slots_free,
        }
    return values


def taskmanager_values(details: TaskManagerDetails) -> dict[str, Any]:
    """Name → value of a task manager's metrics: its slot processes and, if they are known, the machine."""
    reported = [slot.details for slot in details.slots]
    values: dict[str, Any] = {
        "Status.Slots.Total": len(details.slots),
        "Status.Slots.Free": sum(slot.state == "free" for slot in details.slots),
        "Status.Slots.Memory.Used": sum(d.get("rss_bytes") or 0 for d in reported),
        "Status.Slots.CPU.Seconds": round(sum(d.get("cpu_seconds") or 0.0 for d in reported), 2),
    }
    for name, key in (("System.CPU.Cores", "cpu_cores"), ("System.Memory.Total", "memory_bytes")):
        if details.details.get(key) is not None:
            values[name] = details.details[key]
    return values


# -- answers -----------------------------------------------------------------------------------


def wanted_names(text: str, known: Iterable[str]) -> list[str]:
    """The known names in a list separated by commas. The name of an operator, and so of a metric, may contain
    commas: the longest known name is taken at each place."""
    names = set(known)
    longest = 1 + max((name.count(",") for name in names), default=0)
    parts = text.split(",")
    found, at = [], 0
    while at < len(parts):
        ends = range(min(len(parts), at + longest), at, -1)
        end = next((end for end in ends if ",".join(parts[at:end]) in names), None)
        if end is not None:
            found.append(",".join(parts[at:end]))
        at = end if end is not None else at + 1
    return found


def metric_list(values: Mapping[str, Any], wanted: str | None) -> list[Metric]:
    """The names of metrics, or, with ``wanted`` (``?get=a,b``), those metrics with values. A metric without a
    value is left out."""
    if wanted is None:
        return [Metric(id=name) for name in values]
    known = {name: value for name, value in values.items() if value is not None}
    return [Metric(id=name, value=str(known[name])) for name in wanted_names(wanted, known)]


def aggregated(
    each: Sequence[Mapping[str, Any]], wanted: str | None, aggregations: str | None
) -> list[AggregatedMetric]:
    """Aggregations over several places: the names, or, with ``wanted`` (``?get=a,b``), the aggregations of
    those metrics (``?agg=min,max``; without it all). Raises SpecError for an unknown aggregation."""
    values: dict[str, list[float]] = {}
    for place in each:
        for name, value in place.items():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(float(value))
    if wanted is None:
        return [AggregatedMetric(id=name) for name in values]
    chosen = aggregations.split(",") if aggregations else list(AGGREGATIONS)
    for name in chosen:
        if name not in AGGREGATIONS:
            raise SpecError(
                "unknown aggregation",
                expected=", ".join(AGGREGATIONS),
                got=repr(name[:80]),
                where="query 'agg'",
            )
    return [
        msgspec.structs.replace(
            AggregatedMetric(id=name), **{of: AGGREGATIONS[of](values[name]) for of in chosen}
        )
        for name in wanted_names(wanted, values)
    ]
