"""Vertices, subtasks, metrics and checkpoints in Flink's REST shapes. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock import config as keys
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher.views import (
    _end,
    _first,
    _last,
    _ratio,
    _times,
    backpressure_level,
    vertex_metrics,
    vertex_status,
)

if TYPE_CHECKING:
    from penstock.messages.cluster import CheckpointDetails, JobDetails, SubtaskDetails, VertexDetails

_E = ExecutionState


def subtask_metrics(subtask: SubtaskDetails) -> dict[str, Any]:
    m = subtask.metrics
    return {
        "read-bytes": m.get("bytes_in", 0),
        "write-bytes": m.get("bytes_out", 0),
        "read-records": m.get("records_in", 0),
        "write-records": m.get("records_out", 0),
        "read-records-per-second": m.get("records_in_per_second", 0.0),
        "write-records-per-second": m.get("records_out_per_second", 0.0),
        "busy-ratio": _ratio(subtask, "busy"),
        "idle-ratio": _ratio(subtask, "idle"),
        "backpressure-ratio": _ratio(subtask, "back_pressured"),
        "watermark": m["output_watermark"] // 1000 if m.get("output_watermark") is not None else None,
        "watermark-holder": m.get("watermark_holder"),
    }


def vertex(details: VertexDetails, now_ms: int) -> dict[str, Any]:
    return {
        "id": details.id,
        "name": details.name,
        "parallelism": details.parallelism,
        "maxParallelism": details.max_parallelism,
        "now": now_ms,
        "operators": details.operators,
        "metrics": vertex_metrics(details),
        "subtasks": [
            {
                "subtask": s.subtask_index,
                "status": s.state.value,
                "attempt": s.attempt,
                "host": s.taskmanager_id or "(unassigned)",
                "endpoint": s.taskmanager_id or "(unassigned)",
                **_times(_first([s]), _end(s), now_ms),
                "start_time": _first([s]) or -1,
                "metrics": subtask_metrics(s),
                "taskmanager-id": s.taskmanager_id or "(unassigned)",
                "allocation-id": s.allocation_id,
                "execution-id": s.execution_id,
                "other-concurrent-attempts": [],
            }
            for s in details.subtasks
        ],
    }


def backpressure(details: VertexDetails, now_ms: int) -> dict[str, Any]:
    ratios = [_ratio(s, "back_pressured") for s in details.subtasks]
    return {
        "status": "ok",
        "backpressure-level": backpressure_level(max(ratios, default=0.0)),
        "backpressureLevel": backpressure_level(max(ratios, default=0.0)),
        "end-timestamp": now_ms,
        "subtasks": [
            {
                "subtask": s.subtask_index,
                "attempt-number": s.attempt,
                "backpressure-level": backpressure_level(ratio),
                "backpressureLevel": backpressure_level(ratio),
                "ratio": ratio,
                "idleRatio": _ratio(s, "idle"),
                "busyRatio": _ratio(s, "busy"),
            }
            for s, ratio in zip(details.subtasks, ratios, strict=True)
        ],
    }


def watermarks(details: VertexDetails) -> list[dict[str, str]]:
    """In ms, as Flink's; subtasks without a watermark are left out."""
    found = ((s.subtask_index, s.metrics.get("input_watermark")) for s in details.subtasks)
    return [{"id": f"{i}.currentInputWatermark", "value": str(w // 1000)} for i, w in found if w is not None]


def subtask_times(details: VertexDetails, now_ms: int) -> dict[str, Any]:
    return {
        "id": details.id,
        "name": details.name,
        "now": now_ms,
        "subtasks": [
            {
                "subtask": s.subtask_index,
                "host": s.taskmanager_id or "(unassigned)",
                "duration": _times(_first([s]), _end(s), now_ms)["duration"],
                "timestamps": {state.value: s.timestamps.get(state.value, 0) for state in ExecutionState},
            }
            for s in details.subtasks
        ],
    }


def taskmanagers(details: VertexDetails, now_ms: int) -> dict[str, Any]:
    by_manager: dict[str, list[SubtaskDetails]] = {}
    for subtask in details.subtasks:
        by_manager.setdefault(subtask.taskmanager_id or "(unassigned)", []).append(subtask)
    rows = []
    for manager, subtasks in by_manager.items():
        part = type(details)(
            id=details.id, name=details.name, parallelism=0, max_parallelism=0, subtasks=subtasks
        )
        states = Counter(s.state.value for s in subtasks)
        rows.append(
            {
                "host": manager,
                "endpoint": manager,
                "status": vertex_status(part),
                **_times(_first(subtasks), _last(subtasks), now_ms),
                "metrics": vertex_metrics(part),
                "status-counts": {state.value: states.get(state.value, 0) for state in ExecutionState},
                "taskmanager-id": manager,
            }
        )
    return {"id": details.id, "name": details.name, "now": now_ms, "taskmanagers": rows}


# -- metrics -----------------------------------------------------------------------------

_TASK_METRICS = {
    "numRecordsIn": "records_in",
    "numRecordsOut": "records_out",
    "numBytesIn": "bytes_in",
    "numBytesOut": "bytes_out",
    "numRecordsInPerSecond": "records_in_per_second",
    "numRecordsOutPerSecond": "records_out_per_second",
    "busyTimeMsPerSecond": "busy_ms_per_second",
    "idleTimeMsPerSecond": "idle_ms_per_second",
    "backPressuredTimeMsPerSecond": "back_pressured_ms_per_second",
    "restoreBytes": "restore_bytes",
    "restoredBytes": "restored_bytes",
    "restoreReadMs": "restore_read_ms",
    "restoreLoadMs": "restore_load_ms",
}


def vertex_metric_values(details: VertexDetails) -> dict[str, Any]:
    """``"<subtask>.<metric>"`` and ``"<subtask>.<operator>.<metric>"`` → value."""
    found: dict[str, Any] = {}
    for subtask in details.subtasks:
        prefix = str(subtask.subtask_index)
        for name, field in _TASK_METRICS.items():
            if field in subtask.metrics:
                found[f"{prefix}.{name}"] = subtask.metrics[field]
        for operator in subtask.metrics.get("operators", ()):
            for name, value in {**operator.get("counters", {}), **operator.get("gauges", {})}.items():
                found[f"{prefix}.{operator['name']}.{name}"] = value
    return found


def job_metric_values(details: JobDetails, now_ms: int) -> dict[str, Any]:
    counts = details.checkpoint_counts
    last = next((c for c in details.checkpoints if c.status == "COMPLETED"), None)
    return {
        "numRestarts": max(0, details.attempt - 1),
        "uptime": _uptime(details, now_ms),
        "numberOfCompletedCheckpoints": counts.get("completed", 0),
        "numberOfFailedCheckpoints": counts.get("failed", 0),
        "numberOfInProgressCheckpoints": counts.get("in_progress", 0),
        "lastCheckpointDuration": (last.end_timestamp_ms or 0) - last.trigger_timestamp_ms if last else -1,
        "lastCheckpointSize": last.size_bytes if last else -1,
        "lastCheckpointFullSize": (last.full_size_bytes or last.size_bytes) if last else -1,
    }


def _uptime(details: JobDetails, now_ms: int) -> int:
    """As Flink's: how long it has run without interruption; 0 while it does not run, -1 when it is over."""
    if details.end_ms is not None:
        return -1
    running = JobStatus.RUNNING
    since_ms = details.timestamps.get(running.value)
    return max(0, now_ms - since_ms) if details.status is running and since_ms is not None else 0


def metric_list(values: dict[str, Any], wanted: str | None) -> list[dict[str, str]]:
    """Metric names, or (``?get=a,b``) names with values."""
    if wanted is None:
        return [{"id": name} for name in values]
    return [{"id": n, "value": str(values[n])} for n in wanted.split(",") if n in values]


# -- checkpoints -------------------------------------------------------------------------


def checkpoint(details: CheckpointDetails) -> dict[str, Any]:
    last_ack = max((s["ack_ms"] for s in details.subtasks), default=details.trigger_timestamp_ms)
    end = details.end_timestamp_ms
    return {
        "@class": details.status.lower(),
        "id": details.id,
        "status": details.status,
        "is_savepoint": details.kind in ("savepoint", "stop", "drain"),
        "savepointFormat": None,
        "trigger_timestamp": details.trigger_timestamp_ms,
        "latest_ack_timestamp": last_ack,
        "checkpointed_size": details.size_bytes,
        "state_size": details.full_size_bytes or details.size_bytes,
        "end_to_end_duration": end - details.trigger_timestamp_ms if end is not None else -1,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": sum(s.get("in_flight_bytes", 0) for s in details.subtasks),
        "num_subtasks": details.total,
        "num_acknowledged_subtasks": details.acknowledged,
        "checkpoint_type": details.kind.upper(),
        "external_path": details.path,
        "discarded": False,
        "failure_timestamp": end if details.failure else None,
        "failure_message": details.failure,
        "slowest": details.slowest,
    }


def checkpoints(details: JobDetails) -> dict[str, Any]:
    history = [checkpoint(c) for c in details.checkpoints]
    completed = [c for c in details.checkpoints if c.status == "COMPLETED"]

    def latest(status: str, savepoint: bool | None = None) -> dict[str, Any] | None:
        for c in history:
            if c["status"] == status and savepoint in (None, c["is_savepoint"]):
                return c
        return None

    durations = [(c.end_timestamp_ms or 0) - c.trigger_timestamp_ms for c in completed]
    return {
        "counts": {
            name: details.checkpoint_counts.get(name, 0)
            for name in ("restored", "total", "in_progress", "completed", "failed")
        },
        "summary": {
            "checkpointed_size": _summary([c.size_bytes for c in completed]),
            "state_size": _summary([c.size_bytes for c in completed]),
            "end_to_end_duration": _summary(durations),
            "alignment_buffered": _summary([]),
        },
        "latest": {
            "completed": latest("COMPLETED", False),
            "savepoint": latest("COMPLETED", True),
            "failed": latest("FAILED"),
            "restored": {"id": details.restored_checkpoint_id} if details.restored_checkpoint_id else None,
        },
        "history": history,
    }


def _summary(values: list[int]) -> dict[str, float]:
    if not values:
        return {"min": 0, "max": 0, "avg": 0}
    return {"min": min(values), "max": max(values), "avg": sum(values) // len(values)}


def checkpoint_details(job: JobDetails, found: CheckpointDetails) -> dict[str, Any]:
    by_vertex: dict[str, list[dict[str, Any]]] = {}
    for subtask in found.subtasks:
        by_vertex.setdefault(subtask["vertex_id"], []).append(subtask)
    tasks = {v.id: _checkpoint_of_vertex(v, found, by_vertex.get(v.id, [])) for v in job.vertices}
    return {**checkpoint(found), "tasks": tasks}


def _checkpoint_of_vertex(
    vertex: VertexDetails, found: CheckpointDetails, subtasks: list[dict[str, Any]]
) -> dict[str, Any]:
    size = sum(s["size_bytes"] for s in subtasks)
    return {
        "id": found.id,
        "status": found.status,
        "latest_ack_timestamp": max((s["ack_ms"] for s in subtasks), default=-1),
        "checkpointed_size": size,
        "state_size": sum(s.get("full_size_bytes", s["size_bytes"]) for s in subtasks),
        "end_to_end_duration": max((s["ack_ms"] - found.trigger_timestamp_ms for s in subtasks), default=-1),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": sum(s.get("in_flight_bytes", 0) for s in subtasks),
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": len(subtasks),
    }


def checkpoint_subtasks(vertex: VertexDetails, found: CheckpointDetails) -> dict[str, Any]:
    """What every subtask of a vertex did for the checkpoint, and which are missing."""
    known = {s["subtask_index"]: s for s in found.subtasks if s["vertex_id"] == vertex.id}
    mine = list(known.values())

    def spread(name: str) -> dict[str, float]:
        return _summary([round(s[name]) for s in mine])

    return {
        **_checkpoint_of_vertex(vertex, found, mine),
        "summary": {
            "checkpointed_size": spread("size_bytes"),
            "state_size": spread("size_bytes"),
            "end_to_end_duration": _summary([s["ack_ms"] - found.trigger_timestamp_ms for s in mine]),
            "checkpoint_duration": {"sync": spread("sync_ms"), "async": spread("async_ms")},
            "alignment": {"duration": spread("alignment_ms"), "buffered": _summary([])},
            "start_delay": spread("start_delay_ms"),
        },
        "subtasks": [
            _checkpoint_of_subtask(index, known.get(index), found) for index in range(vertex.parallelism)
        ],
    }


def _checkpoint_of_subtask(
    index: int, known: dict[str, Any] | None, found: CheckpointDetails
) -> dict[str, Any]:
    if known is None:
        return {"index": index, "status": "pending_or_failed"}
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": known["ack_ms"],
        "end_to_end_duration": known["ack_ms"] - found.trigger_timestamp_ms,
        "checkpointed_size": known["size_bytes"],
        "state_size": known.get("full_size_bytes", known["size_bytes"]),
        "checkpoint": {"sync": known["sync_ms"], "async": known["async_ms"]},
        "alignment": {
            "buffered": 0,
            "processed": 0,
            "persisted": known.get("in_flight_bytes", 0),
            "duration": known["alignment_ms"],
        },
        "start_delay": known["start_delay_ms"],
        "unaligned_checkpoint": known["unaligned"],
        "aborted": False,
    }


def checkpoint_config(job: JobDetails) -> dict[str, Any]:
    config = job.config
    retention = keys.EXTERNALIZED_RETENTION.read(config)
    return {
        "mode": keys.CHECKPOINT_MODE.read(config).lower(),
        "interval": keys.CHECKPOINT_INTERVAL_MS.read(config),
        "timeout": keys.CHECKPOINT_TIMEOUT_MS.read(config),
        "min_pause": keys.CHECKPOINT_MIN_PAUSE_MS.read(config),
        "max_concurrent": keys.max_concurrent_checkpoints(config),
        "externalization": {
            "enabled": retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": retention != "RETAIN_ON_CANCELLATION",
        },
        "state_backend": keys.STATE_BACKEND.read(config),
        "checkpoint_storage": "object store",
        "unaligned_checkpoints": keys.CHECKPOINT_UNALIGNED.read(config),
        "aligned_checkpoint_timeout": keys.CHECKPOINT_ALIGNED_TIMEOUT_MS.read(config),
        "tolerable_failed_checkpoints": keys.CHECKPOINT_TOLERABLE_FAILURES.read(config),
        "checkpoints_after_tasks_finish": True,
        "changelog_storage": "",
        "state_changelog_enabled": keys.INCREMENTAL.read(config),
        "num_retained": keys.CHECKPOINT_RETAINED.read(config),
        "savepoint_dir": keys.SAVEPOINT_DIR.read(config),
    }
