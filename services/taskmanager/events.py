"""The events that the slot table takes, and the effects that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from penstock.messages.job_master import SlotOffer
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick

if TYPE_CHECKING:
    from penstock.messages.slot import Deploy

# -- effects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """Offers these slots to the job's master, until answered. → ``OfferAnswered``."""

    job_id: str
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Forks a process and sends it ``deploy``. → ``Forked`` or EffectFailed. ``process`` numbers the
    processes of this task manager."""

    process: int
    slot_index: int
    deploy: Deploy


@dataclass(frozen=True, slots=True)
class Deliver:
    """Sends a command to a slot's process. → ``Delivered``."""

    token: int
    process: int
    command: Any


@dataclass(frozen=True, slots=True)
class End:
    """Ends a process, orderly at first, by force after the grace. → ``Ended``."""

    process: int
    grace_ms: int


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Tells the master that a process has ended, after all reports of the process."""

    process: int
    job_id: str
    allocation_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReportSlots:
    """Tells the resource manager at once that slots have changed."""


# -- events ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfferAnswered:
    """The job's master has answered an offer. ``accepted``: the allocation ids that it takes; it does not
    want the others."""

    offer: Offer
    accepted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Forked:
    """The process of a slot has started."""

    process: int
    pid: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A command has reached the slot's process, or not: ``problem`` then says why."""

    token: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A process has ended, on command or not. ``reason``: a text."""

    process: int
    reason: str


@dataclass(frozen=True, slots=True)
class MasterHeard:
    """The job's master answered a message."""

    job_id: str


@dataclass(frozen=True, slots=True)
class NewMaster:
    """A master of this epoch leads the job now and asks what runs here."""

    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over for good."""

    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class OfferAgain:
    """The bus was disconnected: masters may have changed, and offers may be lost."""


Effect = Union[Answer, Offer, Fork, Deliver, End, ReportLost, ReportSlots]
Event = Union[
    Asked, Tick, OfferAnswered, Forked, Delivered, Ended, MasterHeard, NewMaster, JobEnded, OfferAgain,
    EffectFailed,
]  # fmt: skip
