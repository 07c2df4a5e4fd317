"""What the core of the resource manager decides, and what it learns: its effects and events."""

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
    """→ ``AllocateAnswered`` or ``EffectFailed``."""

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
    """Asks whether the task manager is there. → ``Probed``. ``urgent``: its connection has just ended, and
    the broker will know in a moment."""

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
    """Ask the resource provider which workers there are. → ``WorkersListed``."""


@dataclass(frozen=True, slots=True)
class EnsureWorkers:
    """Tell the resource provider which workers are to be. → ``WorkersEnsured``."""

    wanted: Mapping[str, WorkerProfile]


@dataclass(frozen=True, slots=True)
class Abdicate:
    reason: str


# -- events ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocateAnswered:
    allocation_id: str
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """``gone``: the broker knows no receiver of that name. (A time-out proves nothing.)"""

    taskmanager_id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """``connected``: the connection had been open, so its end means something."""

    taskmanager_id: str
    pid: int
    connected: bool


@dataclass(frozen=True, slots=True)
class WorkersListed:
    phases: Mapping[str, WorkerPhase]


@dataclass(frozen=True, slots=True)
class WorkersEnsured:
    """The provider has begun to make it so."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Our own connection to the broker was lost or came back."""

    connected: bool


Effect = Union[Answer, SendAllocate, NotifyJob, Probe, Watch, ListWorkers, EnsureWorkers, Abdicate]
Event = Union[
    Asked, Tick, AllocateAnswered, Probed, WatchEnded, WorkersListed, WorkersEnsured, Connection, EffectFailed
]
