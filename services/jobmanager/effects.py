"""Events into a job master's core, and effects out of it.

``Asked`` (a ``ToJobMaster``), ``Answer`` and ``After`` are the actor's own. Every effect that can fail comes
back as an event. ``AppendLog`` effects are carried out one after another, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from penstock.messages.cluster import JobDetails, LogEntry
from penstock.messages.states import JobStatus
from penstock.messages.task_manager import DeploySlot, FreeSlot, SharedDeploy, SlotCommand, ToTaskManagers
from penstock.snapshots.manifest import CheckpointManifest
from penstock_services.common.core import After, Answer, Asked, EffectFailed

# -- events ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A timer is due."""


@dataclass(frozen=True, slots=True)
class CommandDone:
    command: Command
    reply: Any


@dataclass(frozen=True, slots=True)
class CommandLost:
    """A command was repeated and not answered."""

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
    #: the epoch of the resource manager that answered
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
    """The task managers that the resource manager knows (ids)."""

    registered: frozenset[str]


@dataclass(frozen=True, slots=True)
class LookedFor:
    """``gone``: the broker knows no receiver of that name. (A time-out proves nothing.)"""

    taskmanager_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class NotAnnounced:
    """The bus is away: no task manager heard the announcement."""


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
    """``problem``: why nothing can be written there; None: it can."""

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
    """The job's details are stored and its slots given back: nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Deposed:
    """The log has a newer epoch, or another master holds the lease."""

    reason: str


Event = Union[
    Asked, Begin, Wakeup, CommandDone, CommandLost, Declared, NotDeclared, Allocations, TaskManagers, LookedFor,
    NotAnnounced, LogAppended, SavepointProbed, ManifestStored, ManifestNotStored, ManifestLoaded, ManifestUnreadable, Archived, Deposed, EffectFailed,
]  # fmt: skip

# -- effects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """To a task manager, repeated until it is answered → CommandDone or CommandLost. ``shared``: the part of
    a deployment that it has in common with the others of its attempt."""

    taskmanager_id: str
    message: Union[FreeSlot, DeploySlot, SlotCommand]
    shared: SharedDeploy | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """Tells the resource manager how many slots the job needs → Declared or NotDeclared. ``together``: all
    from one task manager, if one has as many."""

    needed: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class FindAllocations:
    """Asks the resource manager which slots are the job's → Allocations."""


@dataclass(frozen=True, slots=True)
class FindTaskManagers:
    """Asks the resource manager which task managers it knows → TaskManagers, or nothing."""


@dataclass(frozen=True, slots=True)
class LookFor:
    """Asks the task manager itself whether it is there → LookedFor."""

    taskmanager_id: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Announces this master to all task managers; none answers. → NotAnnounced, or nothing."""

    message: ToTaskManagers


@dataclass(frozen=True, slots=True)
class AppendLog:
    """→ LogAppended or Deposed."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class StoreManifest:
    """→ ManifestStored or ManifestNotStored. ``savepoint``: the folder (a key or URL) that gets copies of
    all objects and a manifest of its own."""

    key: str
    manifest: CheckpointManifest
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeSavepoint:
    """Tries to write below this folder (a key or URL) → SavepointProbed."""

    trigger_id: str
    directory: str


@dataclass(frozen=True, slots=True)
class KeepStatistics:
    """Stores statistics of an ended checkpoint, to be shown. A failure is ignored."""

    key: str
    statistics: Any


@dataclass(frozen=True, slots=True)
class KeepExceptions:
    """Stores the exceptions so far, newest first, for the next master to show. A failure is ignored."""

    entries: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LoadManifest:
    """→ ManifestLoaded or ManifestUnreadable."""

    key: str


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Deletes objects. A failure is ignored: objects that remain are found by prefix at the job's end."""

    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """→ Archived."""

    details: JobDetails
    #: prefixes of the job to empty when it is over
    delete_prefixes: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Notify:
    """An event for subscribers; no decision depends on it."""

    subject: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Say:
    """A line in the job manager's own log, at once, also while the lease is away."""

    level: Literal["info", "warning", "error"]
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """The master is done: the job is globally terminal, or SUSPENDED if the master was deposed."""

    status: JobStatus
    reason: str = ""


Effect = Union[
    Answer, After, Command, Declare, FindAllocations, FindTaskManagers, LookFor, Announce, AppendLog,
    StoreManifest, ProbeSavepoint, KeepStatistics, KeepExceptions, LoadManifest, DeleteObjects, Archive,
    Notify, Say, Stop,
]  # fmt: skip
