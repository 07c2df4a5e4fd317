"""Which job master and which data connection may use a slot: by allocation, attempt and epoch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.messages.cluster import Refused
from penstock_services.taskmanager.slots import Admission, Slot, SlotState

if TYPE_CHECKING:
    from penstock.messages.job_master import SlotOffer


def admit(slot: Slot | None, preface: dict[str, Any]) -> tuple[Admission, str]:
    """What to do with a data connection with this (not yet verified) preface.

    ``slot``: the slot with the preface's ``target_allocation``, or None.
    """
    if slot is None or slot.job_id != preface["job_id"]:
        return Admission.REFUSE, f"no slot here has allocation {preface['target_allocation']}"
    attempt, epoch = preface["job_attempt"], preface["epoch"]
    deploy = slot.next or slot.deploy
    if deploy is None or attempt > deploy.job_attempt:
        return Admission.WAIT, "the slot is not deployed yet"
    if attempt < deploy.job_attempt or epoch < deploy.epoch:
        return Admission.REFUSE, (
            f"attempt {attempt} (epoch {epoch}) is old: {deploy.job_attempt} ({deploy.epoch}) runs"
        )
    if slot.state is not SlotState.ACTIVE:
        return Admission.WAIT, "the slot is being started"
    return Admission.PASS, ""


def fenced(who: str, epoch: int, newest: int) -> Refused:
    """The refusal of a command of ``who`` with ``epoch``, where a command with the higher epoch ``newest`` was seen."""
    return Refused(reason=f"epoch {epoch} of the {who} is old: {newest} is known", fenced=True)


def deployed_since(slot: Slot, offered: SlotOffer) -> bool:
    """Whether the master has deployed into the slot after the offer, so that it wants the slot, whatever a
    late answer to the offer contains."""
    planned = slot.next or slot.deploy
    before = 0 if offered.deployed is None else offered.deployed.job_attempt
    return planned is not None and planned.job_attempt > before
