"""Performs the decisions of a job master on the bus, the log and the object store. It decides nothing itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Union

import msgspec

from penstock.bus import NobodyServesError, encode, request
from penstock.errors import BrokerError, FencedError, ObjectStoreError, PenstockError
from penstock.jobgraph.graph import decode_job_graph
from penstock.messages import layout
from penstock.messages.cluster import Ack, Failed, JobAccepted, Refused
from penstock.messages.resource_manager import (
    ClusterOverview,
    DeclareReply,
    DeclareSlots,
    RegisterTaskManager,
    RequestClusterOverview,
)
from penstock.messages.task_manager import DeploySlot, RequestTaskManagerDetails
from penstock.plan.compiled import PLAN_NAME, encode_plan
from penstock.snapshots.manifest import encode_manifest, read_manifest, self_contained
from penstock.store import copy_object
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.kept_exceptions import encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bus import Subjects
    from penstock.messages.states import JobStatus
    from penstock.messages.task_manager import SharedDeploy, ToTaskManagers
    from penstock.ports import Clock, Store, Transport
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock.store import DecisionLog

#: How long a command is repeated before it counts as lost.
COMMAND_DEADLINE_S = 10.0
#: How long a deployment is repeated. It is answered when the slot's process runs, which has to wait for the
#: end of the process before it, and takes longer on a busy machine. The loss of a task manager is noticed
#: earlier in other ways.
DEPLOY_DEADLINE_S = 30.0
#: How long the resource manager is told that the job needs no more slots.
LAST_WORD_S = 5.0
#: How long writing the manifest of a checkpoint is tried.
STORE_DEADLINE_S = 30.0
#: A folder for savepoints must accept a small object in this time.
PROBE_DEADLINE_S = 10.0
#: If the shared part of an attempt's deployments is larger than this, it is stored once.
SHARED_BYTES = 16 * 1024
#: How many objects of a savepoint are copied at the same time.
COPIES = 4
#: The time between two checks of a lease that has expired by this process's clock.
LEASE_LOOK_S = 0.05
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


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
    ) -> None:
        self._job_id = job_id
        self._epoch = epoch
        self._transport = transport
        self._subjects = subjects
        self._store = store
        self._log = log
        self._clock = clock
        self._logger = logger
        self._leads = leads
        self._on_stop = on_stop
        self.may_act = asyncio.Event()
        self._appending = asyncio.Lock()
        self._sharing = asyncio.Lock()
        self._keeping = asyncio.Lock()
        #: The exceptions to write. None: nothing to write.
        self._exceptions: tuple[dict[str, Any], ...] | None = None
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
                return await self._append(entry)
            case fx.StoreManifest():
                return await self._store_manifest(effect)
            case fx.ProbeSavepoint(trigger_id, directory):
                return await self._probe_savepoint(trigger_id, directory)
            case fx.KeepStatistics():
                return await self._keep_statistics(effect)
            case fx.KeepExceptions(entries):
                return await self._keep_exceptions(entries)
            case fx.LoadManifest(key):
                return await self._load_manifest(key)
            case fx.DeleteObjects(keys):
                return await self._delete_as_leader(keys)
            case fx.Archive():
                return await self._archive(effect)
            case fx.Notify(subject, data):
                return await self._notify(subject, data)
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
        message = RequestClusterOverview()
        try:
            subject = self._subjects.to_resourcemanager(message)
            overview: ClusterOverview = await request(self._transport, subject, message, ClusterOverview)
            return overview
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

    # -- log and store -------------------------------------------------------------------

    async def _until_done(self, call: Callable[[], Awaitable[Any]], deadline_s: float | None) -> Any:
        """Repeats a request while the store fails. Raises ObjectStoreError after ``deadline_s``."""
        until = None if deadline_s is None else self._clock.monotonic_ms() + deadline_s * 1000
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await call()
            except ObjectStoreError as err:
                if until is not None and self._clock.monotonic_ms() >= until:
                    raise
                self._logger.warning("store_call_retried", job_id=self._job_id, error=err.message)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _append(self, entry: Any) -> fx.Event:
        """Appends an entry, and repeats that without end: a failed try may have written the entry, so it
        cannot be given up."""
        async with self._appending:
            try:
                number = await self._until_done(lambda: self._log.append(entry), None)
            except FencedError as err:
                return fx.Deposed(err.message)
        self._logger.info("decision_logged", job_id=self._job_id, n=number, entry=type(entry).__name__)
        return fx.LogAppended(entry, number)

    async def _store_manifest(self, effect: fx.StoreManifest) -> fx.Event:
        data = encode_manifest(effect.manifest)
        checkpoint_id = effect.manifest.checkpoint_id
        try:
            if effect.savepoint is not None:
                await self._copy_savepoint(effect.savepoint, effect.manifest)
            await self._until_done(lambda: self._store.put(effect.key, data), STORE_DEADLINE_S)
        except KeyError as err:
            return fx.ManifestNotStored(checkpoint_id, f"an object is gone: {err}")
        except PenstockError as err:
            return fx.ManifestNotStored(checkpoint_id, f"could not be stored: {err.message}")
        return fx.ManifestStored(checkpoint_id)

    async def _probe_savepoint(self, trigger_id: str, directory: str) -> fx.Event:
        """Writes a small object to the folder of a savepoint, so that an unusable folder is found before
        every task writes its state."""
        key = f"{layout.located(directory).rstrip('/')}/.probe-{trigger_id}"
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                await self._store.put(key, b"")
                await self._store.delete([key])
        except TimeoutError:
            problem = f"no answer for {PROBE_DEADLINE_S:g} s"
        except PenstockError as err:
            # The problem as one sentence. For a folder the system's own reason is enough.
            system = err.__cause__.strerror if isinstance(err.__cause__, OSError) else None
            problem = system or (f"{err.message} ({err.got})" if err.got else err.message)
        else:
            return fx.SavepointProbed(trigger_id)
        return fx.SavepointProbed(trigger_id, f"a savepoint cannot be written to {directory}: {problem}")

    async def _keep_statistics(self, effect: fx.KeepStatistics) -> None:
        try:
            await self._store.put(effect.key, msgspec.json.encode(effect.statistics))
        except ObjectStoreError as err:
            self._logger.warning("statistics_not_stored", job_id=self._job_id, error=err.message)

    async def _keep_exceptions(self, entries: tuple[dict[str, Any], ...]) -> None:
        """Writes the exceptions. The newest are written last, in whatever order the effects run."""
        self._exceptions = entries
        async with self._keeping:
            if self._exceptions is None:
                return  # the write before has written this too
            entries, self._exceptions = self._exceptions, None
            try:
                await self._store.put(layout.exceptions_key(self._job_id, self._epoch), encoded(entries))
            except ObjectStoreError as err:
                self._logger.warning("exceptions_not_stored", job_id=self._job_id, error=err.message)

    async def _copy_savepoint(self, folder: str, manifest: CheckpointManifest) -> None:
        """Copies all objects first, and writes the manifest that names them last: a folder with a manifest is
        complete."""
        own, names = self_contained(manifest)
        limit = asyncio.Semaphore(COPIES)

        async def copy(key: str, name: str) -> None:
            async with limit:
                await self._until_done(
                    lambda: copy_object(self._store, key, f"{folder}/{name}"), STORE_DEADLINE_S
                )

        await asyncio.gather(*(copy(key, name) for key, name in names.items()))
        await self._until_done(lambda: self._store_plan(folder), STORE_DEADLINE_S)
        data = encode_manifest(own)
        await self._until_done(lambda: self._store.put(f"{folder}/manifest", data), STORE_DEADLINE_S)

    async def _store_plan(self, folder: str) -> None:
        """Stores the job's graph as a compiled plan, with the uids of its state, so that the savepoint can
        be started without the program that it was taken from."""
        accepted = await self._log.first()
        assert isinstance(accepted, JobAccepted)
        graph = decode_job_graph(await self._store.get(accepted.job_graph_key))
        plan = await asyncio.to_thread(encode_plan, graph)
        await self._store.put(f"{folder}/{PLAN_NAME}", plan)

    async def _load_manifest(self, key: str) -> fx.Event:
        try:
            manifest = await self._until_done(lambda: read_manifest(self._store, key), STORE_DEADLINE_S)
        except PenstockError as err:
            return fx.ManifestUnreadable(key, err.to_dict())
        return fx.ManifestLoaded(key, manifest)

    async def _delete_as_leader(self, keys: frozenset[str]) -> fx.Event | None:
        """Deletes objects only as leader. A master that was replaced, and does not know it yet, still
        receives the reports of tasks. The tasks of its successor write after the LeaderEpoch entry, so
        reading the log now tells whether an object may be theirs."""
        async with self._appending:
            try:
                await self._log.read()
                self._log.check()
            except FencedError as err:
                return fx.Deposed(err.message)
            except ObjectStoreError as err:
                self._logger.warning("objects_not_deleted", job_id=self._job_id, error=err.message)
                return None
        await self._delete(keys)
        return None

    async def _delete(self, keys: frozenset[str]) -> None:
        try:
            await self._store.delete(sorted(keys))
        except ObjectStoreError as err:
            self._logger.warning(
                "objects_not_deleted", job_id=self._job_id, keys=len(keys), error=err.message
            )

    async def _delete_below(self, prefix: str, keep: frozenset[str] = frozenset()) -> None:
        try:
            keys = frozenset(key for key, _ in await self._store.list(prefix)) - keep
        except ObjectStoreError as err:
            self._logger.warning("objects_not_deleted", job_id=self._job_id, error=err.message)
            return
        if keys:
            await self._delete(keys)

    async def _archive(self, effect: fx.Archive) -> fx.Event:
        await archive(self._store, effect.details, self._until_done)
        for prefix in effect.delete_prefixes:
            await self._delete_below(prefix, effect.keep)
        await self._delete_below(f"{layout.job_prefix(self._job_id)}deploy/")
        await self._delete_below(layout.exceptions_prefix(self._job_id))
        return fx.Archived()


async def archive(store: Store, details: Any, until_done: Any = None) -> None:
    """Stores the details of an ended job, and removes the job from the list of active ones."""
    job_id = details.job_id

    async def write() -> None:
        await store.put(layout.archive_key(job_id), msgspec.json.encode(details))
        await store.put(layout.ended_key(job_id), msgspec.json.encode(details.overview()))
        await store.delete([layout.active_key(job_id)])

    await (until_done(write, None) if until_done else write())
