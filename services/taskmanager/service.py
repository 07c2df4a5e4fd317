"""The shell of the task manager: carries out what the slot table decides, tells the
resource manager what it has, and ends its slots when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from penstock import config as conf
from penstock.bus import request, serve_typed
from penstock.errors import PenstockError
from penstock.jobgraph.graph import runs_on_spark
from penstock.messages.cluster import (
    AdoptJob,
    DeploySlot,
    JobOver,
    OfferReply,
    OfferSlots,
    Refused,
    RegisterTaskManager,
    RequestTaskManagerDetails,
    SlotLost,
    SlotStatus,
    ToTaskManager,
    ToTaskManagers,
)
from penstock.messages.slot import Deploy, SlotLog, SlotReady
from services.common.actor import ESCALATE, Actor, RestartPolicy
from services.common.processes import SystemSpawner
from services.taskmanager.data_port import DataPort
from services.taskmanager.deployments import SharedDeployments
from services.taskmanager.folders import Folders
from services.taskmanager.heartbeats import Heartbeats
from services.taskmanager.relay import Relay
from services.taskmanager.slot import DRAIN_TIMEOUT_S, SlotProcess
from services.taskmanager.slot_table import (
    END_GRACE_MS,
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
    SlotTable,
)
from services.taskmanager.slots import Settings
from services.taskmanager.spark import SparkServer
from services.taskmanager.stalls import look_for_stall
from services.taskmanager.template import Template

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.ports import Subscription
    from services.common.main import ServiceContext

TICK_MS = 500
#: One round of offering; the slot table offers again later.
OFFER_DEADLINE_S = 10.0
#: What a slot reported before it ended on order is delivered for so long.
FAREWELL_S = 30.0
#: The same when the task manager itself stops.
STOP_FAREWELL_S = 2.0
_SLOT_TIMEOUTS = RestartPolicy(max_restarts=20, within_ms=60_000, first_backoff_ms=100)


class TaskManagerService:
    def __init__(self, context: ServiceContext) -> None:
        config = context.config
        self._context = context
        self._id = context.service_id
        self._table = SlotTable(
            conf.NUM_SLOTS.read(config),
            Settings(
                slot_timeout_ms=conf.TM_SLOT_TIMEOUT_MS.read(config),
                master_timeout_ms=conf.TM_MASTER_TIMEOUT_MS.read(config),
            ),
        )
        self._actor = Actor("slots", self._table, self._perform, context.clock, tick_ms=TICK_MS)
        self._template = Template(SystemSpawner())
        self._data_port = DataPort(self._table, self._process_in)
        self._folders = Folders(conf.TM_TMP_DIR.read(config), self._id)
        self._spark = SparkServer(
            SystemSpawner(),
            self._folders.path / "spark",
            cores=conf.TM_SPARK_CORES.read(config) or min(conf.NUM_SLOTS.read(config), os.cpu_count() or 1),
            memory=conf.TM_SPARK_MEMORY.read(config),
            idle_s=conf.TM_SPARK_IDLE_MS.read(config) / 1000,
        )
        self._processes: dict[int, SlotProcess] = {}
        self._relays: dict[int, Relay] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._heartbeats = Heartbeats(
            context, conf.HEARTBEAT_INTERVAL_MS.read(config), self._table, self._report, self._look_for_stalls
        )
        self._deployments = SharedDeployments(context)
        self._subscription: Subscription | None = None
        self._announcements: Subscription | None = None
        self._stopping = False
        self._host = "127.0.0.1"

    # -- start and stop ---------------------------------------------------------------

    async def start(self) -> Mapping[str, Any]:
        context, config = self._context, self._context.config
        self._data_port.open(
            conf.TM_BIND.read(config), conf.TM_DATA_PORT.read(config), self._folders.socket_path()
        )
        self._host = advertised_host(conf.TM_HOST.read(config), conf.NATS_URL.read(config))
        supervisor = context.supervisor
        supervisor.start("template", self._template.run, _SLOT_TIMEOUTS)
        # The slots' own bookkeeping cannot be made anew while processes run: it escalates.
        supervisor.start("slots", self._actor.run, ESCALATE)
        supervisor.start("data-port", self._data_port.run)
        self._subscription = await serve_typed(
            context.transport, context.subjects.taskmanager_all(self._id), ToTaskManager, self._serve
        )
        self._announcements = await serve_typed(
            context.transport, context.subjects.taskmanagers_all, ToTaskManagers, self._hear
        )
        context.connection_listeners.append(self._connection)
        supervisor.start("heartbeat", self._heartbeats.run)
        return {
            "taskmanager": self._id,
            "slots": len(self._table.slots),
            "data_port": f"{self._host}:{self._data_port.port}",
            "data_socket": self._data_port.unix_path,
            "folder": str(self._folders.path),
        }

    async def stop(self) -> None:
        """Nothing new, say goodbye, end the slots, tell their masters."""
        self._stopping = True
        supervisor = self._context.supervisor
        await supervisor.stop("heartbeat")
        await supervisor.stop("data-port")
        self._data_port.close()
        await self._heartbeats.goodbye(self._id)
        for subscription in (self._announcements, self._subscription):
            if subscription is not None:
                with contextlib.suppress(PenstockError):
                    await subscription.unsubscribe()
        for number, relay in list(self._relays.items()):
            process = self._processes.get(number)
            if process is not None:
                relay.close(self._lost(process, "its task manager was shut down"))
        await asyncio.gather(*(process.end(END_GRACE_MS) for process in list(self._processes.values())))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_FAREWELL_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await supervisor.stop("template")
        await self._spark.stop()
        self._folders.remove()

    def _connection(self, connected: bool) -> None:
        if connected:
            self._spawn(self._actor.tell(OfferAgain()))
            self._heartbeats.changed.set()

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- requests ---------------------------------------------------------------------

    async def _serve(self, message: Any) -> Any:
        if self._stopping:
            return Refused(reason=f"task manager {self._id} is shutting down")
        if isinstance(message, RequestTaskManagerDetails):
            return self._report()
        if isinstance(message, DeploySlot) and message.deploy is None:
            message = await self._deployments.whole(message)
        return await self._actor.ask(message)

    async def _hear(self, message: Any) -> None:
        """What is said to all task managers; nobody answers."""
        if self._stopping:
            return
        match message:
            case AdoptJob(job_id=job_id, epoch=epoch):
                await self._actor.tell(NewMaster(job_id, epoch))
            case JobOver(job_id=job_id, epoch=epoch):
                await self._actor.tell(JobEnded(job_id, epoch))
            case _:
                raise TypeError(f"unknown message {message!r}")

    # -- effects ----------------------------------------------------------------------

    def _perform(self, effect: Any) -> Any:
        self._data_port.notify()
        match effect:
            case Offer():
                return self._offer(effect)
            case Fork():
                return self._fork(effect)
            case Deliver():
                return self._deliver(effect)
            case End(process, grace_ms):
                return self._end(process, grace_ms)
            case ReportLost():
                self._report_lost(effect)
                return None
            case ReportSlots():
                self._heartbeats.changed.set()
                return None
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    async def _offer(self, effect: Offer) -> OfferAnswered:
        context = self._context
        message = OfferSlots(
            command_id=f"{self._id}-{'-'.join(slot.allocation_id for slot in effect.slots)}",
            job_id=effect.job_id,
            taskmanager_id=self._id,
            host=self._host,
            data_port=self._data_port.port,
            unix_path=self._data_port.unix_path,
            slots=effect.slots,
        )
        reply = await request(
            context.transport,
            context.subjects.to_job(effect.job_id, message),
            message,
            OfferReply,
            deadline_s=OFFER_DEADLINE_S,
        )
        return OfferAnswered(effect, frozenset(reply.accepted))

    async def _fork(self, effect: Fork) -> None:
        deploy = effect.deploy
        spark = await self._spark.acquire() if wants_local_spark(deploy) else None
        if spark is not None:
            settings = spark.settings()
            deploy = msgspec.structs.replace(deploy, config={**deploy.config, **settings})
        local_dir, log_path = self._folders.slot(deploy.allocation_id, effect.process)
        started_ms = self._context.clock.monotonic_ms()
        process = None
        try:
            forked = await self._template.fork(deploy.allocation_id, str(local_dir), str(log_path))
            process = SlotProcess(effect.process, deploy, forked, self._template, local_dir, log_path)
            await process.start()
        except BaseException:
            if process is not None:
                process.kill()
                process.close()
            if spark is not None:
                self._spark.release(spark)
            raise
        self._context.log.info(
            "slot started",
            slot=effect.slot_index,
            allocation=deploy.allocation_id,
            job=deploy.job_id,
            attempt=deploy.job_attempt,
            slot_pid=forked.pid,
            ms=round(self._context.clock.monotonic_ms() - started_ms, 1),
        )
        relay = Relay(
            self._context.transport,
            self._context.subjects,
            job_id=deploy.job_id,
            taskmanager_id=self._id,
            allocation_id=deploy.allocation_id,
            on_answer=lambda: self._master_heard(deploy.job_id),
        )
        self._processes[effect.process] = process
        self._relays[effect.process] = relay
        # Before the watch begins: its end must not overtake its start.
        await self._actor.tell(Forked(effect.process, forked.pid))
        watch = self._spawn(self._watch(process, relay))
        if spark is not None:
            watch.add_done_callback(lambda _: self._spark.release(spark))

    def _master_heard(self, job_id: str) -> None:
        # A full mailbox is no harm: the next answer says the same.
        self._actor.try_tell(MasterHeard(job_id))

    async def _watch(self, process: SlotProcess, relay: Relay) -> None:
        """From start to end of a slot process."""
        sending = self._spawn(self._until_over(relay.run, process))
        reading = self._spawn(self._until_over(lambda: self._read(process, relay), process))
        await process.gone()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await reading
        reason = await process.last_words()
        self._context.log.info(
            "slot ended", allocation=process.deploy.allocation_id, slot_pid=process.pid, reason=reason
        )
        if not self._stopping:
            # The slot table says whether its master must be told (ReportLost comes first).
            await self._actor.tell(Ended(process.number, reason))
            await self._actor.ask(RequestTaskManagerDetails())
        relay.close()
        process.close()
        del self._processes[process.number]
        await asyncio.to_thread(self._folders.remove_slot, process.local_dir)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await sending
        del self._relays[process.number]

    async def _until_over(self, work: Callable[[], Awaitable[None]], process: SlotProcess) -> None:
        """A report that cannot be handled must not pass for silence: the slot is ended, which
        its master hears of; the work goes on with what comes after it."""
        while True:
            try:
                return await work()
            except Exception:
                self._context.log.exception(
                    "a slot's report could not be handled; the slot is ended",
                    allocation=process.deploy.allocation_id,
                    slot_pid=process.pid,
                )
                process.kill()

    async def _read(self, process: SlotProcess, relay: Relay) -> None:
        async for report, size in process.reports():
            match report:
                case SlotLog(level=level, text=text):
                    log = self._context.log.error if level == "error" else self._context.log.warning
                    log("slot says", allocation=process.deploy.allocation_id, text=text)
                case SlotReady():
                    pass
                case _:
                    # First: a new master that is told of the task then knows at least this.
                    self._table.reported(process.number, report)
                    await relay.put(report, size)

    async def _look_for_stalls(self) -> None:
        for process in list(self._processes.values()):
            # No longer there: its end is being told.
            if (relay := self._relays.get(process.number)) is not None:
                await look_for_stall(process, relay, self._context.log)

    async def _deliver(self, effect: Deliver) -> Delivered:
        process = self._processes.get(effect.process)
        if process is None:
            return Delivered(effect.token, "the slot's process is gone")
        try:
            await process.send(effect.command)
        except PenstockError as err:
            return Delivered(effect.token, err.message)
        return Delivered(effect.token)

    async def _end(self, number: int, grace_ms: int) -> None:
        process = self._processes.get(number)
        if process is not None:
            await process.end(grace_ms)

    def _report_lost(self, effect: ReportLost) -> None:
        relay, process = self._relays.get(effect.process), self._processes.get(effect.process)
        if relay is not None and process is not None:
            relay.close(self._lost(process, effect.reason))

    def _lost(self, process: SlotProcess, reason: str) -> SlotLost:
        return SlotLost(
            command_id=f"{self._id}-lost-{process.number}",
            job_id=process.deploy.job_id,
            taskmanager_id=self._id,
            allocation_id=process.deploy.allocation_id,
            reason=reason,
            exit_code=process.exit_code,
        )

    def _process_in(self, allocation_id: str) -> SlotProcess | None:
        slot = self._table.of_allocation(allocation_id)
        return None if slot is None else self._processes.get(slot.process)

    # -- the resource manager ---------------------------------------------------------

    def _report(self) -> RegisterTaskManager:
        slots = []
        for status in self._table.report():
            process = None if status.allocation_id is None else self._process_in(status.allocation_id)
            details = {}
            if process is not None:
                details = {**process.usage(), "silent_ms": process.silent_ms()}
            slots.append(
                SlotStatus(
                    index=status.index,
                    state=status.state,
                    job_id=status.job_id,
                    allocation_id=status.allocation_id,
                    pid=status.pid,
                    details=details,
                )
            )
        return RegisterTaskManager(
            taskmanager_id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            data_host=self._host,
            data_port=self._data_port.port,
            unix_path=self._data_port.unix_path,
            slots=tuple(slots),
            details={
                "template_pid": self._template.pid,
                "spark_pid": self._spark.pid,
                "spark_rss_bytes": self._spark.rss_bytes(),
                "folder": str(self._folders.path),
                "cpu_cores": os.cpu_count(),
                "memory_bytes": memory_bytes(conf.TM_MEMORY.read(self._context.config)),
            },
        )


def advertised_host(configured: str, nats_url: str) -> str:
    """``taskmanager.host``; ``auto`` = the address from which this host reaches the broker."""
    if configured != "auto":
        return configured
    first = urlsplit(nats_url.split(",")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((first.hostname or "127.0.0.1", first.port or 4222))  # sends nothing
        return str(sock.getsockname()[0])


def wants_local_spark(deploy: Deploy) -> bool:
    """Whether the slot works with this task manager's own Spark."""
    config = {**deploy.job_graph.config, **deploy.config}
    elsewhere = conf.SPARK_MASTER.read(config) or conf.SPARK_REMOTE.read(config)
    return not elsewhere and runs_on_spark(deploy.job_graph)


def memory_bytes(configured: int) -> int:
    return configured or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
