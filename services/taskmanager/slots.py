"""A slot of a task manager and its states; ``slot_table.py`` has the diagram."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.messages.resource_manager import SlotStatus

if TYPE_CHECKING:
    from penstock.messages.slot import Deploy
    from penstock_services.taskmanager.tracking import Tracking


class SlotState(enum.Enum):
    """The state of a slot."""

    FREE = "free"
    ALLOCATED = "allocated"
    FORKING = "forking"
    ACTIVE = "active"
    ENDING = "ending"

    @property
    def reported(self) -> str:
        """The state as ``SlotStatus`` has it."""
        return self.value if self in (SlotState.FREE, SlotState.ALLOCATED) else "active"


_S = SlotState
SLOT_TRANSITIONS: dict[SlotState, frozenset[SlotState]] = {
    _S.FREE: frozenset({_S.ALLOCATED}),
    _S.ALLOCATED: frozenset({_S.FORKING, _S.FREE}),
    _S.FORKING: frozenset({_S.ACTIVE, _S.ALLOCATED, _S.ENDING, _S.FREE}),
    _S.ACTIVE: frozenset({_S.ENDING, _S.FREE}),
    _S.ENDING: frozenset({_S.FORKING, _S.FREE}),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """``slot_timeout_ms``: an allocation that no master accepts is given up after this time.
    ``master_timeout_ms``: so are all slots of a job whose master was silent for this long.
    ``offer_interval_ms``: how often the slots that a job has here are offered again, so that both sides
    agree on them. ``tell_again_ms``: the same, for a new master that asks again."""

    slot_timeout_ms: int = 10_000
    master_timeout_ms: int = 900_000
    offer_interval_ms: int = 15_000
    tell_again_ms: int = 10_000


@dataclass(slots=True)
class Slot:
    """One slot, with its allocation and its process."""

    index: int
    state: SlotState = SlotState.FREE
    job_id: str | None = None
    allocation_id: str | None = None
    allocated_ms: int = 0
    #: Whether a master accepted the offer of the slot.
    accepted: bool = False
    #: The deployment that runs or is being started, and the state of each of its tasks.
    deploy: Deploy | None = None
    tracking: Tracking | None = None
    process: int = 0
    pid: int | None = None
    #: The deployment that follows when the process has ended.
    next: Deploy | None = None
    #: The tokens of DeploySlot requests that wait for the fork.
    waiting: list[int] = field(default_factory=list)

    def to(self, state: SlotState) -> None:
        """Moves to another state. Raises InternalError if that is no transition."""
        if state not in SLOT_TRANSITIONS[self.state]:
            raise InternalError(
                f"slot {self.index} cannot become {state.name}",
                expected=" or ".join(s.name for s in SLOT_TRANSITIONS[self.state]),
                got=f"{self.state.name} → {state.name}",
                where=f"allocation {self.allocation_id} of job {self.job_id}",
            )
        self.state = state

    def status(self) -> SlotStatus:
        """The slot as the resource manager is told of it."""
        return SlotStatus(
            index=self.index,
            state=self.state.reported,
            job_id=self.job_id,
            allocation_id=self.allocation_id,
            pid=self.pid,
        )


@dataclass(slots=True)
class Job:
    """What this task manager knows of a job that has slots here."""

    epoch: int = 0
    heard_ms: int = 0
    offered_ms: int = 0
    #: The epoch of the master that was last told what runs here.
    told_epoch: int = 0


class Admission(enum.Enum):
    """What to do with a data connection."""

    PASS = "pass"
    WAIT = "wait"
    REFUSE = "refuse"
