"""Findings about event time: which split or channel holds the watermark, and which source lags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.why.findings import (
    ENDED_WATERMARK_MS,
    Finding,
    Severity,
    about,
    count,
    quoted,
    running,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails

#: Inputs whose watermarks are farther apart hold each other up.
APART_MS = 60_000
#: A subtask without a watermark is reported when the job has run for so long.
PATIENCE_MS = 30_000
#: A source that is so far behind what was written to it lags.
LAG_MS = 60_000


def _watermark_ms(subtask: SubtaskDetails) -> int | None:
    """The subtask's output watermark; None: none yet. An input that has ended holds nothing up."""
    found = subtask.metrics.get("output_watermark")
    return None if found is None else found // 1000


def _is_source(vertex: VertexDetails) -> bool:
    return any(o.get("kind") == "source" for o in vertex.operators)


def watermarks(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    """The source subtask that holds event time back, if the others are far ahead of it."""
    if job.status is not JobStatus.RUNNING:
        return
    since = job.timestamps.get(JobStatus.RUNNING.value) or job.start_ms
    known: list[tuple[int, VertexDetails, SubtaskDetails]] = []
    silent: list[tuple[VertexDetails, SubtaskDetails]] = []
    for vertex in filter(_is_source, job.vertices):
        for subtask in running(vertex):
            watermark = _watermark_ms(subtask)
            if watermark is None:
                silent.append((vertex, subtask))
            elif watermark < ENDED_WATERMARK_MS - APART_MS:
                known.append((watermark, vertex, subtask))
    if known and silent and now_ms - since > PATIENCE_MS:
        yield _held_by_silence(*silent[0], others=len(known), more=len(silent) - 1)
    elif known:
        low, high = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
        if high[0] - low[0] > APART_MS:
            yield _held(low, high)


def _holder(subtask: SubtaskDetails) -> str | None:
    holder = subtask.metrics.get("watermark_holder")
    return str(holder) if holder else None


def _held_by_silence(vertex: VertexDetails, subtask: SubtaskDetails, *, others: int, more: int) -> Finding:
    holder = _holder(subtask)
    rate = subtask.metrics.get("records_out_per_second") or 0.0
    causes = [
        f"Subtask {subtask.subtask_index} of {quoted(vertex.name)} has no watermark yet"
        + (f", as {count(more)} others." if more else "."),
        f"{count(others)} other source subtasks have one; event time is the lowest of all, so windows wait.",
        "It reads no records." if not rate else f"It reads {count(rate)} records/s.",
    ]
    if holder:
        causes.insert(1, f"It waits for {holder}.")
    return Finding(
        code="watermark-held",
        severity=Severity.WARNING,
        title=f"{quoted(vertex.name)} holds event time back: subtask {subtask.subtask_index} has no watermark.",
        subject=about(vertex, subtask, channel=holder),
        causes=causes,
        next_step="If a split may stay empty, let it count as idle after a while "
        "(table.exec.source.idle-timeout, or with_idleness of the watermark strategy).",
        page="vertex",
    )


def _held(low: tuple[int, Any, Any], high: tuple[int, Any, Any]) -> Finding:
    behind, vertex, subtask = low
    holder = _holder(subtask)
    causes = [
        f"Subtask {subtask.subtask_index} of {quoted(vertex.name)} has the lowest watermark of all sources.",
        f"Subtask {high[2].subtask_index} of {quoted(high[1].name)} is {span(high[0] - behind)} ahead; its "
        "records wait in windows and joins, as state.",
    ]
    if holder:
        causes.insert(1, f"In it, {holder} is the slowest.")
    return Finding(
        code="watermark-held",
        severity=Severity.WARNING,
        title=f"{quoted(vertex.name)} holds event time back by {span(high[0] - behind)}"
        + (f": {holder}." if holder else "."),
        subject=about(vertex, subtask, channel=holder),
        causes=causes,
        next_step="See why that input is behind: it has few or no records, its reader is slow, or its records are "
        "older than those of the others.",
        page="vertex",
    )


def lags(job: JobDetails) -> Iterator[Finding]:
    """Sources that are behind what waits for them."""
    for vertex in filter(_is_source, job.vertices):
        pending, lag_ms = 0, 0.0
        for subtask in running(vertex):
            gauges = [o.get("gauges", {}) for o in subtask.metrics.get("operators", ())]
            pending += sum(g.get("pendingRecords") or 0 for g in gauges)
            lag_ms = max([lag_ms, *(g.get("currentEmitEventTimeLag") or 0 for g in gauges)])
        rate = sum(s.metrics.get("records_out_per_second") or 0.0 for s in running(vertex))
        if not pending or (rate and pending / rate * 1000 < LAG_MS):
            continue
        catch_up = (
            f"At {count(rate)} records/s it needs {span(pending / rate * 1000)} for them." if rate else ""
        )
        yield Finding(
            code="lagging",
            severity=Severity.WARNING,
            title=f"{quoted(vertex.name)} lags: {count(pending)} records wait for it.",
            subject=about(vertex),
            causes=[
                text
                for text in (
                    catch_up or "It reads nothing at the moment.",
                    f"The newest record that it has read happened {span(lag_ms)} ago." if lag_ms else "",
                )
                if text
            ],
            next_step="If a vertex behind it is the bottleneck, mend that first; else raise the parallelism of the "
            "source, up to the number of its splits.",
            page="vertex",
        )
