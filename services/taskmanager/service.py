"""The shell of the task manager: hands commands to the slot table, carries out its decisions, reports to the
resource manager, and ends its slots when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock import config as conf
from penstock.bus import request, serve_typed
from penstock.errors import PenstockError, SpecError
from penstock.messages.cluster import Refused
from penstock.messages.job_master import OfferReply, OfferSlots
from penstock.messages.resource_manager import RegisterTaskManager, SlotStatus
from penstock.messages.task_manager import (
    AdoptJob,
    DeploySlot,
    JobOver,
    LogFiles,
    RequestLogFiles,
    RequestLogPiece,
    RequestStackSamples,
    RequestTap,
    RequestTaskManagerDetails,
    RequestThreadStacks,
    StackSamples,
    TapRows,
    ThreadStacks,
    ToTaskManager,
    ToTaskManagers,
)
from penstock.sandbox.probe import check
from penstock.sandbox.settings import sandbox_of
from penstock_services.common.actor import ESCALATE, Actor, RestartPolicy
from penstock_services.common.processes import SystemSpawner
from penstock_services.common.stacks import thread_stacks
from penstock_services.taskmanager.data_port import DataPort
from penstock_services.taskmanager.deployments import SharedDeployments
from penstock_services.taskmanager.events import (
    Deliver,
    End,
    Fork,
    JobEnded,
    NewMaster,
    Offer,
    OfferAgain,
    OfferAnswered,
    ReportLost,
    ReportSlots,
)
from penstock_services.taskmanager.folders import Folders
from penstock_services.taskmanager.heartbeats import Heartbeats
from penstock_services.taskmanager.log_files import OWN, log_files, log_piece
from penstock_services.taskmanager.running import RunningSlots
from penstock_services.taskmanager.sandboxed import SandboxedSpawner
from penstock_services.taskmanager.slot_table import SlotTable
from penstock_services.taskmanager.slots import Settings
from penstock_services.taskmanager.spark import SparkServer
from penstock_services.taskmanager.template import OutputBound, Template
from penstock_services.taskmanager.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.messages.taps import Tap
    from penstock.ports import Subscription
    from penstock_services.common.main import ServiceContext

#: How often the slot table gets a tick.
TICK_MS = 500
#: Stacks are sampled for so long at most: nobody waits longer, and a slot takes one request at a time.
MAX_SAMPLING_MS = 60_000
MAX_TAPPED_ROWS = 1_000
#: Seconds of one round of offering; the slot table offers again later.
OFFER_DEADLINE_S = 10.0
_SLOT_TIMEOUTS = RestartPolicy(max_restarts=20, within_ms=60_000, first_backoff_ms=100)


class TaskManagerService:
    """A task manager process; see ``common.main.Service``."""

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
        bound = OutputBound(conf.TM_OUTPUT_SIZE.read(config), conf.TM_OUTPUT_FILES.read(config))
        self._folders = Folders(conf.TM_TMP_DIR.read(config), self._id)
        self._sandbox = sandbox_of(config)
        if self._sandbox is not None and self._sandbox.read_only_root:
            self._sandbox = self._sandbox.at("", str(self._folders.local_state))
        self._template = Template(SystemSpawner(), bound=bound, sandbox=self._sandbox)
        self._spark = SparkServer(
            SandboxedSpawner(self._sandbox, self._folders.path / "spark", self._folders.path / "slots"),
            self._folders.path / "spark",
            cores=conf.TM_SPARK_CORES.read(config) or min(conf.NUM_SLOTS.read(config), os.cpu_count() or 1),
            memory=conf.TM_SPARK_MEMORY.read(config),
            idle_s=conf.TM_SPARK_IDLE_MS.read(config) / 1000,
        )
        self._running = RunningSlots(
            context, self._table, self._actor, self._folders, self._template, self._spark
        )
        self._data_port = DataPort(self._table, self._running.of_allocation)
        self._heartbeats = Heartbeats(
            context,
            conf.HEARTBEAT_INTERVAL_MS.read(config),
            self._table,
            self._report,
            self._running.look_after,
        )
        self._deployments = SharedDeployments(context)
        self._subscription: Subscription | None = None
        self._announcements: Subscription | None = None
        self._host = "127.0.0.1"
        self._usage = Usage(os.getpid())

    @property
    def own_log(self) -> Path:
        """The file that receives the process's own log, beside its standard error."""
        return self._folders.logs / OWN

    # -- start and stop ---------------------------------------------------------------

    async def start(self) -> Mapping[str, Any]:
        """See ``Service.start``. Raises ExternalError if the data port cannot be opened, or if this machine does not allow
        a measure of the sandbox."""
        context, config = self._context, self._context.config
        if self._sandbox is not None:
            await asyncio.to_thread(check, self._sandbox, str(self._folders.path / "slots"))
        self._data_port.open(
            conf.TM_BIND.read(config), conf.TM_DATA_PORT.read(config), self._folders.socket_path()
        )
        self._host = advertised_host(conf.TM_HOST.read(config), conf.NATS_URL.read(config))
        supervisor = context.supervisor
        supervisor.start("template", self._template.run, _SLOT_TIMEOUTS)
        # The slot table's knowledge cannot be rebuilt while processes run, so its failure escalates.
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
        """Takes no new work, reports the end, ends the slots, and tells the masters of their jobs."""
        self._running.stopping = True
        supervisor = self._context.supervisor
        await supervisor.stop("heartbeat")
        await supervisor.stop("data-port")
        self._data_port.close()
        await self._heartbeats.goodbye(self._id)
        for subscription in (self._announcements, self._subscription):
            if subscription is not None:
                with contextlib.suppress(PenstockError):
                    await subscription.unsubscribe()
        await self._running.stop()
        await supervisor.stop("template")
        await self._spark.stop()
        self._folders.remove()

    def _connection(self, connected: bool) -> None:
        if connected:
            self._running.spawn(self._actor.tell(OfferAgain()))
            self._heartbeats.changed.set()

    # -- requests ---------------------------------------------------------------------

    async def _serve(self, message: Any) -> Any:
        if self._running.stopping:
            return Refused(reason=f"task manager {self._id} is shutting down")
        if isinstance(message, RequestTaskManagerDetails):
            return self._report()
        if isinstance(message, RequestLogFiles):
            return LogFiles(files=tuple(await asyncio.to_thread(log_files, self._folders.logs)))
        if isinstance(message, RequestThreadStacks):
            return ThreadStacks(stacks=thread_stacks())
        if isinstance(message, RequestStackSamples):
            asked = (message.job_id, message.samples, message.interval_ms)
            if not (message.samples > 0 and 0 < message.interval_ms <= MAX_SAMPLING_MS // message.samples):
                raise SpecError(
                    "not a number of samples that can be taken",
                    expected=f"samples that take at most {MAX_SAMPLING_MS} ms",
                    got=f"{message.samples} samples, {message.interval_ms} ms apart"[:120],
                )
            return StackSamples(slots=await self._running.samples(*asked))
        if isinstance(message, RequestTap):
            bounded(message.tap)
            return TapRows(slots=await self._running.tapped(message))
        if isinstance(message, RequestLogPiece):
            return await asyncio.to_thread(
                log_piece, self._folders.logs, message.name, message.offset, message.limit
            )
        if isinstance(message, DeploySlot) and message.deploy is None:
            message = await self._deployments.whole(message)
        return await self._actor.ask(message)

    async def _hear(self, message: Any) -> None:
        """Handles messages to all task managers. They are not answered."""
        if self._running.stopping:
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
                return self._running.fork(effect)
            case Deliver():
                return self._running.deliver(effect)
            case End(process, grace_ms):
                return self._running.end(process, grace_ms)
            case ReportLost():
                self._running.report_lost(effect)
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

    # -- the resource manager ---------------------------------------------------------

    def _report(self) -> RegisterTaskManager:
        slots = []
        for status in self._table.report():
            allocation_id = status.allocation_id
            process = None if allocation_id is None else self._running.of_allocation(allocation_id)
            details = {}
            if process is not None:
                details = {**process.usage(), "silent_ms": process.silent_ms()}
            slots.append(
                SlotStatus(
                    index=status.index,
                    state=status.state,
                    job_id=status.job_id,
                    allocation_id=allocation_id,
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
                **self._usage.read(),
                "template_pid": self._template.pid,
                "spark_pid": self._spark.pid,
                "spark_rss_bytes": self._spark.rss_bytes(),
                "folder": str(self._folders.path),
                "cpu_cores": os.cpu_count(),
                "memory_bytes": memory_bytes(),
            },
        )


def bounded(tap: Tap) -> None:
    """Raises SpecError for a tap that no dispatcher asks for."""
    if not (0 < tap.rows <= MAX_TAPPED_ROWS and 0 <= tap.lease_ms <= MAX_SAMPLING_MS):
        raise SpecError(
            "not a tap that can be made",
            expected=f"1 to {MAX_TAPPED_ROWS} rows, for at most {MAX_SAMPLING_MS} ms",
            got=f"{tap.rows} rows, {tap.lease_ms} ms"[:120],
        )


def advertised_host(configured: str, nats_url: str) -> str:
    """``configured``, the value of ``taskmanager.host``. ``auto``: the address from which this host reaches
    the broker."""
    if configured != "auto":
        return configured
    first = urlsplit(nats_url.split(",")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((first.hostname or "127.0.0.1", first.port or 4222))  # sends nothing
        return str(sock.getsockname()[0])


def memory_bytes() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
