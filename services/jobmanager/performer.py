"""Performs the decisions of a job master: on the bus itself, on the log and the object store by ``Storing``.

It decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Union

import msgspec

from penstock.bus import NobodyServesError, encode, request
from penstock.errors import BrokerError, PenstockError
from penstock.messages import layout
from penstock.messages.cluster import Ack, Failed, Refused
from penstock.messages.resource_manager import (
    DeclareReply,
    DeclareSlots,
    RegisterTaskManager,
)
from penstock.messages.task_manager import DeploySlot, RequestTaskManagerDetails
from penstock_services.common.cluster_overview import cluster_overview
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.storing import Storing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bus import Subjects
    from penstock.messages.job_events import JobEvent
    from penstock.messages.resource_manager import ClusterOverview
    from penstock.messages.states import JobStatus
    from penstock.messages.task_manager import SharedDeploy, ToTaskManagers
    from penstock.ports import Clock, Store, Transport
    from penstock.store import DecisionLog
    from penstock_services.common.tracing import Tracer
    from penstock_services.jobmanager.traces import JobSpans

#: How long a command is repeated before it counts as lost.
COMMAND_DEADLINE_S = 10.0
#: How long a deployment is repeated. It is answered when the slot's process runs, which has to wait for the
#: end of the process before it, and takes longer on a busy machine. The loss of a task manager is noticed
#: earlier in other ways.
DEPLOY_DEADLINE_S = 30.0
#: How long the resource manager is told that the job needs no more slots.
LAST_WORD_S = 5.0
#: If the shared part of an attempt's deployments is larger than this, it is stored once.
SHARED_BYTES = 16 * 1024
#: The time between two checks of a lease that has expired by this process's clock.
LEASE_LOOK_S = 0.05


class Performer:
    """``leads()``: False once another process may hold the lease. Effects then wait until ``may_act`` is set
    again. ``on_stop(status, reason)`` is called when the master has ended."""

    def __init__(
        self,
        *,
        job_id: str,
        epoch: int,
        transport: Transport,
        subjects: Subjects,
        store: Store,
        log: DecisionLog,
        clock: Clock,
        logger: Any,
        leads: Callable[[], bool],
        on_stop: Callable[[JobStatus, str], None],
        tracer: Tracer,
        spans: JobSpans,
    ) -> None:
        self._job_id = job_id
        self._epoch = epoch
        self._transport = transport
        self._subjects = subjects
        self._store = store
        self._clock = clock
        self._logger = logger
        self._storing = Storing(job_id=job_id, epoch=epoch, store=store, log=log, clock=clock, logger=logger)
        self._leads = leads
        self._on_stop = on_stop
        self._tracer, self._spans = tracer, spans
        self.may_act = asyncio.Event()
        self._sharing = asyncio.Lock()
        # First come, first served: events are published in their order.
        self._publishing = asyncio.Lock()
        #: (attempt, key of the shared part of its deployments). None: the deployments carry it themselves.
        self._shared: tuple[int, str | None] | None = None
        # Commands to one slot are sent one after another, because a cancel must not overtake a deployment.
        self._slots: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def perform(self, effect: fx.Effect) -> Awaitable[fx.Event | None] | None:
        """Performs an effect. Returns an awaitable of the event that answers it, or None."""
        match effect:
            case fx.Stop(status, reason):
                self._on_stop(status, reason)
                return None
            case fx.Say(level, event, fields):
                getattr(self._logger, level)(event, job_id=self._job_id, **fields)
                return None
            case _:
                return self._when_allowed(effect)

    async def _when_allowed(self, effect: Any) -> Any:
        while not (self.may_act.is_set() and self._leads()):
            # A process that was paused learns from its own clock, before any message, that it may no longer
            # lead. Then either a message confirms that, or a late answer renews the lease, which no other
            # process has held.
            await self.may_act.wait()
            if not self._leads():
                await self._clock.sleep(LEASE_LOOK_S)
        match effect:
            case fx.Command():
                return await self._command(effect)
            case fx.Declare(needed, together):
                return await self._declare(needed, together)
            case fx.FindAllocations():
                return await self._find_allocations()
            case fx.FindTaskManagers():
                overview = await self._overview()
                return overview and fx.TaskManagers(frozenset(m.id for m in overview.taskmanagers))
            case fx.LookFor(taskmanager_id):
                return await self._look_for(taskmanager_id)
            case fx.Announce(message):
                return await self._announce(message)
            case fx.AppendLog(entry):
                return await self._storing.append(entry)
            case fx.StoreManifest():
                return await self._storing.store_manifest(effect)
            case fx.ProbeSavepoint(trigger_id, directory):
                return await self._storing.probe_savepoint(trigger_id, directory)
            case fx.KeepStatistics():
                return await self._storing.keep_statistics(effect)
            case fx.KeepExceptions(entries):
                return await self._storing.keep_exceptions(entries)
            case fx.LoadManifest(key):
                return await self._storing.load_manifest(key)
            case fx.DeleteObjects(keys):
                return await self._storing.delete_as_leader(keys)
            case fx.Archive():
                return await self._storing.archive(effect)
            case fx.Notify(subject, data):
                return await self._notify(subject, data)
            case fx.PublishEvents(events):
                return await self._publish_events(events)
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    # -- bus -----------------------------------------------------------------------------

    async def _command(self, command: fx.Command) -> fx.Event:
        message = command.message
        async with self._slots[message.allocation_id]:
            try:
                sent = message
                if isinstance(message, DeploySlot) and command.shared is not None:
                    sent = await self._deployment(message, command.shared)
                reply = await request(
                    self._transport,
                    self._subjects.to_taskmanager(command.taskmanager_id, sent),
                    sent,
                    Union[Ack, Refused, Failed],
                    deadline_s=DEPLOY_DEADLINE_S if isinstance(message, DeploySlot) else COMMAND_DEADLINE_S,
                )
            except PenstockError as err:
                self._logger.warning(
                    "command_lost", job_id=self._job_id, taskmanager_id=command.taskmanager_id,
                    command=type(message).__name__, error=err.message,
                )  # fmt: skip
                return fx.CommandLost(command, err.message)
            return fx.CommandDone(command, reply)

    async def _deployment(self, message: DeploySlot, shared: SharedDeploy) -> DeploySlot:
        """The deployment as it is sent. The shared part of a large job is stored once instead of being sent
        to each slot."""
        attempt = shared.deploy.job_attempt
        async with self._sharing:
            if self._shared is None or self._shared[0] != attempt:
                data = msgspec.msgpack.encode(shared)
                key = None
                if len(data) > SHARED_BYTES:
                    key = layout.deploy_key(self._job_id, f"{self._epoch}-{attempt}")
                    await self._store.put(key, data)
                self._shared = (attempt, key)
        key = self._shared[1]
        if key is None or message.deploy is None:
            return message
        tasks = tuple(msgspec.structs.replace(task, restore=()) for task in message.deploy.tasks)
        return msgspec.structs.replace(message, deploy=None, deploy_key=key, tasks=tasks)

    async def _declare(self, needed: int, together: bool) -> fx.Event:
        message = DeclareSlots(job_id=self._job_id, epoch=self._epoch, needed=needed, together=together)
        try:
            # The master repeats a declared need soon anyway. Only the last declaration, of 0, is repeated
            # here.
            reply = await request(
                self._transport,
                self._subjects.to_resourcemanager(message),
                message,
                Union[DeclareReply, Refused],
                timeout_s=1.0,
                deadline_s=LAST_WORD_S,
                retry=needed == 0,
            )
        except PenstockError as err:
            self._logger.debug("resourcemanager_unreachable", job_id=self._job_id, error=err.message)
            return fx.NotDeclared(needed, err.message)
        if isinstance(reply, Refused):
            return fx.Deposed(reply.reason) if reply.fenced else fx.NotDeclared(needed, reply.reason)
        return fx.Declared(needed, reply.allocated, reply.missing, reply.total, reply.free, reply.epoch)

    async def _overview(self) -> ClusterOverview | None:
        try:
            return await cluster_overview(self._transport, self._subjects)
        except PenstockError as err:
            self._logger.warning("resourcemanager_unreachable", job_id=self._job_id, error=err.message)
            return None

    async def _look_for(self, taskmanager_id: str) -> fx.Event:
        message = RequestTaskManagerDetails()
        try:
            await request(
                self._transport,
                self._subjects.to_taskmanager(taskmanager_id, message),
                message,
                RegisterTaskManager,
                retry=False,
            )
        except NobodyServesError:
            return fx.LookedFor(taskmanager_id, gone=True)
        except BrokerError as err:  # the resource manager is slow, or we are cut off
            self._logger.debug(
                "taskmanager_unreachable",
                job_id=self._job_id,
                taskmanager_id=taskmanager_id,
                error=err.message,
            )
        return fx.LookedFor(taskmanager_id, gone=False)

    async def _find_allocations(self) -> fx.Event | None:
        overview = await self._overview()
        if overview is None:
            return None
        return fx.Allocations(
            tuple(
                (manager.id, slot.allocation_id)
                for manager in overview.taskmanagers
                for slot in manager.slots
                if slot.job_id == self._job_id and slot.allocation_id is not None
            )
        )

    async def _announce(self, message: ToTaskManagers) -> fx.Event | None:
        try:
            await self._transport.publish(self._subjects.to_taskmanagers(message), encode(message))
        except PenstockError as err:
            self._logger.debug("announcement_failed", job_id=self._job_id, error=err.message)
            return fx.NotAnnounced()
        return None

    async def _notify(self, subject: str, data: dict[str, Any]) -> None:
        try:
            await self._transport.publish(
                self._subjects.event(subject, self._job_id), msgspec.json.encode(data)
            )
        except PenstockError as err:
            self._logger.debug("notification_failed", job_id=self._job_id, error=err.message)

    async def _publish_events(self, events: tuple[JobEvent, ...]) -> None:
        subject = self._subjects.job_events(self._job_id)
        async with self._publishing:
            for event in events:
                for span in self._spans.spans(event):
                    self._tracer.export(span)
            try:
                for event in events:
                    await self._transport.publish(subject, encode(event))
            except PenstockError as err:  # readers see the gap, and ask
                self._logger.debug("notification_failed", job_id=self._job_id, error=err.message)
