"""Messages between a task manager and its slot processes, and those that it relays to the job master.

A slot process serves one allocation of one job attempt. ``ToSlot`` goes to the slot and ``FromSlot`` comes
from it, through the slot's socketpair, as length-prefixed MessagePack. The task manager relays
``FromSlot`` messages to the job's master unchanged.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.jobgraph import JobGraph
from penstock.messages.sandbox import Sandbox
from penstock.messages.slot_output import MAX_BYTES, MAX_FILES
from penstock.messages.stack_samples import SampleStacks, StacksSampled
from penstock.messages.states import ExecutionState
from penstock.messages.taps import EdgeTapped, TapEdge


class _Msg(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


# -- state handles -----------------------------------------------------------------------


class StateLink(msgspec.Struct, frozen=True, kw_only=True):
    """An older snapshot object of the same subtask and attempt, on which a delta builds."""

    checkpoint_id: int
    key: str | None = None
    inline: bytes | None = None
    size_bytes: int = 0


class StateHandle(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot object of one subtask. The object is in the object store under ``key``, or, up to 64 KiB,
    in ``inline``. Its own header describes its content (``docs/state-format.md``)."""

    vertex_id: str
    subtask_index: int
    checkpoint_id: int
    key: str | None = None
    inline: bytes | None = None
    size_bytes: int = 0
    #: The first and the last key group whose state the object holds. (0, -1): none.
    key_groups: tuple[int, int] = (0, -1)
    #: Size of the rows that an unaligned barrier has overtaken, as the channels count bytes.
    in_flight_bytes: int = 0
    #: The objects on which this delta builds, newest first; the last is a base. Empty: this object is a base.
    chain: tuple[StateLink, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all stored objects that a restore of this handle reads."""
        links: tuple[StateHandle | StateLink, ...] = (self, *self.chain)
        return frozenset(link.key for link in links if link.key is not None)

    @property
    def full_size_bytes(self) -> int:
        """The size of all objects that a restore of this handle reads."""
        return self.size_bytes + sum(link.size_bytes for link in self.chain)


class CheckpointMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How long the parts of one subtask's checkpoint took, and its sizes. ``start_delay_ms``: from the
    trigger to the first barrier; ``alignment_ms``: from the first to the last barrier; ``sync_ms``: the
    cut, while the task stands still; ``async_ms``: encoding and upload."""

    alignment_ms: float = 0.0
    start_delay_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    size_bytes: int = 0
    in_flight_bytes: int = 0
    unaligned: bool = False


# -- task manager ↔ template: MessagePack, one message a packet, over a SOCK_SEQPACKET socketpair --------

#: The folder beside the slots' folders that holds copies of snapshots. It outlives the slots.
LOCAL_STATE = "local-state"


class ForkSlot(_Msg, frozen=True, kw_only=True, tag="fork-slot"):
    """Fork a slot process. Two file descriptors accompany the message (SCM_RIGHTS): the slot's control
    channel (SOCK_STREAM: 4-byte big-endian length and MessagePack) and its descriptor channel
    (SOCK_SEQPACKET: each packet is a MessagePack preface dict and one data socket).

    ``local_dir``: the slot's private folder, made if absent. ``log_path``: the first file for its stdout
    and stderr. Each file has at most ``log_max_bytes``; the newest ``log_max_files`` are kept
    (``slot_output.py``). ``sandbox``: what the process enters before it takes any command; None: nothing.
    """

    allocation_id: str
    local_dir: str
    log_path: str
    log_max_bytes: int = MAX_BYTES
    log_max_files: int = MAX_FILES
    sandbox: Sandbox | None = None


# -- to the slot ----------------------------------------------------------------------------


class SlotAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot takes data connections: the data port of its task manager."""

    allocation_id: str
    taskmanager_id: str
    host: str
    port: int
    unix_path: str | None = None


class TaskDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One subtask to run. ``restore``: all handles of its vertex in the checkpoint; the task reads its key
    groups."""

    execution_id: str
    vertex_id: str
    subtask_index: int
    attempt: int
    restore: tuple[StateHandle, ...] = ()


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The object store that a slot uses, as arguments of ``open_store``."""

    url: str
    options: dict[str, str] = {}


class Deploy(_Msg, frozen=True, kw_only=True, tag="deploy"):
    """Run all subtasks of this slot. ``job_attempt`` is 1 at the job's first start.

    ``locations``: "vertex:subtask" → allocation id, for every subtask of the job. ``slots``: allocation id
    → address. ``epoch``: the fencing token of the master. ``secret``: the hex key for prefaces of data
    connections.
    """

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
    """Cancel these executions (empty: all) in an orderly way. ``epoch``: the fencing token of the master."""

    epoch: int
    execution_ids: tuple[str, ...] = ()


class TriggerCheckpoint(_Msg, frozen=True, kw_only=True, tag="trigger-checkpoint"):
    """Start a checkpoint at these executions, which have no running upstream."""

    epoch: int
    checkpoint_id: int
    timestamp_ms: int
    execution_ids: tuple[str, ...]
    #: "checkpoint", "savepoint", "stop" (the job ends after it) or "drain" (as stop, after MAX_WATERMARK).
    kind: str = "checkpoint"
    #: Whether barriers may overtake rows, how long after the trigger (0: at once). Not of savepoints.
    unaligned: bool = False
    aligned_timeout_ms: int = 0


class CheckpointComplete(_Msg, frozen=True, kw_only=True, tag="checkpoint-complete"):
    """A checkpoint is complete: sinks commit, and later deltas may build on it."""

    epoch: int
    checkpoint_id: int


class CheckpointAborted(_Msg, frozen=True, kw_only=True, tag="checkpoint-aborted"):
    """A checkpoint was given up; the task stops working on it."""

    epoch: int
    checkpoint_id: int


class MasterChanged(_Msg, frozen=True, kw_only=True, tag="master-changed"):
    """A new master has adopted this slot: accept its epoch, and refuse older ones. There is no reply, because
    the task manager has already reported the tasks. The predecessor's checkpoints in flight are aborted;
    ``CheckpointComplete`` for the last completed one follows."""

    epoch: int


class ReportMetrics(_Msg, frozen=True, kw_only=True, tag="report-metrics"):
    """Send ``TaskMetricsReport`` now."""


class DataConnection(_Msg, frozen=True, kw_only=True, tag="data-connection"):
    """A data socket accompanies this message as a file descriptor (SCM_RIGHTS)."""

    preface: dict[str, Any]


class ShutdownSlot(_Msg, frozen=True, kw_only=True, tag="shutdown"):
    """Cancel all tasks, close the connections, and exit with 0."""


ToSlot = Union[
    Deploy, CancelTasks, TriggerCheckpoint, CheckpointComplete, CheckpointAborted,
    MasterChanged, ReportMetrics, SampleStacks, TapEdge, DataConnection, ShutdownSlot,
]  # fmt: skip

# -- from the slot --------------------------------------------------------------------------


class SlotReady(_Msg, frozen=True, kw_only=True, tag="slot-ready"):
    """The slot process has started and takes ``Deploy``."""

    allocation_id: str
    pid: int


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a task. ``error`` is ``PenstockError.to_dict()``. ``traceback`` begins with the user's own
    frames, if there are any. ``record``: the record that failed, redacted."""

    error: dict[str, Any]
    traceback: str = ""
    operator: str | None = None
    record: str | None = None


class TaskStateChanged(_Msg, frozen=True, kw_only=True, tag="task-state"):
    """A task has entered ``state``. ``final``: the last snapshot of a FINISHED task, which later checkpoints
    use."""

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
    """The execution has consumed all input and holds uncommitted output. It finishes when the next checkpoint
    in which it takes part is complete. The coordinator triggers one."""

    job_id: str
    job_attempt: int
    execution_id: str


class CheckpointAcknowledged(_Msg, frozen=True, kw_only=True, tag="checkpoint-ack"):
    """The snapshot of one subtask is stored."""

    job_id: str
    job_attempt: int
    execution_id: str
    vertex_id: str
    subtask_index: int
    checkpoint_id: int
    handle: StateHandle
    metrics: CheckpointMetrics = CheckpointMetrics()


class CheckpointDeclined(_Msg, frozen=True, kw_only=True, tag="checkpoint-decline"):
    """The subtask takes no part in the checkpoint."""

    job_id: str
    job_attempt: int
    execution_id: str
    checkpoint_id: int
    reason: str
    #: The task is ending or has ended. FINISHED follows, with a final snapshot that the checkpoint can use.
    finishing: bool = False


class OperatorMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters and gauges of one operator, by name."""

    uid: str
    name: str
    counters: dict[str, int] = {}
    gauges: dict[str, int | float | None] = {}


class TaskMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the task started, except ``…_per_second``, which cover the last interval.

    Watermarks are in µs since 1970 (None: none yet). The ``…_ms_per_second`` are milliseconds in each
    second and add up to 1000.
    """

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
    busy_ms: float = 0.0
    idle_ms: float = 0.0
    back_pressured_ms: float = 0.0
    records_in_per_second: float = 0.0
    records_out_per_second: float = 0.0
    bytes_in_per_second: float = 0.0
    bytes_out_per_second: float = 0.0
    #: The share of the slot's pool of network memory that its channels have borrowed, from 0 to 1.
    in_pool_usage: float = 0.0
    input_watermark: int | None = None
    output_watermark: int | None = None
    operators: tuple[OperatorMetrics, ...] = ()
    #: The split or channel with the lowest watermark, as text.
    watermark_holder: str | None = None
    #: The servers outside that its sources and sinks wait for, and why.
    away: tuple[str, ...] = ()
    #: Sizes of the snapshots that the task restores: all, those read so far, and of these the bytes from
    #: copies on the local disk.
    restore_bytes: int = 0
    restored_bytes: int = 0
    restored_local_bytes: int = 0
    #: How long it took to fetch and verify the snapshots, and then to load them into state.
    restore_read_ms: float = 0.0
    restore_load_ms: float = 0.0


class TaskMetricsReport(_Msg, frozen=True, kw_only=True, tag="metrics"):
    """The metrics of all tasks of a slot, with the memory and processor time of its process."""

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
    """From the task manager: the slot is silent because one of its steps does not end, or (``stalled`` False)
    it answers again. ``frame``: the innermost Python frame, such as ``File "job.py", line 5 in f``; None
    if unknown."""

    allocation_id: str
    stalled: bool
    frame: str | None = None


FromSlot = Union[
    SlotReady, TaskStateChanged, FinalCheckpointWanted, CheckpointAcknowledged,
    CheckpointDeclined, TaskMetricsReport, SlotLog, SlotStalled, StacksSampled,
    EdgeTapped,
]  # fmt: skip
