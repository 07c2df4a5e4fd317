"""The verdict about a job: all findings, the worst first, and one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.why.checkpointing import checkpoints, records
from penstock_services.dispatcher.why.event_time import lags, watermarks
from penstock_services.dispatcher.why.failures import failures, restores, stalls, waiting
from penstock_services.dispatcher.why.findings import ORDER, Finding, Verdict, count, running, span
from penstock_services.dispatcher.why.pressure import bottlenecks, skews

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.messages.cluster import JobDetails, VertexDetails


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
    first = [v for v in job.vertices if any(o.get("kind") == "source" for o in v.operators)]
    reads, writes = (
        _rate(vertices) for vertices in (first, [v for v in job.vertices if v.id not in readers])
    )
    done = next((c for c in job.checkpoints if c.status == "COMPLETED" and c.end_timestamp_ms), None)
    checkpoint = ""
    if done is not None and done.end_timestamp_ms is not None:
        took = span(done.end_timestamp_ms - done.trigger_timestamp_ms)
        checkpoint = f"; the last checkpoint took {took}, {span(now_ms - done.end_timestamp_ms)} ago"
    return f"The job runs well: it reads {count(reads)} and writes {count(writes)} records/s{checkpoint}."


def _rate(vertices: Sequence[VertexDetails]) -> float:
    return sum(s.metrics.get("records_out_per_second") or 0.0 for v in vertices for s in running(v))
