"""The verdict about a job: all findings, the worst first, and one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.why.checkpointing import checkpoints, records
from penstock_services.dispatcher.why.event_time import lags, watermarks
from penstock_services.dispatcher.why.failures import away, failures, restores, stalls, waiting
from penstock_services.dispatcher.why.findings import ORDER, Finding, Verdict, count, running, span
from penstock_services.dispatcher.why.pressure import bottlenecks, skews

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails


def verdict(job: JobDetails, now_ms: int) -> Verdict:
    """What is wrong with a job, with the causes and the next step. ``now_ms``: since 1970."""
    found = sorted(_findings(job, now_ms), key=lambda f: ORDER.index(f.severity))
    return Verdict(
        jid=job.job_id,
        name=job.name,
        state=job.status.value,
        severity=found[0].severity if found else None,
        summary=found[0].title if found else _well(job, now_ms),
        findings=found,
    )


def _findings(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    yield from failures(job, now_ms)
    yield from waiting(job)
    if job.status.globally_terminal:
        yield from records(job)
        return
    yield from away(job)
    yield from stalls(job, now_ms)
    yield from restores(job, now_ms)
    yield from bottlenecks(job)
    named = {f.subject.vertex for f in bottlenecks(job) if f.code == "bottleneck"}
    yield from (f for f in skews(job) if f.subject.vertex not in named)
    yield from watermarks(job, now_ms)
    yield from lags(job)
    yield from checkpoints(job, now_ms)
    yield from records(job)


def _well(job: JobDetails, now_ms: int) -> str:
    """One sentence about a job without findings."""
    if job.status.globally_terminal:
        took = span((job.end_ms or now_ms) - job.start_ms)
        how = {JobStatus.FINISHED: "finished", JobStatus.CANCELED: "was cancelled"}.get(job.status, "failed")
        return f"The job {how} after {took}."
    if job.status is not JobStatus.RUNNING:
        return f"The job is {job.status.value.lower()}."
    readers = {edge["id"] for vertex in job.vertices for edge in vertex.inputs}
    reads = sum(map(_read_rate, job.vertices))
    writes = sum(
        _rate(vertex, "records_out_per_second") for vertex in job.vertices if vertex.id not in readers
    )
    done = next((c for c in job.checkpoints if c.status == "COMPLETED" and c.end_timestamp_ms), None)
    checkpoint = ""
    if done is not None and done.end_timestamp_ms is not None:
        took = span(done.end_timestamp_ms - done.trigger_timestamp_ms)
        checkpoint = f"; the last checkpoint took {took}, {span(now_ms - done.end_timestamp_ms)} ago"
    return f"The job runs well: it reads {count(reads)} and writes {count(writes)} records/s{checkpoint}."


def _read_rate(vertex: VertexDetails) -> float:
    """Records a second that come from outside."""
    if not any(operator.get("kind") == "source" for operator in vertex.operators):
        return 0.0
    return sum(_source_rate(subtask) for subtask in running(vertex))


def _source_rate(subtask: SubtaskDetails) -> float:
    """Records a second that the source of a subtask reads. The subtask tells how many it sends on a second; operators
    in its chain make more or fewer of them, in the proportion of the totals."""
    rate = subtask.metrics.get("records_out_per_second") or 0.0
    first: dict[str, Any] = next(iter(subtask.metrics.get("operators", ())), {})
    read = first.get("counters", {}).get("numRecordsOut")
    sent = subtask.metrics.get("records_out")
    return rate * read / sent if read and sent else rate


def _rate(vertex: VertexDetails, name: str) -> float:
    return sum(s.metrics.get(name) or 0.0 for s in running(vertex))
