"""Stages of a job master, and what one is given at its start.

::

    RESTORING ─→ WAITING ─→ ANNOUNCING ─→ DEPLOYED ─→ CLOSING ─→ ARCHIVING ─→ GONE
        ↓           ↑           ↓           ↓  ↑         ↑
        ↓           ↑           ↓           ↓  ↑         ↑
    ADOPTING ───────┼───────────┼───────────┼──┘         ↑
                    └──── BACKING_OFF ←─────┘            ↑
                                                         ↑
    any of these ─→ STOPPING ────────────────────────────┘

A slot that is lost while the restart is logged leads from ANNOUNCING back to WAITING. A failure leads from WAITING and
ANNOUNCING to BACKING_OFF. A master that was replaced is GONE at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.messages.cluster import CheckpointDetails, SavepointRequested
    from penstock.messages.slot import StorageSettings
    from penstock_services.jobmanager.effects import Effect


class Stage(enum.Enum):
    """The stage of a job master. The module's docstring has the diagram."""

    ADOPTING = "adopting"
    RESTORING = "restoring"
    WAITING = "waiting for slots"
    ANNOUNCING = "announcing"
    DEPLOYED = "deployed"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"
    CLOSING = "closing"
    ARCHIVING = "archiving"
    GONE = "gone"


_S = Stage
STAGE_TRANSITIONS: dict[Stage, frozenset[Stage]] = {
    _S.RESTORING: frozenset({_S.ADOPTING, _S.WAITING, _S.STOPPING, _S.GONE}),
    _S.ADOPTING: frozenset({_S.DEPLOYED, _S.WAITING, _S.STOPPING, _S.GONE}),
    _S.WAITING: frozenset({_S.ANNOUNCING, _S.BACKING_OFF, _S.STOPPING, _S.GONE}),
    _S.ANNOUNCING: frozenset({_S.DEPLOYED, _S.WAITING, _S.BACKING_OFF, _S.STOPPING, _S.GONE}),
    _S.DEPLOYED: frozenset({_S.BACKING_OFF, _S.CLOSING, _S.STOPPING, _S.GONE}),
    _S.BACKING_OFF: frozenset({_S.WAITING, _S.STOPPING, _S.GONE}),
    _S.STOPPING: frozenset({_S.CLOSING, _S.GONE}),
    _S.CLOSING: frozenset({_S.ARCHIVING, _S.GONE}),
    _S.ARCHIVING: frozenset({_S.GONE}),
    _S.GONE: frozenset(),
}


@dataclass(frozen=True)
class Step:
    """The decision of a part of the job master: effects, and the next stage (None: the same)."""

    effects: list[Effect] = field(default_factory=list)
    stage: Stage | None = None

    def after(self, *effects: Effect) -> Step:
        """The same decision, with ``effects`` before its own."""
        return Step([*effects, *self.effects], self.stage)


#: ``Settings.phase`` of a job while Spark reads its history, and after that.
BACKFILLING = "backfilling on Spark"
BACKFILLED = "restored from the backfill on Spark"

#: Stages in which the job claims its slots.
CLAIMING = (Stage.WAITING, Stage.ANNOUNCING, Stage.DEPLOYED, Stage.BACKING_OFF)


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """The facts about the job in the decision log, from before this master."""

    job_attempt: int = 0
    #: Vertex id → (attempt, restored checkpoint), for vertices that restarted separately.
    vertices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: (attempt, restored checkpoint) of all other vertices.
    base: tuple[int, int] = (0, 0)
    #: The number of slots in which the job ran; 0: not known.
    slots: int = 0
    checkpoints_completed: int = 0
    highest_checkpoint_id: int = 0
    checkpoints_failed: int = 0
    checkpoints_restored: int = 0
    #: The last checkpoints that ended, oldest first.
    history: tuple[CheckpointDetails, ...] = ()
    #: The keys of all stored statistics.
    statistics: tuple[str, ...] = ()
    #: Requests that were accepted and have no outcome yet.
    requests: tuple[SavepointRequested, ...] = ()
    #: (id, manifest key, kind) of checkpoints that may be restored, oldest first
    completed: tuple[tuple[int, str, str], ...] = ()
    #: Failures under earlier masters, newest first.
    exceptions: tuple[dict[str, Any], ...] = ()
    accepted_ms: int = 0
    #: Whether Spark has read the history, and the streaming job has not been started yet.
    handed_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one master. ``config``: the job's, over the cluster's. ``secret``: hex, made by each
    master. ``phase``: BACKFILLING, BACKFILLED, or empty for a job without a backfill."""

    jobmanager_id: str
    epoch: int
    storage: StorageSettings
    config: dict[str, str]
    secret: str
    #: The cluster's.
    heartbeat_interval_ms: int = 1_000
    heartbeat_timeout_ms: int = 10_000
    phase: str = ""

    @property
    def backfills(self) -> bool:
        """Whether this graph is a backfill, after whose end the streaming job continues from its state."""
        return self.phase == BACKFILLING


@dataclass
class Deadlines:
    """When actions are due, in ms; None: not planned."""

    #: When the delay before a restart ends.
    restart_ms: int | None = None
    #: When a restart no longer waits for tasks that are being cancelled.
    restart_latest_ms: int | None = None
    stop_latest_ms: int | None = None
    #: When a master that adopts a job asks again which tasks run.
    adopt_ms: int | None = None
    coordinator_ms: int | None = None
    #: When the actor's timer fires.
    timer_ms: int | None = None
