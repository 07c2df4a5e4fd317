"""Findings about checkpoints, and about records that were set aside or dropped."""

from __future__ import annotations

from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock import config as keys
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.common import accumulated
from penstock_services.dispatcher.why.findings import (
    Finding,
    Severity,
    Subject,
    about,
    count,
    quoted,
    short,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import CheckpointDetails, JobDetails

#: A checkpoint that takes less is never slow.
SLOW_MS = 10_000
#: The phase of a subtask's checkpoint, as a job master names it → what it means, and what to do.
_PHASES = {
    "waiting for the barrier (back-pressure before it)": (
        "The barrier reached it late: records before it had to be worked off first.",
        "Mend the bottleneck upstream of it, or let barriers overtake records "
        "(execution.checkpointing.unaligned.enabled).",
    ),
    "aligning its inputs": (
        "It waited for the barrier on its other inputs.",
        "Mend the slower input, or let barriers overtake records (execution.checkpointing.unaligned.enabled).",
    ),
    "cutting its state": (
        "The task stood still while it cut its state.",
        "Keep less state, or choose incremental checkpoints (execution.checkpointing.incremental).",
    ),
    "writing its state": (
        "Encoding and uploading its state took so long.",
        "Look at the object store's speed; keep less state, or choose incremental checkpoints "
        "(execution.checkpointing.incremental).",
    ),
}


def checkpoints(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    """Checkpoints that fail, that take long, or that are off."""
    if job.status is not JobStatus.RUNNING:
        return
    if job.job_type == "BATCH":
        return
    periodic = [c for c in job.checkpoints if c.kind == "checkpoint"]
    interval_ms = keys.CHECKPOINT_INTERVAL_MS.read(job.config)
    if not interval_ms:
        if not job.bounded:
            yield _off()
        return
    ended = [c for c in periodic if c.status != "IN_PROGRESS"]
    failed = list(takewhile(lambda c: c.status == "FAILED", ended))
    if failed:
        yield _failing(job, failed, ended, now_ms)
    durations = [_duration_ms(c, now_ms) for c in ended if c.status == "COMPLETED"]
    usual = median(durations) if durations else 0.0
    pending = next((c for c in periodic if c.status == "IN_PROGRESS"), None)
    newest = next((c for c in ended if c.status == "COMPLETED"), None)
    for checkpoint in (pending, newest):
        if checkpoint is None:
            continue
        took = _duration_ms(checkpoint, now_ms)
        if took > max(SLOW_MS, 3 * usual if checkpoint is pending else interval_ms):
            yield _slow(job, checkpoint, took, usual)
            return


def _duration_ms(checkpoint: CheckpointDetails, now_ms: int) -> int:
    return (checkpoint.end_timestamp_ms or now_ms) - checkpoint.trigger_timestamp_ms


def _off() -> Finding:
    return Finding(
        code="checkpoints-off",
        severity=Severity.INFO,
        title="Checkpoints are off: after a failure the job starts again from the beginning, without its state.",
        next_step="Set execution.checkpointing.interval, such as '10 s', unless that is what you want.",
        page="checkpoints",
    )


def _failing(
    job: JobDetails, failed: list[CheckpointDetails], ended: list[CheckpointDetails], now_ms: int
) -> Finding:
    last = next((c for c in ended if c.status == "COMPLETED"), None)
    safe = (
        f"The last completed one is {span(now_ms - (last.end_timestamp_ms or last.trigger_timestamp_ms))} old: "
        "after a failure the job repeats everything since."
        if last
        else "No checkpoint has completed: after a failure the job starts from the beginning."
    )
    reason = short(failed[0].failure or "no reason is known")
    if len(failed) == 1:
        title = f"The last checkpoint failed: {reason}"
    else:
        title = f"The last {len(failed)} checkpoints failed: {reason}"
    return Finding(
        code="checkpoint-failing",
        severity=Severity.ERROR if len(failed) > 2 else Severity.WARNING,
        title=title,
        since=failed[-1].trigger_timestamp_ms,
        subject=Subject(checkpoint=failed[0].id),
        causes=[*_slowest(job, failed[0]), safe],
        next_step="Mend the reason above. A time-out means that barriers or uploads are slow: see the checkpoint's "
        "phases by subtask.",
        page="checkpoints",
    )


def _slow(job: JobDetails, checkpoint: CheckpointDetails, took: int, usual: float) -> Finding:
    running = checkpoint.status == "IN_PROGRESS"
    title = (
        f"Checkpoint {checkpoint.id} has been running for {span(took)}; {checkpoint.acknowledged} of "
        f"{checkpoint.total} subtasks are done."
        if running
        else f"Checkpoints are slow: the last one took {span(took)}."
    )
    slowest = checkpoint.slowest or {}
    step = _PHASES.get(str(slowest.get("phase", "")), ("", ""))[1]
    return Finding(
        code="checkpoint-slow",
        severity=Severity.WARNING,
        title=title,
        since=checkpoint.trigger_timestamp_ms,
        subject=Subject(checkpoint=checkpoint.id, subtask=slowest.get("subtask_index")),
        causes=[*_slowest(job, checkpoint), *([f"Usually it takes {span(usual)}."] if usual else [])],
        next_step=step or "See the checkpoint's phases by subtask.",
        page="checkpoints",
    )


def _slowest(job: JobDetails, checkpoint: CheckpointDetails) -> list[str]:
    slowest: dict[str, Any] = checkpoint.slowest or {}
    if not slowest:
        return []
    vertex = next((v for v in job.vertices if v.id == slowest.get("vertex_id")), None)
    name = slowest.get("operator") or (vertex.name if vertex else "a vertex")
    phase = str(slowest.get("phase", ""))
    found = [f"{quoted(str(name))} took longest: {span(slowest.get('ms') or 0)}, {phase}."]
    if meaning := _PHASES.get(phase):
        found.append(meaning[0])
    return found


def records(job: JobDetails) -> Iterator[Finding]:
    """Records that were set aside because of errors, or dropped because they were late."""
    for vertex in job.vertices:
        counters = accumulated(vertex.subtasks)
        if errors := counters.get("numRecordsInErrors"):
            yield Finding(
                code="dead-letters",
                severity=Severity.WARNING,
                title=f"{quoted(vertex.name)} could not read or process {count(errors)} records.",
                subject=about(vertex),
                causes=["The job goes on without them, as its on-error option says."],
                next_step="Look at them among the dead letters: each has its error.",
                page="dead-letters",
            )
        if late := counters.get("numLateRecordsDropped"):
            yield Finding(
                code="late-records",
                severity=Severity.INFO,
                title=f"{quoted(vertex.name)} dropped {count(late)} records that came too late.",
                subject=about(vertex),
                causes=["The watermark had passed the end of their window when they came."],
                next_step="Let the watermark wait longer (WATERMARK FOR … - INTERVAL …), or send late records to a "
                "table (table.exec.late-data.table).",
                page="vertex",
            )
