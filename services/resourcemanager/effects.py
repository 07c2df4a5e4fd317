"""The effects that the core of the resource manager returns, and the events that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from penstock.messages.cluster import Refused
from penstock.messages.job_master import SlotsUnavailable, TaskManagerLost
from penstock.messages.task_manager import AllocateSlot
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.providers import WorkerPhase, WorkerProfile

# -- effects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendAllocate:
    """Sends the command to the task manager. → ``AllocateAnswered`` or ``EffectFailed``."""

    taskmanager_id: str
    message: AllocateSlot


@dataclass(frozen=True, slots=True)
class NotifyJob:
    """Tells a job's master; ``until_answered``: repeat until it has answered, otherwise once."""

    job_id: str
    message: Union[TaskManagerLost, SlotsUnavailable]
    until_answered: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks whether the task manager answers. → ``Probed``. ``urgent``: its connection has just ended, and the
    broker will know in a moment whether it is lost."""

    taskmanager_id: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """Keeps a connection to the task manager open. → ``WatchEnded``."""

    taskmanager_id: str
    pid: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ListWorkers:
    """Asks the resource provider which workers exist. → ``WorkersListed``."""


@dataclass(frozen=True, slots=True)
class EnsureWorkers:
    """Tells the resource provider which workers should exist. → ``WorkersEnsured``."""

    wanted: Mapping[str, WorkerProfile]


@dataclass(frozen=True, slots=True)
class Abdicate:
    """Gives the leadership up: another resource manager has a newer epoch."""

    reason: str


# -- events ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocateAnswered:
    """A task manager has answered ``SendAllocate``. ``refused``: its refusal; None if it took the slot."""

    allocation_id: str
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """``gone``: the broker knows no receiver for the task manager. (A time-out proves nothing.)"""

    taskmanager_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The connection to a task manager has ended. ``connected``: it had been open, so that its end is a sign
    of a loss."""

    taskmanager_id: str
    pid: int
    connected: bool


@dataclass(frozen=True, slots=True)
class WorkersListed:
    """The resource provider's workers. ``phases``: worker id → phase."""

    phases: Mapping[str, WorkerPhase]


@dataclass(frozen=True, slots=True)
class WorkersEnsured:
    """The provider has begun to start and stop workers as it was told."""


@dataclass(frozen=True, slots=True)
class Connection:
    """This process has lost its connection to the broker, or regained it."""

    connected: bool


Effect = Union[Answer, SendAllocate, NotifyJob, Probe, Watch, ListWorkers, EnsureWorkers, Abdicate]
Event = Union[
    Asked, Tick, AllocateAnswered, Probed, WatchEnded, WorkersListed, WorkersEnsured, Connection, EffectFailed
]
