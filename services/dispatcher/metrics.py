"""Prometheus metrics of the cluster and its running jobs, computed at each request.

Names are Flink's below ``penstock_``; with ``metrics.flink-names = true`` also below ``flink_``, so that
dashboards and alerts keep working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import METRICS_FLINK_NAMES
from penstock_services.dispatcher.task_metrics import (
    BARRIER_METRICS,
    OPERATOR_COUNTERS,
    TASK_METRICS,
    barrier_values,
    task_values,
)
from penstock_services.dispatcher.views.common import vertex_id
from penstock_services.dispatcher.views.metrics import cluster_values, job_values, taskmanager_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails
    from penstock.messages.resource_manager import ClusterOverview
    from penstock_services.dispatcher.active_jobs import ActiveJobs

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_JOB_LABELS = ("job_id", "job_name")
_TASK_LABELS = (
    *_JOB_LABELS,
    "task_id",
    "task_name",
    "task_attempt_id",
    "task_attempt_num",
    "subtask_index",
    "tm_id",
    "host",
)
_OPERATOR_LABELS = (*_TASK_LABELS, "operator_id", "operator_name")


class _Families:
    def __init__(self) -> None:
        self._families: dict[str, tuple[str, Sequence[str], list[tuple[Sequence[str], float]]]] = {}

    def add(self, name: str, doc: str, labels: Sequence[str], values: Sequence[str], value: Any) -> None:
        if value is None:
            return
        family = self._families.setdefault(name, (doc, labels, []))
        family[2].append((values, float(value)))

    def collect(self, prefixes: Iterable[str]) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        for prefix in prefixes:
            for name, (doc, labels, samples) in self._families.items():
                metric = GaugeMetricFamily(f"{prefix}_{name}", doc, labels=labels)
                for values, value in samples:
                    metric.add_metric(values, value)
                yield metric


def _cluster(families: _Families, active: ActiveJobs, cluster: ClusterOverview | None) -> None:
    for name, value in cluster_values(active, cluster).items():
        families.add(f"jobmanager_{name}", f"Of the cluster: {name}.", (), (), value)
    for manager in cluster.taskmanagers if cluster is not None else ():
        for name, value in taskmanager_values(manager).items():
            doc = f"Of a task manager: {name}."
            families.add(
                f"taskmanager_{_clean(name)}", doc, ("host", "tm_id"), (manager.host, manager.id), value
            )


def _job(families: _Families, job: JobDetails, hosts: Mapping[str, str], now_ms: int) -> None:
    labels = (job.job_id, job.name)
    for name, value in job_values(job, now_ms).items():
        families.add(f"jobmanager_job_{name}", f"Of a job: {name}.", _JOB_LABELS, labels, value)
    barriers = barrier_values(job)
    for vertex in job.vertices:
        for subtask in vertex.subtasks:
            if subtask.metrics:
                at_barrier = barriers.get((vertex.id, subtask.subtask_index), {})
                _subtask(families, job, vertex, subtask, at_barrier, hosts)


_DOCS = {
    **{name: doc for name, (_, doc) in (*TASK_METRICS.items(), *BARRIER_METRICS.items())},
    "isBackPressured": "1 while the task is mostly back-pressured.",
}


def _subtask(
    families: _Families,
    job: JobDetails,
    vertex: VertexDetails,
    subtask: SubtaskDetails,
    at_barrier: Mapping[str, int],
    hosts: Mapping[str, str],
) -> None:
    labels = (
        job.job_id,
        job.name,
        vertex_id(vertex.id),
        vertex.name,
        subtask.execution_id,
        str(subtask.attempt - 1),
        str(subtask.subtask_index),
        subtask.taskmanager_id or "",
        hosts.get(subtask.taskmanager_id or "", ""),
    )
    prefix = "taskmanager_job_task"
    for name, value in {**task_values(subtask), **at_barrier}.items():
        families.add(f"{prefix}_{name}", _DOCS[name], _TASK_LABELS, labels, value)
    operators = subtask.metrics.get("operators", ())
    for i, operator in enumerate(operators):
        of = (*labels, operator["uid"], operator["name"])
        values = {
            **dict.fromkeys(OPERATOR_COUNTERS, 0),
            **operator.get("counters", {}),
            **operator.get("gauges", {}),
        }
        for field, name, here in (
            ("input_watermark", "currentInputWatermark", i == 0),
            ("output_watermark", "currentOutputWatermark", i == len(operators) - 1),
        ):
            if here and subtask.metrics.get(field) is not None:
                values[name] = subtask.metrics[field] // 1000
        for name, value in values.items():
            doc = f"Of an operator: {name}."
            families.add(f"{prefix}_operator_{_clean(name)}", doc, _OPERATOR_LABELS, of, value)


def _clean(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def render(
    active: ActiveJobs, cluster: ClusterOverview | None, now_ms: int, config: Mapping[str, str]
) -> bytes:
    """The text that Prometheus scrapes."""
    from prometheus_client import generate_latest

    families = _Families()
    _cluster(families, active, cluster)
    hosts = {manager.id: manager.host for manager in cluster.taskmanagers} if cluster is not None else {}
    for job in active.details:
        _job(families, job, hosts, now_ms)
    prefixes = ["penstock"]
    if METRICS_FLINK_NAMES.read(config):
        prefixes.append("flink")

    class Collector:
        def collect(self) -> Iterator[Any]:
            return families.collect(prefixes)

    return generate_latest(Collector())
