"""What goes into a job master's core (events) and what comes out (effects).

``Asked`` (a ``ToJobMaster``), ``Answer`` and ``After`` are the actor's own. Every effect
that can fail comes back as an event. ``AppendLog`` effects are carried out one after
another, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from penstock.messages.cluster import (
    DeploySlot,
    FreeSlot,
    JobDetails,
    LogEntry,
    SharedDeploy,
    SlotCommand,
    ToTaskManagers,
)
from penstock.messages.states import JobStatus
from penstock.snapshots.manifest import CheckpointManifest
from penstock_services.common.core import After, Answer, Asked, EffectFailed

# -- events ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """First of all."""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Something is due."""


@dataclass(frozen=True, slots=True)
class CommandDone:
    command: Command
    reply: Any


@dataclass(frozen=True, slots=True)
class CommandLost:
    """Not answered in spite of repeats."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class Declared:
    """The resource manager's answer to ``Declare``."""

    needed: int
    allocated: int
    missing: int
    total: int
    free: int
    #: of the resource manager that answered
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class NotDeclared:
    """No resource manager answered."""

    needed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Allocations:
    """The job's slots as the resource manager knows them: (task manager id, allocation id)."""

    found: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TaskManagers:
    """Those that the resource manager has heard of (ids)."""

    registered: frozenset[str]


@dataclass(frozen=True, slots=True)
class LookedFor:
    """``gone``: the broker knows nobody there (a time-out says nothing)."""

    taskmanager_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class NotAnnounced:
    """The bus is away: nobody heard."""


@dataclass(frozen=True, slots=True)
class LogAppended:
    entry: LogEntry
    number: int


@dataclass(frozen=True, slots=True)
class ManifestStored:
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ManifestNotStored:
    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SavepointProbed:
    """``problem``: why nothing can be written there."""

    trigger_id: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestLoaded:
    key: str
    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class ManifestUnreadable:
    key: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Archived:
    """The job's details are kept, its slots given back: nothing left to do."""


@dataclass(frozen=True, slots=True)
class Deposed:
    """A newer epoch is in the log, or the lease is somebody else's."""

    reason: str


Event = Union[
    Asked, Begin, Wakeup, CommandDone, CommandLost, Declared, NotDeclared, Allocations, TaskManagers, LookedFor,
    NotAnnounced, LogAppended, SavepointProbed, ManifestStored, ManifestNotStored, ManifestLoaded, ManifestUnreadable, Archived, Deposed, EffectFailed,
]  # fmt: skip

# -- effects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """To a task manager, repeated until answered → CommandDone or CommandLost. ``shared``: of
    a deployment, what it has in common with the others of its attempt."""

    taskmanager_id: str
    message: Union[FreeSlot, DeploySlot, SlotCommand]
    shared: SharedDeploy | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """Tell the resource manager how many slots the job needs → Declared or NotDeclared.
    ``together``: of one task manager, where one has as many."""

    needed: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class FindAllocations:
    """Ask the resource manager which slots are the job's → Allocations."""


@dataclass(frozen=True, slots=True)
class FindTaskManagers:
    """Ask the resource manager of whom it has heard → TaskManagers, or nothing."""


@dataclass(frozen=True, slots=True)
class LookFor:
    """Ask the task manager itself whether it is there → LookedFor."""

    taskmanager_id: str


@dataclass(frozen=True, slots=True)
class Announce:
    """To all task managers; nobody answers. → NotAnnounced, or nothing."""

    message: ToTaskManagers


@dataclass(frozen=True, slots=True)
class AppendLog:
    """→ LogAppended or Deposed."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class StoreManifest:
    """→ ManifestStored or ManifestNotStored. ``savepoint``: the folder (a key or URL) that gets
    copies of all objects and a manifest of its own."""

    key: str
    manifest: CheckpointManifest
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeSavepoint:
    """Can anything be written below this folder (a key or URL)? → SavepointProbed."""

    trigger_id: str
    directory: str


@dataclass(frozen=True, slots=True)
class KeepStatistics:
    """Of a checkpoint that has ended, to be shown; best effort."""

    key: str
    statistics: Any


@dataclass(frozen=True, slots=True)
class KeepExceptions:
    """What went wrong so far, newest first, for the next master to show; best effort."""

    entries: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LoadManifest:
    """→ ManifestLoaded or ManifestUnreadable."""

    key: str


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Best effort: what is left over is found again by prefix at the job's end."""

    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """→ Archived."""

    details: JobDetails
    #: job's prefixes to empty, now that it is over
    delete_prefixes: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Notify:
    """An event for whoever listens; never the truth."""

    subject: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Say:
    """A line in the job manager's own log, at once (also while the lease is away)."""

    level: Literal["info", "warning", "error"]
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """The master is done: globally terminal, or SUSPENDED when deposed."""

    status: JobStatus
    reason: str = ""


Effect = Union[
    Answer, After, Command, Declare, FindAllocations, FindTaskManagers, LookFor, Announce, AppendLog,
    StoreManifest, ProbeSavepoint, KeepStatistics, KeepExceptions, LoadManifest, DeleteObjects, Archive,
    Notify, Say, Stop,
]  # fmt: skip
