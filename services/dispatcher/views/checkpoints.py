"""Checkpoints and savepoints of a job: their history, single ones, and the work of each task for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config as keys
from penstock_services.dispatcher.views.common import Shape, vertex_id
from penstock_services.dispatcher.views.statistics import Summary, summary

if TYPE_CHECKING:
    from penstock.messages.cluster import CheckpointDetails, JobDetails, VertexDetails

#: Kind → Flink's type. The reports of the subtasks tell whether a checkpoint is unaligned.
_TYPES = {"savepoint": "SAVEPOINT", "stop": "SYNC_SAVEPOINT", "drain": "SYNC_SAVEPOINT"}


class TaskCheckpoint(Shape, frozen=True, kw_only=True):
    """The work of a vertex's subtasks for a checkpoint. Sizes are in bytes, times in ms; -1: not known yet.

    ``persisted_data``: bytes in flight, if the checkpoint is unaligned.
    """

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(TaskCheckpoint, frozen=True, kw_only=True):
    """One checkpoint. ``className`` tells Flink's clients whether it is completed or failed. ``tasks``:
    vertex id → its work, if one checkpoint was requested."""

    class_name: str = msgspec.field(name="className")
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    trigger_timestamp: int
    checkpoint_type: str
    tasks: dict[str, TaskCheckpoint]
    external_path: str | None
    discarded: bool = False
    failure_timestamp: int | None
    failure_message: str | None
    # Of ours. ``slowest``: the subtask that took longest.
    kind: str
    slowest: dict[str, Any] | None


class RestoredCheckpoint(Shape, frozen=True, kw_only=True):
    """The checkpoint from which the job was restored. ``restore_timestamp``: when that attempt began, in ms."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(Shape, frozen=True, kw_only=True):
    """The latest checkpoint of each kind; None if there is none."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpoint | None


class CheckpointCounts(Shape, frozen=True, kw_only=True):
    """How many checkpoints the job has had."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointSummary(Shape, frozen=True, kw_only=True):
    """Statistics of the completed checkpoints in the history."""

    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    alignment_buffered: Summary = Summary()
    processed_data: Summary = Summary()
    persisted_data: Summary


