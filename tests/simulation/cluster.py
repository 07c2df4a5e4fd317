"""The real services on a simulated world: who there is, how it is started and started again."""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from penstock.bus import Subjects, request
from penstock.config import RECOVERY_PATH
from penstock.errors import ExternalError, PenstockError
from penstock.jobgraph import JobGraph
from penstock.messages.cluster import JobSpec, SubmitJob, SubmitReply
from penstock.testing.simulation import (
    LeaseServer,
    ObjectServer,
    Process,
    SimBus,
    SimClock,
    SimLeases,
    SimStore,
    World,
)
from penstock_services.common.actor import Supervisor
from penstock_services.common.main import Service, ServiceContext, serve
from penstock_services.dispatcher.directory import JobDirectory
from penstock_services.dispatcher.service import DispatcherService
from penstock_services.jobmanager.service import JobManagerService
from penstock_services.resourcemanager.service import ResourceManagerService
from penstock_services.taskmanager.service import TaskManagerService

CLUSTER = "sim"
#: Shorter than in production, so that a job of some seconds sees many of each.
CONFIG = {
    "cluster.id": CLUSTER,
    "high-availability.lease-duration": "1500 ms",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "3 s",
    "taskmanager.slot.timeout": "4 s",
    "taskmanager.master.timeout": "15 s",
    "taskmanager.numberOfTaskSlots": "2",
}
ROLES: dict[str, Callable[[ServiceContext], Service]] = {
    "dispatcher": lambda context: DispatcherOnBus(context),
    "jobmanager": JobManagerService,
    "resourcemanager": ResourceManagerService,
    "taskmanager": TaskManagerService,
}


class DispatcherOnBus:
    """The dispatcher's bus side; its HTTP server is no part of the simulation."""

    def __init__(self, context: ServiceContext) -> None:
        self._service = DispatcherService(context)

    async def start(self) -> Mapping[str, Any]:
        await self._service._build()
        return {}

    async def stop(self) -> None:
        await self._service.stop()


class Logger:
    """A service's log, in the trace. Errors with a traceback are bugs of ours."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def _write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        told = " ".join(f"{k}={v}" for k, v in fields.items() if k != "exc_info")
        self._process.world.trace(self._process.name, level, f"{event} {told}".strip())

    def debug(self, event: str, /, **fields: Any) -> None:
        return

    def info(self, event: str, /, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        self._write("error", event, fields)
        self._process.world.violated(f"{self._process.name}: {event}\n{traceback.format_exc()}")


class LogRecords(logging.Handler):
    """What modules log, in the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current
        name = process.name if process is not None else "world"
        self._world.trace(name, record.levelname.lower(), record.getMessage())
        # What comes from outside (a child process that was killed) is no bug of ours.
        if record.exc_info and not isinstance(record.exc_info[1], ExternalError):
            text = logging.Formatter().formatException(record.exc_info)
            self._world.violated(f"{name}: {record.getMessage()}\n{text}")


class Context(ServiceContext):
    """On the world's servers."""

    process: Process
    cluster: Cluster

    async def store(self) -> Any:
        return SimStore(self.cluster.objects, self.process)

    def leases(self) -> Any:
        return SimLeases(self.cluster.leases, self.process)


