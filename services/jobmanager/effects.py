"""The events that the core of a job master takes, and the effects that it returns.

``Asked`` (a ``ToJobMaster``), ``Answer`` and ``After`` belong to the actor. Every effect that can fail is
answered by an event. ``AppendLog`` effects are performed one after another, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from penstock.messages.cluster import JobDetails, LogEntry
from penstock.messages.job_events import JobEvent
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
    """A task manager has answered a command."""

    command: Command
    reply: Any


@dataclass(frozen=True, slots=True)
class CommandLost:
    """A command was repeated, and not answered in time."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class Declared:
    """The resource manager's answer to ``Declare``: the slots that the job has and lacks, and those of the
    cluster."""

    needed: int
    allocated: int
    missing: int
    total: int
    free: int
    #: The epoch of the resource manager that answered.
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class NotDeclared:
    """No resource manager has answered."""

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
    """``gone``: the broker knows no receiver for the task manager. (A time-out proves nothing.)"""

    taskmanager_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class NotAnnounced:
    """The bus is disconnected, so no task manager received the announcement."""


@dataclass(frozen=True, slots=True)
class LogAppended:
    """An entry is in the log, with this number."""

    entry: LogEntry
    number: int


@dataclass(frozen=True, slots=True)
class ManifestStored:
    """The manifest of a checkpoint is stored, and its savepoint copied if it has one."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ManifestNotStored:
    """The manifest of a checkpoint, or its savepoint, could not be stored."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SavepointProbed:
    """The answer to ``ProbeSavepoint``. ``problem``: why nothing can be written to the folder; None if it
    can."""

    trigger_id: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestLoaded:
    """A manifest was read."""

    key: str
    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class ManifestUnreadable:
    """A manifest could not be read; ``error`` is ``PenstockError.to_dict()``."""

    key: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Archived:
    """The details of the job are stored."""


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
    """Sends a message to a task manager, repeated until it is answered. → CommandDone or CommandLost.

    ``shared``: the part that a deployment has in common with the others of its attempt.
    """

    taskmanager_id: str
    message: Union[FreeSlot, DeploySlot, SlotCommand]
    shared: SharedDeploy | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """Tells the resource manager how many slots the job needs. → Declared or NotDeclared. ``together``: on
    one task manager, if one has enough."""

    needed: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class FindAllocations:
    """Asks the resource manager which slots the job has. → Allocations."""


@dataclass(frozen=True, slots=True)
class FindTaskManagers:
    """Asks the resource manager which task managers it knows → TaskManagers, or nothing."""


@dataclass(frozen=True, slots=True)
class LookFor:
    """Asks the task manager itself whether it answers. → LookedFor."""

    taskmanager_id: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Announces this master to all task managers; none answers. → NotAnnounced, or nothing."""

    message: ToTaskManagers


@dataclass(frozen=True, slots=True)
class AppendLog:
    """Appends an entry to the decision log. → LogAppended or Deposed."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class StoreManifest:
    """Stores a manifest. → ManifestStored or ManifestNotStored. ``savepoint``: the folder (a key or URL) that
    receives copies of all objects and a manifest of its own; None for a checkpoint."""

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
    """Reads a manifest. → ManifestLoaded or ManifestUnreadable."""

    key: str


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Deletes objects. A failure is ignored: objects that remain are found by prefix when the job ends."""

    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """Stores the details of an ended job. → Archived."""

    details: JobDetails
    #: Prefixes whose objects are deleted, except those in ``keep``.
    delete_prefixes: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Notify:
    """A notification for subscribers. No decision depends on it."""

    subject: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublishEvents:
    """Events of the job's life cycle, for whoever listens. They may be lost."""

    events: tuple[JobEvent, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """A line in the job manager's own log. It is written at once, even while the lease is lost."""

    level: Literal["info", "warning", "error"]
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """The master has ended: the job is globally terminal, or SUSPENDED if another master leads."""

    status: JobStatus
    reason: str = ""


Effect = Union[
    Answer, After, Command, Declare, FindAllocations, FindTaskManagers, LookFor, Announce, AppendLog,
    StoreManifest, ProbeSavepoint, KeepStatistics, KeepExceptions, LoadManifest, DeleteObjects, Archive,
    Notify, PublishEvents, Say, Stop,
]  # fmt: skip