class CheckpointingStatistics(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/checkpoints``. ``history``: newest first."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class TwoParts(Shape, frozen=True, kw_only=True):
    """Durations in ms. ``sync``: while the task stands still; ``async``: while it works."""

    sync: Summary
    async_: Summary = msgspec.field(name="async")


class AlignmentSummary(Shape, frozen=True, kw_only=True):
    """Statistics of the alignment: sizes in bytes, ``duration`` in ms."""

    buffered: Summary = Summary()
    processed: Summary = Summary()
    persisted: Summary
    duration: Summary


class SubtasksSummary(Shape, frozen=True, kw_only=True):
    """Statistics of a vertex's subtasks that have acknowledged the checkpoint."""

    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    checkpoint_duration: TwoParts
    alignment: AlignmentSummary
    start_delay: Summary


class SubtaskDurations(Shape, frozen=True, kw_only=True):
    """Durations in ms; see ``TwoParts``."""

    sync: float
    async_: float = msgspec.field(name="async")


class SubtaskAlignment(Shape, frozen=True, kw_only=True):
    """The alignment of one subtask: sizes in bytes, ``duration`` in ms."""

    buffered: int = 0
    processed: int = 0
    persisted: int
    duration: float


class PendingSubtask(Shape, frozen=True, kw_only=True, tag_field="className", tag="pending"):
    """A subtask that has not acknowledged the checkpoint."""

    index: int
    status: str = "pending_or_failed"


class CompletedSubtask(Shape, frozen=True, kw_only=True, tag_field="className", tag="completed"):
    """A subtask that has acknowledged the checkpoint. Sizes are in bytes, times in ms."""

    index: int
    status: str = "completed"
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: SubtaskDurations
    alignment: SubtaskAlignment
    start_delay: float
    unaligned_checkpoint: bool
    aborted: bool = False


class TaskCheckpointDetails(TaskCheckpoint, frozen=True, kw_only=True):
    """``GET …/checkpoints/details/{checkpoint}/subtasks/{vertex}``"""

    summary: SubtasksSummary
    subtasks: list[PendingSubtask | CompletedSubtask]


class Externalization(Shape, frozen=True, kw_only=True):
    """Whether the last checkpoints stay when the job ends, and whether a cancellation deletes them."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/checkpoints/config``. Times are in ms. Changes of state are not written between
    checkpoints, so the interval of materialization is 0."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str = "object store"
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool = True
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int = 0
    changelog_storage: str = ""
    # Of ours.
    num_retained: int
    savepoint_dir: str | None


def _checkpoint_type(details: CheckpointDetails) -> str:
    unaligned = any(s.get("unaligned") for s in details.subtasks)
    return _TYPES.get(details.kind, "UNALIGNED_CHECKPOINT" if unaligned else "CHECKPOINT")


def _duration(details: CheckpointDetails) -> int:
    end = details.end_timestamp_ms
    return end - details.trigger_timestamp_ms if end is not None else -1


def _full_size(details: CheckpointDetails) -> int:
    return details.full_size_bytes or details.size_bytes


def _in_flight(details: CheckpointDetails) -> int:
    return sum(s.get("in_flight_bytes", 0) for s in details.subtasks)


def checkpoint(details: CheckpointDetails, tasks: dict[str, TaskCheckpoint] | None = None) -> Checkpoint:
    """One checkpoint. ``tasks``: vertex id → its work, if wanted."""
    last_ack = max((s["ack_ms"] for s in details.subtasks), default=details.trigger_timestamp_ms)
    slowest = details.slowest
    if slowest and "vertex_id" in slowest:
        slowest = {**slowest, "vertex_id": vertex_id(slowest["vertex_id"])}
    return Checkpoint(
        class_name=details.status.lower(),
        id=details.id,
        status=details.status,
        is_savepoint=details.kind in _TYPES,
        savepoint_format="CANONICAL" if details.kind in _TYPES else None,
        trigger_timestamp=details.trigger_timestamp_ms,
        latest_ack_timestamp=last_ack,
        checkpointed_size=details.size_bytes,
        state_size=_full_size(details),
        end_to_end_duration=_duration(details),
        persisted_data=_in_flight(details),
        num_subtasks=details.total,
        num_acknowledged_subtasks=details.acknowledged,
        checkpoint_type=_checkpoint_type(details),
        tasks=tasks or {},
        external_path=details.path,
        failure_timestamp=details.end_timestamp_ms if details.failure else None,
        failure_message=details.failure,
        kind=details.kind,
        slowest=slowest,
    )


def checkpoints(details: JobDetails) -> CheckpointingStatistics:
    """The checkpoints of a job."""
    history = [checkpoint(c) for c in details.checkpoints]
    completed = [c for c in details.checkpoints if c.status == "COMPLETED"]

    def latest(status: str, savepoint: bool | None = None) -> Checkpoint | None:
        found = (c for c in history if c.status == status and savepoint in (None, c.is_savepoint))
        return next(found, None)

    counts = {name: details.checkpoint_counts.get(name, 0) for name in CheckpointCounts.__struct_fields__}
    return CheckpointingStatistics(
        counts=CheckpointCounts(**counts),
        summary=CheckpointSummary(
            checkpointed_size=summary([c.size_bytes for c in completed]),
            state_size=summary([_full_size(c) for c in completed]),
            end_to_end_duration=summary([_duration(c) for c in completed]),
            persisted_data=summary([_in_flight(c) for c in completed]),
        ),
        latest=LatestCheckpoints(
            completed=latest("COMPLETED", False),
            savepoint=latest("COMPLETED", True),
            failed=latest("FAILED"),
            restored=_restored(details),
        ),
        history=history,
    )


def _restored(details: JobDetails) -> RestoredCheckpoint | None:
    wanted = details.restored_checkpoint_id
    if not wanted:
        return None
    known = next((c for c in details.checkpoints if c.id == wanted and c.status == "COMPLETED"), None)
    return RestoredCheckpoint(
        id=wanted,
        restore_timestamp=details.timestamps.get("CREATED") or details.start_ms,
        is_savepoint=known is not None and known.kind in _TYPES,
        external_path=known.path if known is not None else None,
    )


def checkpoint_details(job: JobDetails, found: CheckpointDetails) -> Checkpoint:
    """One checkpoint with the work of each vertex."""
    tasks = {vertex_id(v.id): TaskCheckpoint(**_of_vertex(v, found, _of(v, found))) for v in job.vertices}
    return checkpoint(found, tasks)


def _of(vertex: VertexDetails, found: CheckpointDetails) -> list[dict[str, Any]]:
    return [s for s in found.subtasks if s["vertex_id"] == vertex.id]


def _of_vertex(
    vertex: VertexDetails, found: CheckpointDetails, subtasks: list[dict[str, Any]]
) -> dict[str, Any]:
    """The fields of ``TaskCheckpoint``."""
    return {
        "id": found.id,
        "status": found.status,
        "latest_ack_timestamp": max((s["ack_ms"] for s in subtasks), default=-1),
        "checkpointed_size": sum(s["size_bytes"] for s in subtasks),
        "state_size": sum(_state_size(s) for s in subtasks),
        "end_to_end_duration": max((s["ack_ms"] - found.trigger_timestamp_ms for s in subtasks), default=-1),
        "persisted_data": sum(s.get("in_flight_bytes", 0) for s in subtasks),
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": len(subtasks),
    }


def _state_size(subtask: dict[str, Any]) -> int:
    return int(subtask.get("full_size_bytes", subtask["size_bytes"]))


def checkpoint_subtasks(vertex: VertexDetails, found: CheckpointDetails) -> TaskCheckpointDetails:
    """The work of every subtask of a vertex for the checkpoint, and which subtasks are missing."""
    mine = _of(vertex, found)
    known = {s["subtask_index"]: s for s in mine}

    def over(name: str) -> Summary:
        return summary([s[name] for s in mine])

    return TaskCheckpointDetails(
        **_of_vertex(vertex, found, mine),
        summary=SubtasksSummary(
            checkpointed_size=over("size_bytes"),
            state_size=summary([_state_size(s) for s in mine]),
            end_to_end_duration=summary([s["ack_ms"] - found.trigger_timestamp_ms for s in mine]),
            checkpoint_duration=TwoParts(sync=over("sync_ms"), async_=over("async_ms")),
            alignment=AlignmentSummary(
                duration=over("alignment_ms"), persisted=summary([s.get("in_flight_bytes", 0) for s in mine])
            ),
            start_delay=over("start_delay_ms"),
        ),
        subtasks=[
            _of_subtask(known[index], found) if index in known else PendingSubtask(index=index)
            for index in range(vertex.parallelism)
        ],
    )


def _of_subtask(known: dict[str, Any], found: CheckpointDetails) -> CompletedSubtask:
    return CompletedSubtask(
        index=known["subtask_index"],
        ack_timestamp=known["ack_ms"],
        end_to_end_duration=known["ack_ms"] - found.trigger_timestamp_ms,
        checkpointed_size=known["size_bytes"],
        state_size=_state_size(known),
        checkpoint=SubtaskDurations(sync=known["sync_ms"], async_=known["async_ms"]),
        alignment=SubtaskAlignment(persisted=known.get("in_flight_bytes", 0), duration=known["alignment_ms"]),
        start_delay=known["start_delay_ms"],
        unaligned_checkpoint=known["unaligned"],
    )


def checkpoint_config(job: JobDetails) -> CheckpointConfig:
    """The configuration of a job's checkpoints."""
    config = job.config
    retention = keys.EXTERNALIZED_RETENTION.read(config)
    return CheckpointConfig(
        mode=keys.CHECKPOINT_MODE.read(config).lower(),
        interval=keys.CHECKPOINT_INTERVAL_MS.read(config),
        timeout=keys.CHECKPOINT_TIMEOUT_MS.read(config),
        min_pause=keys.CHECKPOINT_MIN_PAUSE_MS.read(config),
        max_concurrent=keys.max_concurrent_checkpoints(config),
        externalization=Externalization(
            enabled=retention != "NO_EXTERNALIZED_CHECKPOINTS",
            delete_on_cancellation=retention != "RETAIN_ON_CANCELLATION",
        ),
        state_backend=keys.STATE_BACKEND.read(config),
        unaligned_checkpoints=keys.CHECKPOINT_UNALIGNED.read(config),
        tolerable_failed_checkpoints=keys.CHECKPOINT_TOLERABLE_FAILURES.read(config),
        aligned_checkpoint_timeout=keys.CHECKPOINT_ALIGNED_TIMEOUT_MS.read(config),
        state_changelog_enabled=keys.INCREMENTAL.read(config),
        num_retained=keys.CHECKPOINT_RETAINED.read(config),
        savepoint_dir=keys.SAVEPOINT_DIR.read(config),
    )
