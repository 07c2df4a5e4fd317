"""A checkpoint in flight, a completed checkpoint, and the answers to reports on them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from penstock.messages.cluster import CheckpointDetails
from penstock.messages.slot import CheckpointAcknowledged, StateHandle
from penstock.snapshots.manifest import CheckpointManifest

#: Kinds of checkpoints that belong to a user.
SAVEPOINTS = frozenset({"savepoint", "stop", "drain"})
#: After these no further checkpoint is triggered.
STOPS = frozenset({"stop", "drain"})


class Ack(enum.Enum):
    """The answer to an acknowledgement."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"  # the execution takes no part in this checkpoint
    DISCARDED = "discarded"  # the checkpoint has ended; the object may be deleted


class Phase(enum.Enum):
    """The phase of a checkpoint in flight; ``checkpoint_coordinator.py`` has the diagram."""

    ACKNOWLEDGING = "acknowledging"
    STORING = "storing"
    LOGGING = "logging"


@dataclass(frozen=True, slots=True)
class Request:
    """A savepoint or checkpoint that a user requested. ``kind`` as in ``TriggerSavepoint``."""

    trigger_id: str
    kind: str
    directory: str | None = None


@dataclass(slots=True)
class Pending:
    """A checkpoint in flight."""

    checkpoint_id: int
    kind: str
    trigger_ms: int
    phase: Phase = Phase.ACKNOWLEDGING
    request: Request | None = None
    #: Execution id → (vertex id, subtask index) of all that must acknowledge or have finished.
    expected: dict[str, tuple[str, int]] = field(default_factory=dict)
    handles: dict[str, StateHandle | None] = field(default_factory=dict)
    #: Ids of executions that have acknowledged, so that they have passed the barrier on.
    acknowledged: set[str] = field(default_factory=set)
    triggered: set[str] = field(default_factory=set)
    #: Executions that had read all their input when the checkpoint began. They finish when it is complete.
    final_of: set[str] = field(default_factory=set)
    subtasks: list[dict[str, Any]] = field(default_factory=list)
    manifest: CheckpointManifest | None = None
    #: Whether a triggered task finished without taking part, so that tasks downstream must be triggered.
    look_for_orphans: bool = False
    #: Its deltas build on this checkpoint or on a later one (``Retention.floor``).
    floor: int = 0

    @property
    def whole(self) -> bool:
        """Whether every subtask has acknowledged or finished."""
        return len(self.handles) == len(self.expected)

    @property
    def size_bytes(self) -> int:
        """Bytes of the newest object of every subtask so far."""
        return sum(h.size_bytes for h in self.handles.values() if h)

    def take(self, ack: CheckpointAcknowledged, now_ms: int) -> None:
        """Adds the acknowledgement of a subtask."""
        self.handles[ack.execution_id] = ack.handle
        self.acknowledged.add(ack.execution_id)
        self.subtasks.append(
            {
                "vertex_id": ack.vertex_id,
                "subtask_index": ack.subtask_index,
                "ack_ms": now_ms,
                "size_bytes": ack.handle.size_bytes,
                "full_size_bytes": ack.handle.full_size_bytes,
                "alignment_ms": ack.metrics.alignment_ms,
                "start_delay_ms": ack.metrics.start_delay_ms,
                "sync_ms": ack.metrics.sync_ms,
                "async_ms": ack.metrics.async_ms,
                "unaligned": ack.metrics.unaligned,
                "in_flight_bytes": ack.metrics.in_flight_bytes,
            }
        )

    def details(self, status: str) -> CheckpointDetails:
        """The checkpoint for REST."""
        return CheckpointDetails(
            id=self.checkpoint_id,
            status=status,
            trigger_timestamp_ms=self.trigger_ms,
            kind=self.kind,
            size_bytes=self.size_bytes,
            full_size_bytes=sum(h.full_size_bytes for h in self.handles.values() if h),
            acknowledged=len(self.handles),
            total=len(self.expected),
            subtasks=self.subtasks,
            trigger_id=self.request.trigger_id if self.request else None,
        )

    def own_keys(self) -> frozenset[str]:
        """Keys of objects written for this checkpoint, without the final snapshots that it reuses."""
        return frozenset(h.key for e, h in self.handles.items() if h and h.key and e in self.acknowledged)


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed checkpoint."""

    checkpoint_id: int
    manifest_key: str
    manifest: CheckpointManifest
    kind: str = "checkpoint"
