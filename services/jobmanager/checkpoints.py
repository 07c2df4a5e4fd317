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
    UNKNOWN = "unknown"  # no such execution in this checkpoint
    DISCARDED = "discarded"  # the checkpoint is over; its object may be deleted


class Phase(enum.Enum):
    ACKNOWLEDGING = "acknowledging"
    STORING = "storing"
    LOGGING = "logging"


@dataclass(frozen=True, slots=True)
class Request:
    """A savepoint or checkpoint that a user asked for."""

    trigger_id: str
    kind: str
    directory: str | None = None


@dataclass(slots=True)
class Pending:
    checkpoint_id: int
    kind: str
    trigger_ms: int
    phase: Phase = Phase.ACKNOWLEDGING
    request: Request | None = None
    #: execution ids that must acknowledge (or have finished)
    expected: dict[str, tuple[str, int]] = field(default_factory=dict)
    handles: dict[str, StateHandle | None] = field(default_factory=dict)
    #: those of ``handles`` that came by acknowledgement: their barrier went on downstream
    acknowledged: set[str] = field(default_factory=set)
    triggered: set[str] = field(default_factory=set)
    #: executions that had read all their input when the checkpoint began, and finish when it is complete
    final_of: set[str] = field(default_factory=set)
    subtasks: list[dict[str, Any]] = field(default_factory=list)
    manifest: CheckpointManifest | None = None
    #: a triggered task finished without taking part: the tasks behind it must be triggered
    look_for_orphans: bool = False
    #: its deltas build on this checkpoint or a later one (``Retention.floor``)
    floor: int = 0

    @property
    def whole(self) -> bool:
        """Every subtask has acknowledged, or finished."""
        return len(self.handles) == len(self.expected)

    @property
    def size_bytes(self) -> int:
        return sum(h.size_bytes for h in self.handles.values() if h)

    def take(self, ack: CheckpointAcknowledged, now_ms: int) -> None:
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
        """Objects written for this checkpoint (not the final snapshots it reuses)."""
        return frozenset(h.key for e, h in self.handles.items() if h and h.key and e in self.acknowledged)


@dataclass(frozen=True, slots=True)
class Completed:
    checkpoint_id: int
    manifest_key: str
    manifest: CheckpointManifest
    kind: str = "checkpoint"
