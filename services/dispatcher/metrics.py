"""Prometheus metrics of the cluster and its running jobs, computed at each request.

Names are Flink's below ``penstock_``; with ``metrics.flink-names = true`` also below ``flink_``, so that
dashboards and alerts keep working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import METRICS_FLINK_NAMES
from penstock_services.dispatcher.views.common import vertex_id
from penstock_services.dispatcher.views.metrics import job_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails
    from penstock.messages.resource_manager import ClusterOverview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TASK = {
    "busyTimeMsPerSecond": ("busy_ms_per_second", "Time spent working, ms a second."),
    "idleTimeMsPerSecond": ("idle_ms_per_second", "Time without input, ms a second."),
    "backPressuredTimeMsPerSecond": ("back_pressured_ms_per_second", "Time without credit, ms a second."),
    "numRecordsIn": ("records_in", "Records read since the task started."),
    "numRecordsOut": ("records_out", "Records written since the task started."),
    "numBytesIn": ("bytes_in", "Bytes read since the task started."),
    "numBytesOut": ("bytes_out", "Bytes written since the task started."),
    "numRecordsInPerSecond": ("records_in_per_second", "Records read a second."),
    "numRecordsOutPerSecond": ("records_out_per_second", "Records written a second."),
    "restoreBytes": ("restore_bytes", "Bytes of snapshots that the task is restored from."),
    "restoredBytes": ("restored_bytes", "Of those, bytes read so far."),
}
#: Counters of every operator. They are published at zero too, so that an alert finds them.
_AT_ZERO = dict.fromkeys(("numRecordsIn", "numRecordsOut", "numLateRecordsDropped", "numRecordsInErrors"), 0)
_JOB_LABELS = ("job_id", "job_name")
_TASK_LABELS = (*_JOB_LABELS, "task_id", "task_name", "subtask_index", "tm_id")
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


def _cluster(families: _Families, jobs: Sequence[JobDetails], cluster: ClusterOverview | None) -> None:
    running = sum(job.status.value == "RUNNING" for job in jobs)
    families.add("jobmanager_numRunningJobs", "Jobs that run.", (), (), running)
    if cluster is not None:
        managers = len(cluster.taskmanagers)
        families.add("jobmanager_numRegisteredTaskManagers", "Task managers.", (), (), managers)
        families.add("jobmanager_taskSlotsTotal", "Slots.", (), (), cluster.slots_total)
        families.add("jobmanager_taskSlotsAvailable", "Free slots.", (), (), cluster.slots_free)


def _job(families: _Families, job: JobDetails, now_ms: int) -> None:
    labels = (job.job_id, job.name)
    for name, value in job_values(job, now_ms).items():
        families.add(f"jobmanager_job_{name}", f"Of a job: {name}.", _JOB_LABELS, labels, value)
    for vertex in job.vertices:
        for subtask in vertex.subtasks:
            if subtask.metrics:
                _subtask(families, job, vertex, subtask)


def _subtask(families: _Families, job: JobDetails, vertex: VertexDetails, subtask: SubtaskDetails) -> None:
    labels = (
        job.job_id,
        job.name,
        vertex_id(vertex.id),
        vertex.name,
        str(subtask.subtask_index),
        subtask.taskmanager_id or "",
    )
    prefix = "taskmanager_job_task"
    for name, (field, doc) in _TASK.items():
        families.add(f"{prefix}_{name}", doc, _TASK_LABELS, labels, subtask.metrics.get(field))
    back = subtask.metrics.get("back_pressured_ms_per_second") or 0.0
    doc = "1 while the task is mostly back-pressured."
    families.add(f"{prefix}_isBackPressured", doc, _TASK_LABELS, labels, back > 500)
    operators = subtask.metrics.get("operators", ())
    for i, operator in enumerate(operators):
        of = (*labels, operator["uid"], operator["name"])
        values = {**_AT_ZERO, **operator.get("counters", {}), **operator.get("gauges", {})}
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
    jobs: Sequence[JobDetails], cluster: ClusterOverview | None, now_ms: int, config: Mapping[str, str]
) -> bytes:
    """The text that Prometheus scrapes."""
    from prometheus_client import generate_latest

    families = _Families()
    _cluster(families, jobs, cluster)
    for job in jobs:
        _job(families, job, now_ms)
    prefixes = ["penstock"]
    if METRICS_FLINK_NAMES.read(config):
        prefixes.append("flink")

    class Collector:
        def collect(self) -> Iterator[Any]:
            return families.collect(prefixes)

    return generate_latest(Collector())
