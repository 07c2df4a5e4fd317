"""The metrics of tasks and operators under Flink's names: REST and Prometheus show the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.messages.cluster import JobDetails, SubtaskDetails

#: Metrics of a task: name → (field of ``TaskMetrics``, what it is).
TASK_METRICS = {
    "numRecordsIn": ("records_in", "Records read since the task started."),
    "numRecordsOut": ("records_out", "Records written since the task started."),
    "numBytesIn": ("bytes_in", "Bytes read since the task started."),
    "numBytesOut": ("bytes_out", "Bytes written since the task started."),
    "numRecordsInPerSecond": ("records_in_per_second", "Records read a second."),
    "numRecordsOutPerSecond": ("records_out_per_second", "Records written a second."),
    "numBytesInPerSecond": ("bytes_in_per_second", "Bytes read a second."),
    "numBytesOutPerSecond": ("bytes_out_per_second", "Bytes written a second."),
    "busyTimeMsPerSecond": ("busy_ms_per_second", "Time spent working, ms a second."),
    "idleTimeMsPerSecond": ("idle_ms_per_second", "Time without input, ms a second."),
    "backPressuredTimeMsPerSecond": ("back_pressured_ms_per_second", "Time without credit, ms a second."),
    "accumulateBusyTimeMs": ("busy_ms", "Time spent working since the task started, ms."),
    "accumulateIdleTimeMs": ("idle_ms", "Time without input since the task started, ms."),
    "accumulateBackPressuredTimeMs": ("back_pressured_ms", "Time without credit since the task started, ms."),
    "inPoolUsage": ("in_pool_usage", "Share of the slot's pool of network memory that is lent, from 0 to 1."),
    "restoreBytes": ("restore_bytes", "Bytes of snapshots that the task is restored from."),
    "restoredBytes": ("restored_bytes", "Of those, bytes read so far."),
    "restoreReadMs": ("restore_read_ms", "Time spent fetching and checking those snapshots, ms."),
    "restoreLoadMs": ("restore_load_ms", "Time spent loading those snapshots into state, ms."),
}
#: Counters of every operator. They exist at zero too, so that an alert finds them.
OPERATOR_COUNTERS = ("numRecordsIn", "numRecordsOut", "numLateRecordsDropped", "numRecordsInErrors")
#: A task that spends more ms of a second without credit is back-pressured.
_MOSTLY_MS = 500.0


def task_values(details: SubtaskDetails) -> dict[str, Any]:
    """Name → value of a task's metrics; nothing before the task has reported. Those of checkpoints are in
    ``barrier_values``."""
    found = {
        name: details.metrics[field]
        for name, (field, _) in TASK_METRICS.items()
        if details.metrics.get(field) is not None
    }
    if found:
        back = details.metrics.get("back_pressured_ms_per_second") or 0.0
        found["isBackPressured"] = int(back > _MOSTLY_MS)
    return found


#: Metrics of a task at the last completed checkpoint: name → (field of ``CheckpointDetails.subtasks``, what it is).
#: Flink has them in nanoseconds, and so have we.
BARRIER_METRICS = {
    "checkpointAlignmentTime": (
        "alignment_ms",
        "From the first to the last barrier of the last completed checkpoint, ns.",
    ),
    "checkpointStartDelayNanos": (
        "start_delay_ms",
        "From the trigger of the last completed checkpoint to its first barrier, ns.",
    ),
}
_NS_PER_MS = 1_000_000


def barrier_values(details: JobDetails) -> dict[tuple[str, int], dict[str, int]]:
    """(vertex id, subtask index) → name → nanoseconds of a task at the job's last completed checkpoint."""
    last = next((c for c in details.checkpoints if c.status == "COMPLETED"), None)
    if last is None:
        return {}
    return {
        (subtask["vertex_id"], subtask["subtask_index"]): {
            name: int(subtask.get(field, 0.0) * _NS_PER_MS) for name, (field, _) in BARRIER_METRICS.items()
        }
        for subtask in last.subtasks
    }
