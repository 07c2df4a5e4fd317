"""Stages of a job master, and what one is given at its start.

::

    RESTORING ─→ WAITING ─→ ANNOUNCING ─→ DEPLOYED ─→ CLOSING ─→ ARCHIVING ─→ GONE
        ↓           ↑           ↓           ↓  ↑         ↑
        ↓           ↑           ↓           ↓  ↑         ↑
    ADOPTING ───────┼───────────┼───────────┼──┘         ↑
                    └──── BACKING_OFF ←─────┘            ↑
                                                         ↑
    any of these ─→ STOPPING ────────────────────────────┘

A slot that is lost while the restart is announced leads from ANNOUNCING back to WAITING; a failure
leads from WAITING and ANNOUNCING to BACKING_OFF; a master that another one replaced is GONE at once.
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
    """Where a job master is in the life of its job. The diagram is above."""

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
    """The facts of the job from the decision log, before this master."""

    job_attempt: int = 0
    #: vertex id → (attempt, checkpoint it was restored from), for vertices that restarted alone
    vertices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: attempt and checkpoint of all others
    base: tuple[int, int] = (0, 0)
    #: number of slots that it ran in, 0 = not known
    slots: int = 0
    checkpoints_completed: int = 0
    highest_checkpoint_id: int = 0
    checkpoints_failed: int = 0
    checkpoints_restored: int = 0
    #: the last checkpoints that ended, oldest first
    history: tuple[CheckpointDetails, ...] = ()
    #: keys of all stored statistics, however old
    statistics: tuple[str, ...] = ()
    #: savepoints that were accepted and have no outcome yet
    requests: tuple[SavepointRequested, ...] = ()
    #: (id, manifest key, kind) of checkpoints that may be restored, oldest first
    completed: tuple[tuple[int, str, str], ...] = ()
    #: failures under former masters, newest first
    exceptions: tuple[dict[str, Any], ...] = ()
    accepted_ms: int = 0
    #: its history is read, and no part of the streaming job was started yet
    handed_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``config``: the job's, over the cluster's. ``secret``: hex, made anew by each master. ``phase``:
    BACKFILLING, BACKFILLED, or empty for a job without a backfill."""

    jobmanager_id: str
    epoch: int
    storage: StorageSettings
    config: dict[str, str]
    secret: str
    #: of the cluster
    heartbeat_interval_ms: int = 1_000
    heartbeat_timeout_ms: int = 10_000
    phase: str = ""

    @property
    def backfills(self) -> bool:
        """The end of this graph is not the job's end: the streaming job continues from its state."""
        return self.phase == BACKFILLING


@dataclass
class Deadlines:
    """When actions are due, in ms; None = not planned."""

    #: the delay before a restart ends
    restart_ms: int | None = None
    #: after this no one waits for tasks that are being cancelled
    restart_latest_ms: int | None = None
    stop_latest_ms: int | None = None
    #: when a master that takes a job over asks again which tasks run
    adopt_ms: int | None = None
    coordinator_ms: int | None = None
    #: the time of the one timer
    timer_ms: int | None = None
