"""What a new master takes over from the decision log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.messages.cluster import CheckpointCompleted, JobAccepted, Restored, Terminal
from penstock.messages.layout import checkpoints_prefix
from services.jobmanager.stages import Inherited

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.messages.cluster import LogEntry

#: Kind of the checkpoint that a backfill ends with.
BACKFILL = "backfill"

#: Keys of the cluster's configuration that apply to its jobs unless they say otherwise.
#: (Others, such as the store's credentials, are none of a job's business.)
JOB_FAMILIES = (
    "execution.", "state.", "restart-strategy.", "pipeline.", "table.", "parallelism.", "metrics.",
    "taskmanager.memory.", "user.", "nats.url",
)  # fmt: skip


@dataclass(frozen=True)
class Story:
    """A job's log, read. ``accepted`` None: nobody accepted such a job."""

    accepted: JobAccepted | None
    terminal: Terminal | None
    inherited: Inherited
    #: the history was read on Spark, its state is there
    backfilled: bool = False


def read_story(entries: Iterable[tuple[int, LogEntry]], num_retained: int) -> Story:
    accepted: JobAccepted | None = None
    terminal: Terminal | None = None
    attempt = highest = slots = 0
    base: tuple[int, int] = (0, 0)
    vertices: dict[str, tuple[int, int]] = {}
    completed: list[CheckpointCompleted] = []
    handed_over = False
    for _, entry in entries:
        match entry:
            case JobAccepted():
                accepted = accepted or entry
            case Restored():
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
                highest = max(highest, entry.checkpoint_id)
                if entry.kind == BACKFILL:  # what ran before it is of another graph
                    handed_over, slots = True, 0
            case Terminal():
                terminal = terminal or entry
    usable = completed[-max(1, num_retained) :]  # older ones are deleted
    return Story(
        accepted=accepted,
        terminal=terminal,
        backfilled=any(c.kind == BACKFILL for c in completed),
        inherited=Inherited(
            job_attempt=attempt,
            base=base,
            vertices=vertices,
            slots=slots,
            checkpoints_completed=len(completed),
            highest_checkpoint_id=highest,
            completed=tuple((c.checkpoint_id, c.manifest_key, c.kind) for c in usable),
            accepted_ms=accepted.timestamp_ms if accepted else 0,
            handed_over=handed_over,
        ),
    )


def highest_listed(job_id: str, keys: Iterable[str]) -> int:
    """The highest checkpoint id of which some object exists: of one that a former master
    had in flight the log says nothing."""
    prefix = checkpoints_prefix(job_id)
    numbers = (key.removeprefix(prefix).split("/", 1)[0] for key in keys)
    return max((int(n) for n in numbers if n.isdigit()), default=0)


def job_config(cluster: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """The job's own configuration over what the cluster says for all jobs."""
    return {k: v for k, v in cluster.items() if k.startswith(JOB_FAMILIES)} | dict(job)