class Cluster:
    """``start(role)`` starts one more; what ends by itself or is killed is started again
    after ``restart_s``, as an orchestrator would, with the same name or on another host."""

    def __init__(self, world: World, config: Mapping[str, str], objects: ObjectServer) -> None:
        self.world = world
        self.config = {**CONFIG, **config}
        self.bus = SimBus(world)
        self.leases = LeaseServer(world)
        self.objects = objects
        self.subjects = Subjects(CLUSTER)
        self.restart_s = (0.2, 2.0)
        self.closing = False
        #: name → the process of that name, dead or alive
        self.services: dict[str, Process] = {}
        #: role → what runs in its process, for what is no service of ours
        self.others: dict[str, Callable[[Process], Coroutine[Any, Any, int | None]]] = {}
        #: names that never come back: another process of that role starts in its place
        self.lost_hosts: set[str] = set()
        self._numbers = itertools.count(11)
        self._stop: dict[str, asyncio.Future[None]] = {}

    def store_of(self, process: Process) -> SimStore:
        return SimStore(self.objects, process)

    def start(self, role: str, name: str) -> Process:
        world = self.world

        async def main(process: Process) -> int | None:
            if role in self.others:
                return await self.others[role](process)
            return await self._serve(role, name, process)

        process = world.spawn(name, main, delay_s=world.random.uniform(0.0, 0.2))
        self.services[name] = process

        def again() -> None:
            if not self.closing:
                world.after(world.random.uniform(*self.restart_s), lambda: self._restart(role, name))

        process.on_exit.append(again)
        return process

    def _restart(self, role: str, name: str) -> None:
        if self.closing:
            return
        if name in self.lost_hosts:
            self.lost_hosts.discard(name)
            del self.services[name]
            name = f"{role}-{next(self._numbers)}"
        self.start(role, name)

    async def _serve(self, role: str, name: str, process: Process) -> int:
        transport = self.bus.transport(process)
        while not self.bus.reaches(process):  # noqa: ASYNC110
            await asyncio.sleep(0.2)  # as the client: it connects when it can
        clock = SimClock(process)
        context = Context(
            role=role,
            service_id=name,
            config=self.config,
            clock=clock,
            transport=transport,
            subjects=self.subjects,
            supervisor=Supervisor(role, clock),
            log=Logger(process),  # type: ignore[arg-type]
            connection_listeners=transport.listeners,
        )
        context.process, context.cluster = process, self
        stop = self._stop[name] = asyncio.get_running_loop().create_future()
        return await serve(context, ROLES[role], stop)

    def terminate(self, name: str) -> None:
        """SIGTERM: an orderly end."""
        process = self.services[name]
        stop = self._stop.get(name)
        if process.alive and stop is not None:
            self.world.trace(name, "terminated")
            process.loop.call_soon(lambda: stop.done() or stop.set_result(None))

    def named(self, role: str) -> list[Process]:
        """Living services of a role (their names begin with it)."""
        return [p for name, p in sorted(self.services.items()) if p.alive and name.startswith(role)]


class Client:
    """A user: a process that submits, asks and stops over the bus."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._transport = cluster.bus.transport(process)
        self._directory = JobDirectory(self._transport, cluster.subjects, cluster.store_of(process))

    async def submit(self, job_id: str, graph: JobGraph, savepoint: str | None) -> None:
        """Until it is accepted; a repeat is the same job."""
        if savepoint is not None:
            config = {**graph.config, RECOVERY_PATH.key: savepoint}
            graph = msgspec.structs.replace(graph, config=config)
        spec = JobSpec(job_id=job_id, job_graph=msgspec.to_builtins(graph))
        message = SubmitJob(command_id=f"submit-{job_id}", spec=spec)
        await self._ask("submit", message, SubmitReply)

    async def status(self, job_id: str) -> dict[str, Any] | None:
        """None when nobody could say."""
        try:
            reply = await self._transport.request(
                self._cluster.subjects.jobs("status"), job_id.encode(), timeout_s=2.0
            )
        except PenstockError:
            return None
        answer = msgspec.json.decode(reply)
        return answer if "status" in answer else None

    async def stop(self, job_id: str, trigger_id: str) -> bool:
        """Ask for a stop with a savepoint; False when nobody took the order."""
        try:
            await self._directory.savepoint(job_id, "stop", None, trigger_id)
        except PenstockError:
            return False
        return True

    async def savepoint_of(self, job_id: str, trigger_id: str) -> str | None:
        """Where the savepoint of that order lies, when there is one."""
        while True:
            try:
                details = await self._directory.details(job_id)
                break
            except PenstockError:
                await asyncio.sleep(0.5)
        done = [c for c in details.checkpoints if c.trigger_id == trigger_id and c.status == "COMPLETED"]
        return done[0].path if done else None

    async def _ask(self, verb: str, message: Any, reply_type: Any) -> Any:
        while True:
            try:
                return await request(
                    self._transport, self._cluster.subjects.jobs(verb), message, reply_type, deadline_s=20.0
                )
            except PenstockError as err:
                if not err.retryable:
                    raise
                await asyncio.sleep(0.5)
