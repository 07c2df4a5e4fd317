"""The facts that a new job master reads from the decision log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from penstock.messages.cluster import (
    CheckpointCompleted,
    CheckpointDetails,
    JobAccepted,
    Restored,
    SavepointFailed,
    SavepointRequested,
    Terminal,
)
from penstock.messages.layout import checkpoints_prefix
from penstock.plan.backfill import backfill_graph, is_backfilled
from penstock_services.jobmanager.checkpoint_history import HISTORY, merged
from penstock_services.jobmanager.stages import BACKFILLED, BACKFILLING, Inherited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.jobgraph import JobGraph
    from penstock.messages.cluster import LogEntry
    from penstock_services.jobmanager.checkpoint_history import Statistics

#: The kind of the checkpoint with which a backfill ends.
BACKFILL = "backfill"


@dataclass(frozen=True)
class LoggedJob:
    """The facts in a job's log. ``accepted`` None: the log holds no job."""

    accepted: JobAccepted | None
    terminal: Terminal | None
    inherited: Inherited
    #: Whether Spark has read the history and its state is stored.
    backfilled: bool = False


def read_logged_job(entries: Iterable[tuple[int, LogEntry]], num_retained: int) -> LoggedJob:
    """The facts in the entries (number, entry) of a log. ``num_retained``: how many checkpoints are kept if
    the log does not say."""
    accepted: JobAccepted | None = None
    terminal: Terminal | None = None
    attempt = highest = slots = 0
    base: tuple[int, int] = (0, 0)
    vertices: dict[str, tuple[int, int]] = {}
    completed: list[CheckpointCompleted] = []
    restored = 0
    requests: dict[str, SavepointRequested] = {}
    ended: list[CheckpointDetails] = []
    handed_over = False
    for _, entry in entries:
        match entry:
            case JobAccepted():
                accepted = accepted or entry
            case SavepointRequested():
                requests.setdefault(entry.trigger_id, entry)
            case SavepointFailed():
                requests.pop(entry.trigger_id, None)
                ended.append(_failed(entry))
            case Restored():
                restored += entry.checkpoint_id > 0
                attempt = max(attempt, entry.job_attempt)
                highest = max(highest, entry.checkpoint_id)
                slots = entry.slots
                handed_over = False
                started = (entry.job_attempt, entry.checkpoint_id)
                if entry.vertices:
                    vertices = {**vertices, **dict.fromkeys(entry.vertices, started)}
                else:
                    base, vertices = started, {}
            case CheckpointCompleted():
                completed.append(entry)
                if entry.trigger_id is not None:
                    requests.pop(entry.trigger_id, None)
                ended.append(_completed(entry))
                highest = max(highest, entry.checkpoint_id)
                if entry.kind == BACKFILL:  # earlier entries belong to another graph
                    handed_over, slots = True, 0
            case Terminal():
                terminal = terminal or entry
    usable = _kept(completed, num_retained)
    return LoggedJob(
        accepted=accepted,
        terminal=terminal,
        backfilled=any(c.kind == BACKFILL for c in completed),
        inherited=Inherited(
            job_attempt=attempt,
            base=base,
            vertices=vertices,
            slots=slots,
            checkpoints_completed=len(completed),
            checkpoints_failed=sum(details.status == "FAILED" for details in ended),
            checkpoints_restored=restored,
            history=tuple(ended[-HISTORY:]),
            requests=tuple(requests.values()),
            highest_checkpoint_id=highest,
            completed=tuple((c.checkpoint_id, c.manifest_key, c.kind) for c in usable),
            accepted_ms=accepted.timestamp_ms if accepted else 0,
            handed_over=handed_over,
        ),
    )


def _kept(completed: Sequence[CheckpointCompleted], num_retained: int) -> Sequence[CheckpointCompleted]:
    """The checkpoints that are kept, oldest first. The others have been deleted."""
    if not completed or completed[-1].beside is None:
        return completed[-max(1, num_retained) :]
    ids = {completed[-1].checkpoint_id, *completed[-1].beside}
    return [c for c in completed if c.checkpoint_id in ids]


def _completed(entry: CheckpointCompleted) -> CheckpointDetails:
    """The details of a completed checkpoint. The log does not record when it began."""
    return CheckpointDetails(
        id=entry.checkpoint_id,
        status="COMPLETED",
        kind=entry.kind,
        trigger_timestamp_ms=entry.timestamp_ms,
        end_timestamp_ms=entry.timestamp_ms,
        path=entry.path or entry.manifest_key,
        trigger_id=entry.trigger_id,
    )


def _failed(entry: SavepointFailed) -> CheckpointDetails:
    return CheckpointDetails(
        id=entry.checkpoint_id,
        status="FAILED",
        kind=entry.kind,
        trigger_timestamp_ms=entry.timestamp_ms,
        end_timestamp_ms=entry.timestamp_ms,
        failure=entry.reason,
        trigger_id=entry.trigger_id,
    )


def in_phase(graph: JobGraph, logged: LoggedJob) -> tuple[JobGraph, str]:
    """(the part of the job that runs now, ``Settings.phase``)."""
    if not is_backfilled(graph):
        return msgspec.structs.replace(graph, backfill=""), ""
    if logged.backfilled:
        return msgspec.structs.replace(graph, backfill=""), BACKFILLED
    return backfill_graph(graph), BACKFILLING


def with_statistics(inherited: Inherited, kept: Sequence[Statistics]) -> Inherited:
    """``inherited`` with the stored statistics in its history of checkpoints."""
    history, failed = merged(inherited.history, kept)
    failed = max(failed, inherited.checkpoints_failed)
    return replace(inherited, history=history, checkpoints_failed=failed)


def highest_listed(job_id: str, keys: Iterable[str]) -> int:
    """The highest checkpoint id among object keys. The log does not name checkpoints that an earlier master
    had in flight."""
    prefix = checkpoints_prefix(job_id)
    numbers = (key.removeprefix(prefix).split("/", 1)[0] for key in keys)
    return max((int(n) for n in numbers if n.isdigit()), default=0)
