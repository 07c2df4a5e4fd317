"""The shell of the resource manager: bids for the role's lease, and while it leads runs the core as an actor
on the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from penstock import config as conf
from penstock.bus import NobodyServesError, request, serve_typed
from penstock.errors import BrokerError
from penstock.messages.cluster import Ack, Refused
from penstock.messages.resource_manager import RegisterTaskManager, ToResourceManager
from penstock.messages.task_manager import RequestTaskManagerDetails
from penstock.providers import open_provider
from penstock.store import role_log
from penstock_services.common.actor import ESCALATE, Actor
from penstock_services.common.election import LeaderElection
from penstock_services.resourcemanager.core import ResourceManagerCore, Settings
from penstock_services.resourcemanager.effects import (
    Abdicate,
    AllocateAnswered,
    Connection,
    EnsureWorkers,
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
from penstock_services.resourcemanager.watch import until_closed
from penstock_services.resourcemanager.workers import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import Subscription
    from penstock.providers import ResourceProvider
    from penstock_services.common.main import ServiceContext

ROLE = "resourcemanager"
TICK_MS = 100
#: How long a command to a task manager, or a notice to a master, is repeated.
COMMAND_DEADLINE_S = 10.0
NOTICE_DEADLINE_S = 60.0
#: How long an ordinary probe waits for an answer.
PROBE_S = 1.0
#: Time limits of the probes after a connection ended, since the broker may notice the end a moment later.
URGENT_PROBES_S = (0.05, 0.1, 0.2, 0.5)


class ResourceManagerService:
    """A resource manager process; see ``common.main.Service``. Many may run, and one leads."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._actor: Actor | None = None
        self._subscription: Subscription | None = None
        config = context.config
        self._settings = Settings(
            heartbeat_interval_ms=conf.HEARTBEAT_INTERVAL_MS.read(config),
            heartbeat_timeout_ms=conf.HEARTBEAT_TIMEOUT_MS.read(config),
            notice_ms=conf.SLOT_REQUEST_NOTICE_MS.read(config),
        )
        self._election: LeaderElection | None = None
        #: None if no provider is configured: then task managers are started by hand.
        self._provider: ResourceProvider | None = None
        self._wanted: list[str] = []
        context.connection_listeners.append(self._connection)

    async def start(self) -> Mapping[str, Any]:
        """See ``Service.start``. Raises SpecError if the configured provider does not exist."""
        context = self._context
        await context.store()
        name = conf.RESOURCE_PROVIDER.read(context.config)
        if name:
            self._provider = open_provider(name, conf.CLUSTER_ID.read(context.config), context.config)
        self._election = LeaderElection(
            context.leases(),
            ROLE,
            context.service_id,
            conf.LEASE_TTL_MS.read(context.config),
            context.clock,
            self._gained,
            self._lost,
        )
        context.supervisor.start("election", self._election.run, ESCALATE)
        return {}

    async def stop(self) -> None:
        """See ``Service.stop``."""
        await self._context.supervisor.stop("election")
        if self._provider is not None:
            await self._provider.close()

    # -- leadership -------------------------------------------------------------------

    async def _gained(self) -> None:
        context = self._context
        log = role_log(await context.store(), ROLE)
        epoch = await log.lead(context.service_id, context.clock.now_ms())
        # After an earlier leader, wait one round of heartbeats before the first slot is given out.
        earlier = epoch > 1
        settings = Settings(
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            heartbeat_timeout_ms=self._settings.heartbeat_timeout_ms,
            notice_ms=self._settings.notice_ms,
            settle_ms=self._settings.heartbeat_interval_ms * 3 // 2 if earlier else 0,
            workers=None if self._provider is None else _worker_settings(context.config),
        )
        core = ResourceManagerCore(context.service_id, epoch, settings, context.clock.now_ms())
        self._actor = Actor(ROLE, core, self._perform, context.clock, tick_ms=TICK_MS)
        # A core that raises has a broken invariant: the process ends, and a standby takes over.
        context.supervisor.start("core", self._actor.run, ESCALATE)
        self._subscription = await serve_typed(
            context.transport, context.subjects.resourcemanager_all, ToResourceManager, self._serve
        )
        context.log.info("leadership_acquired", epoch=epoch)

    async def _lost(self, reason: str) -> None:
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            try:
                await subscription.unsubscribe()
            except BrokerError as err:
                self._context.log.warning("unsubscribe_failed", error=str(err))
        await self._context.supervisor.stop("core")
        self._actor = None

    async def _serve(self, message: Any) -> Any:
        # This process was paused, or cannot reach the lease store. It does not answer, so that the sender
        # asks again and reaches the leader.
        if self._actor is None or self._election is None or not self._election.still_leading():
            return None
        return await self._actor.ask(message)

    def _connection(self, connected: bool) -> None:
        if self._actor is not None and not self._actor.try_tell(Connection(connected)):
            self._context.log.warning("mailbox_full", dropped=f"Connection({connected})")

    # -- effects ----------------------------------------------------------------------

    def _perform(self, effect: Any) -> Any:
        if self._election is None or not self._election.still_leading():
            # This process was paused and no longer leads, so decisions that its core made by the clock are
            # void.
            return None
        match effect:
            case SendAllocate():
                return self._allocate(effect)
            case NotifyJob():
                return self._notify(effect)
            case Probe(taskmanager_id, urgent):
                return self._probe(taskmanager_id, urgent)
            case Watch():
                return self._watch(effect)
            case ListWorkers():
                return self._list_workers()
            case EnsureWorkers():
                return self._ensure_workers(effect)
            case Abdicate(reason):
                self._context.log.warning("leadership_resigned", reason=reason)
                if self._election is not None:
                    self._election.resign()
                return None
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    async def _allocate(self, effect: SendAllocate) -> AllocateAnswered:
        reply = await request(
            self._context.transport,
            self._context.subjects.to_taskmanager(effect.taskmanager_id, effect.message),
            effect.message,
            Union[Ack, Refused],
            deadline_s=COMMAND_DEADLINE_S,
        )
        return AllocateAnswered(effect.message.allocation_id, reply if isinstance(reply, Refused) else None)

    async def _notify(self, effect: NotifyJob) -> None:
        self._context.log.info("job_notified", job_id=effect.job_id, message=str(effect.message))
        await request(
            self._context.transport,
            self._context.subjects.to_job(effect.job_id, effect.message),
            effect.message,
            Union[Ack, Refused],
            deadline_s=NOTICE_DEADLINE_S if effect.until_answered else 2.0,
            retry=effect.until_answered,
        )

    async def _list_workers(self) -> WorkersListed:
        assert self._provider is not None
        return WorkersListed(await self._provider.list())

    async def _ensure_workers(self, effect: EnsureWorkers) -> WorkersEnsured:
        assert self._provider is not None
        wanted = sorted(effect.wanted)
        if wanted != self._wanted:
            self._wanted = wanted
            self._context.log.info("workers_ensured", wanted=wanted)
        await self._provider.ensure(effect.wanted)
        return WorkersEnsured()

    async def _watch(self, effect: Watch) -> WatchEnded:
        connected = await until_closed(effect.host, effect.port)
        return WatchEnded(effect.taskmanager_id, effect.pid, connected)

    async def _probe(self, taskmanager_id: str, urgent: bool) -> Probed:
        message = RequestTaskManagerDetails()
        for timeout_s in URGENT_PROBES_S if urgent else (PROBE_S,):
            try:
                await request(
                    self._context.transport,
                    self._context.subjects.to_taskmanager(taskmanager_id, message),
                    message,
                    RegisterTaskManager,
                    timeout_s=timeout_s,
                    retry=False,
                )
            except NobodyServesError:
                return Probed(taskmanager_id, gone=True)
            except BrokerError:
                continue  # the task manager is slow, or we are cut off: this proves nothing
            break
        return Probed(taskmanager_id, gone=False)


def _worker_settings(config: Mapping[str, str]) -> WorkerSettings:
    return WorkerSettings(
        slots=conf.NUM_SLOTS.read(config),
        least_slots=conf.MIN_SLOTS.read(config),
        most_slots=conf.MAX_SLOTS.read(config),
        redundant=conf.REDUNDANT_TASKMANAGERS.read(config),
        idle_ms=conf.TASKMANAGER_TIMEOUT_MS.read(config),
        registration_ms=conf.TASKMANAGER_REGISTRATION_TIMEOUT_MS.read(config),
        most_failures=conf.START_WORKER_MAX_FAILURE_RATE.read(config),
        retry_ms=conf.START_WORKER_RETRY_MS.read(config),
    )
