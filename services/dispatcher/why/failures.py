"""Findings about a job that does not run, or did not: failures, missing slots, steps that hang, restores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher.views.io_metrics import restoring
from penstock_services.dispatcher.why.findings import (
    Finding,
    Severity,
    Subject,
    about,
    quoted,
    short,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import JobDetails

#: A failure after which the job runs again is shown for so long.
RECENT_MS = 15 * 60_000
#: A restore that takes longer is shown.
RESTORE_MS = 10_000
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
#: In these states a task has its sources and sinks, or opens them, which may wait for a server.
_WITH_CONNECTORS = (ExecutionState.INITIALIZING, ExecutionState.RUNNING)
_AGAIN = (JobStatus.RESTARTING, JobStatus.FAILING)


def failures(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    """The newest failure, if the job ended with it, restarts because of it, or did so not long ago."""
    if not job.exceptions:
        return
    entry = job.exceptions[0]
    at = entry.get("timestamp_ms")
    times = len(job.exceptions)
    if job.status is JobStatus.FAILED:
        severity, title = Severity.ERROR, f"The job failed: {_message(entry)}"
    elif job.status in _AGAIN:
        severity = Severity.ERROR
        title = f"The job restarts after a failure (attempt {job.attempt}): {_message(entry)}"
    elif not job.status.globally_terminal and at is not None and now_ms - at < RECENT_MS:
        severity = Severity.WARNING
        often = f"; {times} failures are kept" if times > 1 else ""
        title = f"The job was restarted {span(now_ms - at)} ago: {_message(entry)}{often}"
    else:
        return
    yield Finding(
        code="failure",
        severity=severity,
        title=title,
        since=at,
        subject=Subject(
            operator=entry.get("operator"), taskmanager=entry.get("location"), vertex_name=entry.get("task")
        ),
        causes=_causes(entry),
        next_step=_remedy(entry),
        page="exceptions",
    )


def _error(entry: dict[str, Any]) -> dict[str, Any]:
    return entry.get("error") or {}


def _message(entry: dict[str, Any]) -> str:
    return short(_error(entry).get("message") or _last_line(entry.get("exception", "")) or "no message")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _causes(entry: dict[str, Any]) -> list[str]:
    error, found = _error(entry), []
    if entry.get("task"):
        place = f" on {entry['location']}" if entry.get("location") else ""
        found.append(f"Task {quoted(entry['task'])} failed{place}.")
    if entry.get("operator"):
        found.append(f"It was in operator {quoted(entry['operator'])}.")
    if entry.get("record"):
        found.append(f"The record was {short(str(entry['record']))}.")
    if error.get("expected") and error.get("got"):
        found.append(f"Expected {short(str(error['expected']))}; got {short(str(error['got']))}.")
    traceback = str(error.get("user_traceback") or "")
    if frames := list(_FRAME.finditer(traceback)):
        path, line, function = frames[-1].groups()
        raised = _last_line(traceback)
        found.append(f"Your code raised it in {path}, line {line}, in {function}: {short(raised)}")
    if entry.get("restored_instead"):
        found.append(short(str(entry["restored_instead"])))
    if entry.get("not_restarted"):
        found.append(f"It was not restarted: {short(str(entry['not_restarted']))}")
    return found


def _remedy(entry: dict[str, Any]) -> str:
    error = _error(entry)
    if error.get("remedy"):
        text = short(str(error["remedy"]))
        return text[:1].upper() + text[1:]
    if error.get("user_traceback"):
        return (
            "Mend the line that the traceback ends with, then submit the job again from its last checkpoint."
        )
    return "Read the whole exception, and the log of the task manager on which the task ran."


def waiting(job: JobDetails) -> Iterator[Finding]:
    """What the job waits for, such as slots."""
    if not job.waiting_for or job.status.globally_terminal:
        return
    slots = "slot" in job.waiting_for
    yield Finding(
        code="waiting",
        severity=Severity.ERROR,
        title=f"The job waits: {short(job.waiting_for)}",
        since=job.timestamps.get(job.status.value) or job.start_ms,
        next_step="Start another task manager, give task managers more slots (taskmanager.numberOfTaskSlots), "
        "lower the job's parallelism, or cancel a job that you do not need."
        if slots
        else "Look at the cluster's processes: one that the job needs does not run or does not answer.",
        page="graph" if not slots else "taskmanagers",
    )


def away(job: JobDetails) -> Iterator[Finding]:
    """The servers outside that sources and sinks wait for: why nothing moves."""
    for vertex in job.vertices:
        open_ones = [s for s in vertex.subtasks if s.state in _WITH_CONNECTORS]
        said = {short(str(text)) for subtask in open_ones for text in subtask.metrics.get("away", ())}
        if said:
            yield Finding(
                code="server-away",
                severity=Severity.ERROR,
                title=f"{quoted(vertex.name)} waits for a server that does not answer.",
                subject=about(vertex),
                causes=sorted(said),
                next_step="Start the server, or look at the network between it and the task managers. The job goes on by "
                "itself, from where it was.",
            )


def stalls(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    """Slots whose current step does not end."""
    for stalled in job.stalled:
        named = [str(task) for task in stalled.get("tasks", ())]
        # An enumerator lists splits; it runs none of the job's functions.
        tasks = ", ".join([task for task in named if not task.startswith("Enumerator: ")] or named)
        since = stalled.get("since_ms")
        lasted = f" for {span(now_ms - since)}" if since is not None else ""
        frame = stalled.get("frame")
        yield Finding(
            code="stalled",
            severity=Severity.ERROR,
            title=f"A step of {quoted(tasks)} has not ended{lasted}; its slot does nothing else.",
            since=since,
            subject=Subject(vertex_name=tasks, taskmanager=stalled.get("taskmanager_id")),
            causes=[f"The code stands at {frame}." if frame else "Where its code stands is not known yet."],
            next_step="Change the function that stands there: it waits for something or computes for too long. "
            "Give calls to other systems a time limit, or make them asynchronous.",
            page="logs",
        )


def restores(job: JobDetails, now_ms: int) -> Iterator[Finding]:
    """Vertices that take long to load their state."""
    for vertex in job.vertices:
        busy = [s for s in vertex.subtasks if s.state is ExecutionState.INITIALIZING]
        began = min((s.timestamps.get("INITIALIZING", now_ms) for s in busy), default=now_ms)
        if now_ms - began < RESTORE_MS:
            continue
        progress = restoring(vertex.subtasks)
        read = f": {progress.read:,} of {progress.bytes:,} bytes are read" if progress else ""
        yield Finding(
            code="restoring",
            severity=Severity.INFO,
            title=f"{quoted(vertex.name)} has been loading its state for {span(now_ms - began)}{read}.",
            since=began,
            subject=about(vertex),
            causes=[f"{len(busy)} of {vertex.parallelism} subtasks are still starting."],
            next_step="Wait; if it takes too long, keep copies of snapshots on local disks "
            "(state.backend.local-recovery) or raise the parallelism.",
            page="graph",
        )
