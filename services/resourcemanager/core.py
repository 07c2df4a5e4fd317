"""The pure core of the leading resource manager.

It starts empty. Task managers report all their slots with every heartbeat, and job masters repeat what
they need, so a new leader knows everything after one interval of each. Until then (``settle_ms``) it
allocates no slot, because a job may hold a slot that the leader does not know yet.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import SlotsUnavailable, TaskManagerLost
from penstock.messages.resource_manager import (
    ClusterOverview,
    DeclareReply,
    DeclareSlots,
    DeregisterTaskManager,
    RegisterReply,
    RegisterTaskManager,
    RequestClusterOverview,
)
from penstock.messages.task_manager import AllocateSlot
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick
from penstock_services.resourcemanager.assignment import Waiting, assign
from penstock_services.resourcemanager.effects import (
    Abdicate,
    AllocateAnswered,
    Connection,
    Effect,
    EnsureWorkers,
    Event,
    ListWorkers,
    NotifyJob,
    Probe,
    Probed,
    SendAllocate,
    Watch,
    WatchEnded,
    WorkersEnsured,
    WorkersListed,
)
from penstock_services.resourcemanager.registry import Commanded, Registry, page_of
from penstock_services.resourcemanager.workers import Registered, Workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.providers import WorkerPhase
    from penstock_services.resourcemanager.workers import WorkerSettings

#: Probes in a row that must find no receiver before a task manager counts as lost.
PROBES = 2
#: A connection to a task manager that ended, or could not be made, is tried again after this time.
WATCH_AGAIN_MS = 5_000
NEVER_MS = 2**62
#: After this many heartbeat intervals without any message, the bus is assumed to be down.
DEAF_INTERVALS = 3
#: A waiting job is told again after this time, even if nothing has changed.
NOTICE_AGAIN_MS = 10_000


@dataclass(slots=True)
class Job:
    """A job that needs slots. ``waiting_since_ms``: since when it lacks slots; None if it has all."""

    epoch: int
    needed: int
    heard_ms: int
    together: bool = False
    waiting_since_ms: int | None = None
    #: (missing, total, free) as the job was last told, and when.
    told: tuple[int, int, int] | None = None
    told_ms: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """``notice_ms``: a job that waits longer is told so. ``settle_ms``: how long after its start the leader
    allocates no slot."""

    heartbeat_interval_ms: int = 1_000
    heartbeat_timeout_ms: int = 10_000
    notice_ms: int = 2_000
    settle_ms: int = 0
    #: None if there is no resource provider: then task managers are started by hand.
    workers: WorkerSettings | None = None


class ResourceManagerCore:
    """The leader's knowledge and decisions; see ``common.core.Core``. ``epoch``: the fencing token of this
    leader."""

    def __init__(self, resourcemanager_id: str, epoch: int, settings: Settings, now_ms: int) -> None:
        self.id = resourcemanager_id
        self.epoch = epoch
        self.settings = settings
        self.registry = Registry(grace_ms=3 * settings.heartbeat_interval_ms)
        #: Job id → job, in the order of arrival.
        self.jobs: dict[str, Job] = {}
        self.workers = None if settings.workers is None else Workers(settings.workers, epoch)
        self._grants_from_ms = now_ms + settings.settle_ms
        self._connected = True
        self._last_tick_ms = now_ms
        #: Before this moment heartbeats may have been missed because this process could not receive them.
        self._listening_since_ms = now_ms
        #: When the last message arrived. A broker that is suspended keeps its connections open, but delivers
        #: nothing.
        self._heard_ms = now_ms
        self._probes_from_ms = now_ms
        self._numbers = itertools.count(1)
        #: Grows when the needs of jobs change.
        self._declared = 0
        #: (registry.version, _declared) at the last assignment.
        self._assigned = (-1, -1)

    def step(self, event: Event, now_ms: int) -> Iterator[Effect]:
        """See ``Core.step``."""
        match event:
            case Asked(token, message):
                self._hear(now_ms)
                yield from self._asked(token, message, now_ms)
            case AllocateAnswered(allocation_id, refused):
                yield from self._answered(allocation_id, refused, now_ms)
            case Probed(taskmanager_id, gone):
                if gone:
                    self._hear(now_ms)  # this answer came from the broker
                yield from self._probed(taskmanager_id, gone)
            case WatchEnded():
                yield from self._watch_ended(event, now_ms)
            case Connection(connected):
                self._connected = connected
                if connected:
                    # The others reconnect in their own time: do not count them as lost yet.
                    self._listening_since_ms = now_ms
                    self._probes_from_ms = now_ms + self.settings.heartbeat_timeout_ms
            case WorkersListed(phases):
                yield from self._listed(phases, now_ms)
            case WorkersEnsured():
                if self.workers is not None:
                    self.workers.done(now_ms)
            case EffectFailed(ListWorkers() | EnsureWorkers()):
                if self.workers is not None:
                    self.workers.failed(now_ms)
            case EffectFailed(SendAllocate() as effect, _):
                # It is not known whether the command arrived. The next report will show it.
                self.registry.withdraw(effect.message.allocation_id)
            case EffectFailed():
                pass  # a notice that could not be delivered; the shell logged it
            case Tick():
                yield from self._tick(now_ms)
            case _:
                assert_never(event)
        if isinstance(event, Tick) or self._assigned != (self.registry.version, self._declared):
            yield from self._assign(now_ms)
            yield from self._notices(now_ms)

    # -- requests ---------------------------------------------------------------------

    def _asked(self, token: int, message: Any, now_ms: int) -> Iterator[Effect]:
        match message:
            case RegisterTaskManager():
                lost = self.registry.update(message, now_ms)
                yield Answer(token, RegisterReply(resourcemanager_id=self.id, epoch=self.epoch))
                yield from self._tell_lost(lost, message.taskmanager_id, "it was started again")
                manager = self.registry.taskmanagers[message.taskmanager_id]
                if now_ms >= manager.watch_ms:
                    manager.watch_ms = NEVER_MS
                    yield Watch(message.taskmanager_id, message.pid, message.data_host, message.data_port)
            case DeregisterTaskManager(taskmanager_id=taskmanager_id, reason=reason):
                yield Answer(token, Ack())
                yield from self._lose(taskmanager_id, f"it left: {reason}")
            case DeclareSlots():
                yield from self._declare(token, message, now_ms)
            case RequestClusterOverview(after=after):
                yield Answer(token, self.overview(after))
            case _:
                assert_never(message)

    def _declare(self, token: int, message: DeclareSlots, now_ms: int) -> Iterator[Effect]:
        known = self.jobs.get(message.job_id)
        if known is not None and message.epoch < known.epoch:
            reason = f"epoch {message.epoch} of job {message.job_id} is old: {known.epoch} is known"
            yield Answer(token, Refused(reason=reason, fenced=True))
            return
        if known is None or known.needed != message.needed:
            self._declared += 1
        if message.needed <= 0:
            self.jobs.pop(message.job_id, None)
        elif known is None:
            self.jobs[message.job_id] = Job(message.epoch, message.needed, now_ms, message.together)
        else:
            known.epoch, known.needed, known.heard_ms = message.epoch, message.needed, now_ms
            known.together = message.together
        if self._assigned != (self.registry.version, self._declared):
            yield from self._assign(now_ms)
        allocated = self.registry.of_job(message.job_id)
        yield Answer(
            token,
            DeclareReply(
                allocated=allocated,
                missing=max(0, message.needed - allocated),
                total=self.registry.total,
                free=self.registry.free,
                epoch=self.epoch,
            ),
        )

    def overview(self, after: str | None = "") -> ClusterOverview:
        """A page of task managers and their slots, for REST; see ``RequestClusterOverview``."""
        known = self.registry.taskmanagers
        page, more = page_of(known, after)
        return ClusterOverview(
            taskmanagers=[known[manager_id].details(manager_id) for manager_id in page],
            slots_total=self.registry.total,
            slots_free=self.registry.free,
            resourcemanager_id=self.id,
            epoch=self.epoch,
            count=len(known),
            more=more,
        )

    # -- answers to our commands ------------------------------------------------------

    def _answered(self, allocation_id: str, refused: Refused | None, now_ms: int) -> Iterator[Effect]:
        if refused is None:
            command = self.registry.commanded(allocation_id)
            if command is not None:
                command.acknowledged_ms = now_ms
            return
        self.registry.withdraw(allocation_id)
        if refused.fenced:
            yield Abdicate(refused.reason)

    def _probed(self, taskmanager_id: str, gone: bool) -> Iterator[Effect]:
        manager = self.registry.taskmanagers.get(taskmanager_id)
        if manager is None:
            return
        manager.probing = False
        manager.missed_probes = manager.missed_probes + 1 if gone else 0
        if manager.missed_probes >= PROBES:
            yield from self._lose(taskmanager_id, "its connection to the broker is gone")

    def _watch_ended(self, event: WatchEnded, now_ms: int) -> Iterator[Effect]:
        manager = self.registry.taskmanagers.get(event.taskmanager_id)
        if manager is None or manager.report.pid != event.pid:
            return
        manager.watch_ms = now_ms + WATCH_AGAIN_MS
        if event.connected and self._connected:
            # Two signs are enough: the end of the connection, and one probe that finds no receiver.
            manager.missed_probes, manager.probing = PROBES - 1, True
            yield Probe(event.taskmanager_id, urgent=True)

    # -- time -------------------------------------------------------------------------

    def _deaf(self, now_ms: int) -> bool:
        """Whether no message at all has come for a while. Then the bus is more likely to be down than every
        task manager."""
        return now_ms - self._heard_ms > DEAF_INTERVALS * self.settings.heartbeat_interval_ms

    def _hear(self, now_ms: int) -> None:
        if self._deaf(now_ms):
            # Heartbeats of other task managers may still be on their way, so their silence is counted from
            # now.
            self._listening_since_ms = now_ms
        self._heard_ms = now_ms

    def _tick(self, now_ms: int) -> Iterator[Effect]:
        settings = self.settings
        if now_ms - self._last_tick_ms > settings.heartbeat_interval_ms:
            self._listening_since_ms = now_ms  # this process was suspended, and heartbeats wait unread
        self._last_tick_ms = now_ms
        if not self._connected:
            return
        deaf = self._deaf(now_ms)
        for manager_id, manager in list(self.registry.taskmanagers.items()):
            silent_ms = now_ms - max(manager.last_heartbeat_ms, self._listening_since_ms)
            if silent_ms > settings.heartbeat_timeout_ms and not deaf:
                yield from self._lose(manager_id, f"no heartbeat for {silent_ms} ms")
            elif (
                silent_ms > 1.2 * settings.heartbeat_interval_ms
                and now_ms >= self._probes_from_ms
                and not manager.probing
            ):
                manager.probing = True
                yield Probe(manager_id)
        for job_id, job in list(self.jobs.items() if not deaf else ()):
            if now_ms - max(job.heard_ms, self._listening_since_ms) > settings.heartbeat_timeout_ms:
                del self.jobs[job_id]  # its master is silent; the job keeps the slots that it has
        # A new leader first waits for reports of the task managers and jobs that exist.
        if self.workers is not None and now_ms >= self._grants_from_ms and self.workers.due(now_ms):
            yield ListWorkers()

    def _listed(self, phases: Mapping[str, WorkerPhase], now_ms: int) -> Iterator[Effect]:
        assert self.workers is not None
        managers = {
            manager_id: Registered(manager.counted, len(manager.free))
            for manager_id, manager in self.registry.taskmanagers.items()
        }
        missing = sum(max(0, job.needed - self.registry.of_job(j)) for j, job in self.jobs.items())
        wanted = self.workers.listed(phases, managers, missing, now_ms)
        if wanted is not None:
            yield EnsureWorkers(wanted)

    def _lose(self, taskmanager_id: str, reason: str) -> Iterator[Effect]:
        yield from self._tell_lost(self.registry.remove(taskmanager_id), taskmanager_id, reason)

    def _tell_lost(self, jobs: set[str], taskmanager_id: str, reason: str) -> Iterator[Effect]:
        for job_id in sorted(jobs):
            message = TaskManagerLost(
                command_id=self._command_id(),
                job_id=job_id,
                taskmanager_id=taskmanager_id,
                reason=f"task manager {taskmanager_id} is lost: {reason}",
            )
            yield NotifyJob(job_id, message, until_answered=True)

    # -- assignment -------------------------------------------------------------------

    def _command_id(self) -> str:
        return f"rm-{self.epoch}-{next(self._numbers)}"

    def _assign(self, now_ms: int) -> Iterator[Effect]:
        waiting = []
        for job_id, job in self.jobs.items():
            missing = job.needed - self.registry.of_job(job_id)
            if missing <= 0:
                job.waiting_since_ms = job.told = None
                continue
            if job.waiting_since_ms is None:
                job.waiting_since_ms = now_ms
            waiting.append(Waiting(job_id, missing, job.needed, job.waiting_since_ms, job.together))
        self._assigned = (self.registry.version, self._declared)
        if not waiting or not self.registry.free or now_ms < self._grants_from_ms:
            return
        # A task manager that does not answer probes, or is being released, gets no new work.
        leaving = self.workers.draining if self.workers is not None else ()
        managers = {
            m: t
            for m, t in self.registry.taskmanagers.items()
            if t.free and not t.missed_probes and m not in leaving
        }
        free = {m: manager.free for m, manager in managers.items()}
        held = {
            (m, job.job_id): manager.held[job.job_id] for m, manager in managers.items() for job in waiting
        }
        for grant in assign(waiting, free, held, self.registry.total, now_ms):
            # The epoch belongs to this leader alone, so the id is unique in the cluster.
            allocation_id = f"a{self.epoch}-{next(self._numbers)}"
            self.registry.command(
                Commanded(grant.taskmanager_id, grant.slot_index, grant.job_id, allocation_id)
            )
            yield SendAllocate(
                grant.taskmanager_id,
                AllocateSlot(
                    command_id=self._command_id(),
                    epoch=self.epoch,
                    slot_index=grant.slot_index,
                    job_id=grant.job_id,
                    allocation_id=allocation_id,
                ),
            )

    def _notices(self, now_ms: int) -> Iterator[Effect]:
        for job_id, job in self.jobs.items():
            since = job.waiting_since_ms
            if since is None or now_ms - since < self.settings.notice_ms:
                continue
            missing = job.needed - self.registry.of_job(job_id)
            if missing <= 0:
                continue
            now = (missing, self.registry.total, self.registry.free)
            if now == job.told and now_ms - job.told_ms < NOTICE_AGAIN_MS:
                continue
            job.told, job.told_ms = now, now_ms
            message = SlotsUnavailable(job_id=job_id, missing=now[0], total=now[1], free=now[2])
            yield NotifyJob(job_id, message, until_answered=False)
