"""Task manager ↔ slot process, and what passes through to the job master.

A slot process serves one allocation of one job attempt. ``ToSlot`` goes down, and
``FromSlot`` comes up, the slot's socketpair as length-prefixed MessagePack; the task
manager relays ``FromSlot`` reports to the job's master unchanged.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.jobgraph import JobGraph
from penstock.messages.slot_output import MAX_BYTES, MAX_FILES
from penstock.messages.states import ExecutionState


class _Msg(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


# -- state handles -----------------------------------------------------------------------


class StateLink(msgspec.Struct, frozen=True, kw_only=True):
    """An older snapshot object of the same subtask and attempt that a delta builds on."""

    checkpoint_id: int
    key: str | None = None
    inline: bytes | None = None
    size_bytes: int = 0


class StateHandle(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot object of one subtask: ``key`` in the object store, or ``inline``
    (≤ 64 KiB) the object itself. The object describes itself (``docs/state-format.md``)."""

    vertex_id: str
    subtask_index: int
    checkpoint_id: int
    key: str | None = None
    inline: bytes | None = None
    size_bytes: int = 0
    #: Inclusive key-group range it holds.
    key_groups: tuple[int, int] = (0, -1)
    #: Of the rows that an unaligned barrier has overtaken, as they were accounted for.
    in_flight_bytes: int = 0
    #: What it builds on, newest first; the last is whole. Empty: this object is whole.
    chain: tuple[StateLink, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Every object in the store that restoring it reads."""
        links: tuple[StateHandle | StateLink, ...] = (self, *self.chain)
        return frozenset(link.key for link in links if link.key is not None)

    @property
    def full_size_bytes(self) -> int:
        """Of all objects that restoring it reads."""
        return self.size_bytes + sum(link.size_bytes for link in self.chain)


class CheckpointMetrics(msgspec.Struct, frozen=True, kw_only=True):
    alignment_ms: float = 0.0
    start_delay_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    size_bytes: int = 0
    in_flight_bytes: int = 0
    unaligned: bool = False


# -- task manager ↔ template ------------------------------------------------------------------
#
# MessagePack, one message a packet, over a SOCK_SEQPACKET socketpair.


#: Beside the slots' folders: copies of snapshots, which outlive the slots.
LOCAL_STATE = "local-state"


class ForkSlot(_Msg, frozen=True, kw_only=True, tag="fork-slot"):
    """Fork a slot process. Two file descriptors come along by SCM_RIGHTS: the slot's
    control channel (SOCK_STREAM: 4-byte big-endian length + MessagePack) and its fd
    channel (SOCK_SEQPACKET: a MessagePack preface dict + one data socket a packet).

    ``local_dir``: private folder of the slot (made when absent); ``log_path``: the first file
    that its stdout and stderr go to; it has at most ``log_max_bytes``, as has each of those that
    follow it (``slot_output.py``), of which the newest ``log_max_files`` are kept.
    """

    allocation_id: str
    local_dir: str
    log_path: str
    log_max_bytes: int = MAX_BYTES
    log_max_files: int = MAX_FILES


class TemplateReady(_Msg, frozen=True, kw_only=True, tag="template-ready"):
    """Everything is imported; sent once at start."""

    pid: int
    import_ms: float


class SlotForked(_Msg, frozen=True, kw_only=True, tag="slot-forked"):
    allocation_id: str
    pid: int


class ForkFailed(_Msg, frozen=True, kw_only=True, tag="fork-failed"):
    allocation_id: str
    error: str


class SlotExited(_Msg, frozen=True, kw_only=True, tag="slot-exited"):
    """``status``: as ``os.waitpid`` gives it (``os.waitstatus_to_exitcode`` reads it)."""

    pid: int
    status: int


FromTemplate = Union[TemplateReady, SlotForked, ForkFailed, SlotExited]


# -- down -----------------------------------------------------------------------------------


class SlotAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot takes data connections: its task manager's data port."""

    allocation_id: str
    taskmanager_id: str
    host: str
    port: int
    unix_path: str | None = None


class TaskDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One subtask to run. ``restore``: every handle of its vertex in the checkpoint."""

    execution_id: str
    vertex_id: str
    subtask_index: int
    attempt: int
    restore: tuple[StateHandle, ...] = ()


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a slot reaches the object store (an obstore URL and options)."""

    url: str
    options: dict[str, str] = {}


class Deploy(_Msg, frozen=True, kw_only=True, tag="deploy"):
    """All subtasks of this slot. ``locations``: "vertex:subtask" → allocation id, for
    every subtask of the job; ``slots``: allocation id → address. ``epoch``: fencing
    token of the master; ``job_attempt``: 1 at first start; ``secret``: hex key for data
    connection prefaces."""

    job_id: str
    job_attempt: int
    epoch: int
    allocation_id: str
    job_graph: JobGraph
    tasks: tuple[TaskDescriptor, ...]
    locations: dict[str, str]
    slots: dict[str, SlotAddress]
    secret: str
    storage: StorageSettings
    restored_checkpoint_id: int = 0
    config: dict[str, str] = {}


class CancelTasks(_Msg, frozen=True, kw_only=True, tag="cancel-tasks"):
    """Cancel these executions (empty: all), orderly; ``epoch`` fences."""

    epoch: int
    execution_ids: tuple[str, ...] = ()


class TriggerCheckpoint(_Msg, frozen=True, kw_only=True, tag="trigger-checkpoint"):
    """Start a checkpoint at these executions (those without a running upstream)."""

    epoch: int
    checkpoint_id: int
    timestamp_ms: int
    execution_ids: tuple[str, ...]
    #: "checkpoint" | "savepoint" | "drain" (savepoint after MAX_WATERMARK) | "stop"
    kind: str = "checkpoint"
    #: Barriers may overtake, so long after the trigger (0: at once). Plain checkpoints only.
    unaligned: bool = False
    aligned_timeout_ms: int = 0


class CheckpointComplete(_Msg, frozen=True, kw_only=True, tag="checkpoint-complete"):
    epoch: int
    checkpoint_id: int


class CheckpointAborted(_Msg, frozen=True, kw_only=True, tag="checkpoint-aborted"):
    epoch: int
    checkpoint_id: int


class MasterChanged(_Msg, frozen=True, kw_only=True, tag="master-changed"):
    """A new master adopted this slot: accept its epoch, refuse older ones. What the tasks do
    it knows from the task manager; nothing is answered. The checkpoints that its predecessor
    had in flight are aborted, the last completed one is confirmed again right after."""

    epoch: int


class ReportMetrics(_Msg, frozen=True, kw_only=True, tag="report-metrics"):
    """Send ``TaskMetricsReport`` now."""


class DataConnection(_Msg, frozen=True, kw_only=True, tag="data-connection"):
    """A data socket follows as a file descriptor (SCM_RIGHTS) with this message."""

    preface: dict[str, Any]


class ShutdownSlot(_Msg, frozen=True, kw_only=True, tag="shutdown"):
    """Cancel all, close, exit 0."""


ToSlot = Union[
    Deploy, CancelTasks, TriggerCheckpoint, CheckpointComplete, CheckpointAborted,
    MasterChanged, ReportMetrics, DataConnection, ShutdownSlot,
]  # fmt: skip

# -- up -------------------------------------------------------------------------------------


class SlotReady(_Msg, frozen=True, kw_only=True, tag="slot-ready"):
    allocation_id: str
    pid: int


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``error``: ``PenstockError.to_dict()``; ``user_traceback`` first, if there is one."""

    error: dict[str, Any]
    traceback: str = ""
    operator: str | None = None
    record: str | None = None


class TaskStateChanged(_Msg, frozen=True, kw_only=True, tag="task-state"):
    """``final``: with FINISHED, the task's last snapshot; later checkpoints use it."""

    job_id: str
    job_attempt: int
    execution_id: str
    vertex_id: str
    subtask_index: int
    state: ExecutionState
    timestamp_ms: int
    error: ErrorInfo | None = None
    final: StateHandle | None = None


class FinalCheckpointWanted(_Msg, frozen=True, kw_only=True, tag="final-checkpoint"):
    """The execution has consumed all input and holds uncommitted output: it finishes
    when the next checkpoint it takes part in is complete. The coordinator triggers one."""

    job_id: str
    job_attempt: int
    execution_id: str


class CheckpointAcknowledged(_Msg, frozen=True, kw_only=True, tag="checkpoint-ack"):
    job_id: str
    job_attempt: int
    execution_id: str
    vertex_id: str
    subtask_index: int
    checkpoint_id: int
    handle: StateHandle
    metrics: CheckpointMetrics = CheckpointMetrics()


class CheckpointDeclined(_Msg, frozen=True, kw_only=True, tag="checkpoint-decline"):
    job_id: str
    job_attempt: int
    execution_id: str
    checkpoint_id: int
    reason: str
    #: It ends (or has ended) orderly: FINISHED comes, with a final snapshot to use instead.
    finishing: bool = False


class OperatorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    name: str
    counters: dict[str, int] = {}
    gauges: dict[str, int | float | None] = {}


class TaskMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the task started, except ``*_per_second`` (over the last interval).
    Watermarks in µs, None = none yet. Times per second in ms (they add up to 1000)."""

    execution_id: str
    vertex_id: str
    subtask_index: int
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms_per_second: float = 0.0
    idle_ms_per_second: float = 0.0
    back_pressured_ms_per_second: float = 0.0
    records_in_per_second: float = 0.0
    records_out_per_second: float = 0.0
    input_watermark: int | None = None
    output_watermark: int | None = None
    operators: tuple[OperatorMetrics, ...] = ()
    #: Split or channel that holds the watermark back, in words.
    watermark_holder: str | None = None
    #: Of the snapshots it is restored from: bytes to read, read, and of those from copies
    #: on the local disk.
    restore_bytes: int = 0
    restored_bytes: int = 0
    restored_local_bytes: int = 0
    #: How long fetching and checking them took, and then making state of them.
    restore_read_ms: float = 0.0
    restore_load_ms: float = 0.0


class TaskMetricsReport(_Msg, frozen=True, kw_only=True, tag="metrics"):
    job_id: str
    job_attempt: int
    allocation_id: str
    tasks: tuple[TaskMetrics, ...]
    rss_bytes: int = 0
    cpu_seconds: float = 0.0


class SlotLog(_Msg, frozen=True, kw_only=True, tag="log"):
    """A warning or error for the task manager's log: an event of ``docs/logs.md`` and its fields."""

    level: str
    event: str
    fields: dict[str, str] = {}


class SlotStalled(_Msg, frozen=True, kw_only=True, tag="stalled"):
    """From the task manager, of a slot that reports nothing since a step of it does not end.
    ``frame``: the innermost Python frame (``File "job.py", line 5 in f``), None if unknown;
    ``stalled`` False: it answers again."""

    allocation_id: str
    stalled: bool
    frame: str | None = None


FromSlot = Union[
    SlotReady, TaskStateChanged, FinalCheckpointWanted, CheckpointAcknowledged,
    CheckpointDeclined, TaskMetricsReport, SlotLog, SlotStalled,
]  # fmt: skip
