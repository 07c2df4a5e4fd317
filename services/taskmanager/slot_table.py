"""The pure core of a task manager: its slots.

A slot (``SlotState``)::

    FREE → ALLOCATED → FORKING → ACTIVE → ENDING → FREE
             │  ↑         │        │        └→ FORKING    (deployed again: next attempt)
             │  └─────────┴────────┘ fork failed
             └→ FREE: freed, not taken by a master, or its process died (any state)

ALLOCATED: the resource manager gave the slot to a job, and it is offered to the job's master. FORKING: a process is being
started. ACTIVE: it runs. ENDING: it is being ended. Every command carries an epoch: that of the resource manager in
AllocateSlot, that of the job master in all others. A command with a lower epoch than the highest one seen is refused.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import SlotOffer
from penstock.messages.task_manager import (
    AllocateSlot,
    DeploySlot,
    FreeSlot,
    RequestTaskManagerDetails,
    SlotCommand,
)
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick
from penstock_services.taskmanager.admission import admit, deployed_since, fenced
from penstock_services.taskmanager.events import (
    Deliver,
    Delivered,
    End,
    Ended,
    Fork,
    Forked,
    JobEnded,
    MasterHeard,
    NewMaster,
    Offer,
    OfferAgain,
    OfferAnswered,
    ReportLost,
    ReportSlots,
)
from penstock_services.taskmanager.slots import Admission, Job, Settings, Slot, SlotState
from penstock_services.taskmanager.tracking import Tracking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.resource_manager import SlotStatus
    from penstock.messages.slot import Deploy, FromSlot
    from penstock_services.taskmanager.events import Effect, Event


#: Time between asking a slot's process to end and killing it, if the slot is given back.
END_GRACE_MS = 1_000
#: The same if the next attempt waits for it. It is shorter, because the work of the old attempt is discarded.
REPLACE_GRACE_MS = 300

_S = SlotState


class SlotTable:
    """The slots of a task manager, and the jobs that have slots here; see ``common.core.Core``."""

    def __init__(self, slots: int, settings: Settings) -> None:
        self.slots = [Slot(index) for index in range(slots)]
        self.settings = settings
        self.resourcemanager_epoch = 0
        self.jobs: dict[str, Job] = {}
        self._processes = itertools.count(1)

    # -- what the shell asks ----------------------------------------------------------

    def of_allocation(self, allocation_id: str) -> Slot | None:
        for slot in self.slots:
            if slot.allocation_id == allocation_id:
                return slot
        return None

    def of_process(self, process: int) -> Slot | None:
        for slot in self.slots:
            if slot.process == process and slot.state not in (_S.FREE, _S.ALLOCATED):
                return slot
        return None

    def reported(self, process: int, report: FromSlot) -> None:
        """A process sends a report to the job's master."""
        slot = self.of_process(process)
        if slot is not None and slot.tracking is not None:
            slot.tracking.reported(report)

    def report(self) -> list[SlotStatus]:
        return [slot.status() for slot in self.slots]

    def admit(self, preface: dict[str, Any]) -> tuple[Admission, str]:
        """What to do with a data connection with this (not yet verified) preface."""
        return admit(self.of_allocation(preface["target_allocation"]), preface)

    # -- events -----------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> Iterator[Effect]:
        """See ``Core.step``. Raises InternalError for an unknown event or an impossible transition."""
        match event:
            case Asked(token, AllocateSlot() as message):
                yield from self._allocate(token, message, now_ms)
            case Asked(token, DeploySlot() as message):
                yield from self._deploy(token, message, now_ms)
            case Asked(token, FreeSlot() as message):
                yield from self._free(token, message, now_ms)
            case Asked(token, SlotCommand() as message):
                yield from self._command(token, message, now_ms)
            case Asked(token, RequestTaskManagerDetails()):
                yield Answer(token, self.report())
            case Forked():
                yield from self._forked(event, now_ms)
            case Ended():
                yield from self._ended(event, now_ms)
            case Delivered(token, problem):
                yield Answer(token, Refused(reason=problem) if problem else Ack())
            case OfferAnswered():
                yield from self._offer_answered(event, now_ms)
            case MasterHeard(job_id):
                if job_id in self.jobs:
                    self.jobs[job_id].heard_ms = now_ms
            case NewMaster(job_id, epoch):
                yield from self._new_master(job_id, epoch, now_ms)
            case JobEnded(job_id, epoch):
                yield from self._job_ended(job_id, epoch, now_ms)
            case OfferAgain():
                for job_id in list(self.jobs):
                    yield from self._offer(job_id, now_ms)
            case Tick():
                yield from self._tick(now_ms)
            case EffectFailed(effect, error):
                yield from self._effect_failed(effect, error, now_ms)
            case _:
                raise InternalError(f"unknown event {event!r}")

    def _allocate(self, token: int, message: AllocateSlot, now_ms: int) -> Iterator[Effect]:
        if message.epoch < self.resourcemanager_epoch:
            yield Answer(token, fenced("resource manager", message.epoch, self.resourcemanager_epoch))
            return
        self.resourcemanager_epoch = message.epoch
        slot = self.slots[message.slot_index] if 0 <= message.slot_index < len(self.slots) else None
        if slot is None:
            yield Answer(token, Refused(reason=f"there is no slot {message.slot_index}"))
        elif slot.allocation_id == message.allocation_id:
            yield Answer(token, Ack())
        elif slot.state is not _S.FREE:
            reason = f"slot {slot.index} has allocation {slot.allocation_id} of job {slot.job_id}"
            yield Answer(token, Refused(reason=reason))
            yield ReportSlots()
        else:
            slot.to(_S.ALLOCATED)
            slot.job_id, slot.allocation_id = message.job_id, message.allocation_id
            slot.allocated_ms, slot.accepted = now_ms, False
            self.jobs.setdefault(message.job_id, Job(heard_ms=now_ms))
            yield Answer(token, Ack())
            yield ReportSlots()
            yield self._offer_of(message.job_id, slot)

    def _deploy(self, token: int, message: DeploySlot, now_ms: int) -> Iterator[Effect]:
        deploy = message.deploy
        slot = self.of_allocation(message.allocation_id)
        if deploy is None or slot is None or slot.job_id != deploy.job_id:
            reason = f"no slot here has allocation {message.allocation_id} of this job"
            yield Answer(token, Refused(reason=reason))
            return
        if (refused := self._heard(deploy.job_id, deploy.epoch, now_ms)) is not None:
            yield Answer(token, refused)
            return
        slot.accepted = True
        planned = slot.next or slot.deploy
        if planned is not None and deploy.job_attempt < planned.job_attempt:
            reason = f"attempt {deploy.job_attempt} is old: {planned.job_attempt} is deployed"
            yield Answer(token, Refused(reason=reason))
            return
        if planned is not None and deploy.job_attempt == planned.job_attempt:
            if slot.state is _S.ACTIVE:  # a repetition
                yield Answer(token, Ack())
            else:
                slot.waiting.append(token)
            return
        yield from self._give_up_waiting(slot, "a newer attempt is being deployed")
        slot.waiting = [token]
        if slot.state is _S.ALLOCATED:
            yield self._fork(slot, deploy)
        else:
            slot.next = deploy
            yield from self._end(slot)
        yield ReportSlots()

    def _fork(self, slot: Slot, deploy: Deploy) -> Fork:
        slot.to(_S.FORKING)
        slot.deploy, slot.next, slot.pid = deploy, None, None
        slot.tracking = Tracking(deploy)
        slot.process = next(self._processes)
        return Fork(slot.process, slot.index, deploy)

    def _end(self, slot: Slot) -> Iterator[Effect]:
        """Ends the process of a slot. If the process is still being forked, it is ended as soon as it runs."""
        if slot.state is _S.ACTIVE:
            slot.to(_S.ENDING)
            yield End(slot.process, END_GRACE_MS if slot.next is None else REPLACE_GRACE_MS)

    def _free(self, token: int, message: FreeSlot, now_ms: int) -> Iterator[Effect]:
        slot = self.of_allocation(message.allocation_id)
        if slot is None or slot.job_id != message.job_id:
            yield Answer(token, Ack())  # it is free already
            return
        if (refused := self._heard(message.job_id, message.epoch, now_ms)) is not None:
            yield Answer(token, refused)
            return
        yield Answer(token, Ack())
        yield from self._release(slot, "the slot was given back")

    def _release(self, slot: Slot, reason: str) -> Iterator[Effect]:
        """Moves the slot towards FREE, and ends its process first if it has one."""
        yield from self._give_up_waiting(slot, reason)
        slot.next = None
        if slot.state is _S.ALLOCATED:
            self._clear(slot)
            yield ReportSlots()
        elif slot.state is _S.FORKING:
            slot.to(_S.ENDING)  # its process is ended as soon as it is there
        else:
            yield from self._end(slot)

    def _clear(self, slot: Slot) -> None:
        slot.to(_S.FREE)
        job_id = slot.job_id
        slot.job_id = slot.allocation_id = slot.deploy = slot.tracking = slot.next = slot.pid = None
        slot.accepted, slot.waiting, slot.process = False, [], 0
        if job_id is not None and not any(s.job_id == job_id for s in self.slots):
            self.jobs.pop(job_id, None)

    def _give_up_waiting(self, slot: Slot, reason: str) -> Iterator[Effect]:
        waiting, slot.waiting = slot.waiting, []
        for token in waiting:
            yield Answer(token, Refused(reason=reason))

    def _command(self, token: int, message: SlotCommand, now_ms: int) -> Iterator[Effect]:
        slot = self.of_allocation(message.allocation_id)
        if slot is None or slot.job_id is None:
            reason = f"no slot here has allocation {message.allocation_id}"
            yield Answer(token, Refused(reason=reason, no_slot=True))
            return
        if (refused := self._heard(slot.job_id, message.command.epoch, now_ms)) is not None:
            yield Answer(token, refused)
        elif slot.state is not _S.ACTIVE:
            yield Answer(token, Refused(reason=f"no process runs in slot {slot.index} ({slot.state.value})"))
        else:
            if slot.tracking is not None:
                slot.tracking.commanded(message.command)
            yield Deliver(token, slot.process, message.command)

    def _heard(self, job_id: str, epoch: int, now_ms: int) -> Refused | None:
        """Records a command of a master with this epoch. Returns None if the master may command, otherwise
        the refusal."""
        job = self.jobs.setdefault(job_id, Job())
        if epoch < job.epoch:
            return fenced(f"master of job {job_id}", epoch, job.epoch)
        job.epoch, job.heard_ms = epoch, now_ms
        return None

    # -- processes --------------------------------------------------------------------

    def _forked(self, event: Forked, now_ms: int) -> Iterator[Effect]:
        slot = self.of_process(event.process)
        if slot is None:
            yield End(event.process, REPLACE_GRACE_MS)
            return
        slot.pid = event.pid
        if slot.state is _S.ENDING or slot.next is not None:  # freed or superseded meanwhile
            if slot.state is _S.FORKING:
                slot.to(_S.ENDING)
            yield End(event.process, REPLACE_GRACE_MS)
            return
        slot.to(_S.ACTIVE)
        waiting, slot.waiting = slot.waiting, []
        for token in waiting:
            yield Answer(token, Ack())
        yield ReportSlots()

    def _ended(self, event: Ended, now_ms: int) -> Iterator[Effect]:
        slot = self.of_process(event.process)
        if slot is None:
            return
        assert slot.job_id is not None
        assert slot.allocation_id is not None
        slot.pid = None
        if slot.state is _S.ENDING and slot.next is not None:
            yield self._fork(slot, slot.next)
        elif slot.state is _S.ENDING:
            yield from self._give_up_waiting(slot, "the slot was given back")
            self._clear(slot)
        else:
            yield from self._give_up_waiting(slot, event.reason)
            yield ReportLost(event.process, slot.job_id, slot.allocation_id, event.reason)
            self._clear(slot)
        yield ReportSlots()

    def _effect_failed(self, effect: Any, error: Exception, now_ms: int) -> Iterator[Effect]:
        match effect:
            case Fork(process=process):
                slot = self.of_process(process)
                if slot is None:
                    return
                if slot.state is _S.ENDING:
                    yield from self._ended(Ended(process, str(error)), now_ms)
                    return
                waiting, slot.waiting = slot.waiting, []
                slot.to(_S.ALLOCATED)
                slot.deploy = slot.tracking = None
                if slot.next is not None:
                    slot.waiting = waiting
                    yield self._fork(slot, slot.next)
                else:
                    for token in waiting:
                        yield Answer(token, error)
                yield ReportSlots()
            case Deliver(token=token):
                yield Answer(token, Refused(reason=str(error)))
            case _:
                return  # an offer: Tick repeats it

    # -- masters ----------------------------------------------------------------------

    def _offer_of(self, job_id: str, slot: Slot) -> Offer:
        # The command is for an attempt that is being replaced.
        runs = slot.tracking is not None and slot.next is None
        offer = SlotOffer(
            allocation_id=slot.allocation_id or "",
            slot_index=slot.index,
            deployed=slot.tracking.report() if slot.tracking is not None and runs else None,
        )
        return Offer(job_id, (offer,))

    def _new_master(self, job_id: str, epoch: int, now_ms: int) -> Iterator[Effect]:
        job = self.jobs.get(job_id)
        if job is None or epoch < job.epoch:
            return
        job.epoch, job.heard_ms = epoch, now_ms
        again_ms = job.offered_ms + self.settings.tell_again_ms
        if job.told_epoch == epoch and now_ms < again_ms:
            return  # it was told, and is told again until it answers
        job.told_epoch = epoch
        yield from self._offer(job_id, now_ms)

    def _job_ended(self, job_id: str, epoch: int, now_ms: int) -> Iterator[Effect]:
        if job_id not in self.jobs or self._heard(job_id, epoch, now_ms) is not None:
            return
        for slot in self.slots:
            if slot.job_id == job_id and slot.state is not _S.ENDING:
                yield from self._release(slot, "the job is over")

    def _offer(self, job_id: str, now_ms: int) -> Iterator[Effect]:
        """Offers all slots that the job holds here."""
        self.jobs[job_id].offered_ms = now_ms
        for slot in self.slots:
            if slot.job_id == job_id and slot.state is not _S.ENDING:
                # One by one: final snapshots may make a report large.
                yield self._offer_of(job_id, slot)

    def _offer_answered(self, event: OfferAnswered, now_ms: int) -> Iterator[Effect]:
        job = self.jobs.get(event.offer.job_id)
        if job is not None:
            job.heard_ms = now_ms
        for offered in event.offer.slots:
            slot = self.of_allocation(offered.allocation_id)
            if slot is None or slot.job_id != event.offer.job_id:
                continue
            if offered.allocation_id in event.accepted:
                slot.accepted = True
            elif not deployed_since(slot, offered):
                yield from self._release(slot, "the job's master does not want the slot")

    def _tick(self, now_ms: int) -> Iterator[Effect]:
        for slot in self.slots:
            offered = slot.state is _S.ALLOCATED and not slot.accepted
            if offered and now_ms - slot.allocated_ms > self.settings.slot_timeout_ms:
                yield from self._release(slot, "no master took the slot")
        for job_id, job in list(self.jobs.items()):
            silent_ms = now_ms - job.heard_ms
            if silent_ms > self.settings.master_timeout_ms:
                for slot in self.slots:
                    if slot.job_id == job_id and slot.state is not _S.ENDING:
                        yield from self._release(slot, f"the job has had no master for {silent_ms} ms")
            elif now_ms - job.offered_ms > self.settings.offer_interval_ms:
                yield from self._offer(job_id, now_ms)
