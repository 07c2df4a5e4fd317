"""A dispatcher on a memory bus and store, with job managers of the real code beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
import structlog
import uvicorn

from penstock.bus import MemoryBus, Subjects, serve_typed
from penstock.errors import REST_ERROR_TYPE
from penstock.messages import cluster as msg
from penstock.messages.resource_manager import SlotStatus, TaskManagerDetails
from penstock.messages.task_manager import (
    LogFile,
    LogFiles,
    LogPiece,
    RequestLogFiles,
    RequestThreadStacks,
    ThreadStacks,
)
from penstock.store import MemoryStore
from penstock_services.common.clock import SystemClock
from penstock_services.common.http_serving import bind
from penstock_services.common.kept_lines import KeptLines
from penstock_services.common.presence import Census, announce
from penstock_services.dispatcher.bus_api import BusApi
from penstock_services.dispatcher.directory import JobDirectory
from penstock_services.dispatcher.event_feed import EventFeed
from penstock_services.dispatcher.packages import Packages
from penstock_services.dispatcher.planning import Planner
from penstock_services.dispatcher.rest import Rest, described
from penstock_services.dispatcher.results import Results
from penstock_services.dispatcher.submission import Submitter
from tests.services.jobmanager.graphs import pipeline


def routes() -> list[tuple[str, str]]:
    """(method, path) of the whole REST API."""
    return [(endpoint.method, endpoint.path) for endpoint in described()]


@contextlib.asynccontextmanager
async def serving(config: uvicorn.Config) -> AsyncIterator[tuple[str, int]]:
    """(host, port) of a server in this loop."""
    listener = bind("127.0.0.1", 0, "rest.bind-address", "rest.port")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[:2]
    server.should_exit = True
    await running


@dataclass
class Front:
    """The dispatcher's parts, a client, and what was asked of the others."""

    bus: MemoryBus
    store: MemoryStore
    subjects: Subjects
    http: httpx.AsyncClient
    rest: Rest
    directory: JobDirectory
    submitter: Submitter
    config: dict[str, str]
    ran: list[str] = field(default_factory=list)

    async def submit(self, **spec: Any) -> str:
        body = {"job_graph": msgspec.to_builtins(pipeline()), **spec}
        reply = await self.http.post("/jobs", content=msgspec.json.encode(body))
        assert reply.status_code == 200, reply.text
        return reply.json()["jobid"]

    async def master(self, job_id: str, answer: Any) -> None:
        """``answer(message)`` speaks for the job's master from now on."""

        async def serve(message: Any) -> Any:
            return answer(message)

        await serve_typed(self.bus.transport(), self.subjects.job_all(job_id), msg.ToJobMaster, serve)

    async def task_manager(self, name: str = "tm1", log: bytes = b"event=ready\n") -> None:
        """A task manager that has its own log."""

        async def serve(message: Any) -> Any:
            if isinstance(message, RequestLogFiles):
                return LogFiles(files=(LogFile(name="taskmanager.log", size=len(log), mtime_ms=1),))
            if isinstance(message, RequestThreadStacks):
                return ThreadStacks(stacks={"MainThread (1)": "File ..."})
            return LogPiece(data=log[message.offset :], size=len(log))

        await serve_typed(self.bus.transport(), self.subjects.taskmanager_all(name), msg.ToTaskManager, serve)


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    bus, store, subjects, clock = MemoryBus(), MemoryStore(), Subjects("test"), SystemClock()
    transport, log = bus.transport(), structlog.get_logger()
    directory = JobDirectory(transport, subjects, store)
    submitter = Submitter(
        transport=transport,
        subjects=subjects,
        store=store,
        clock=clock,
        planner=Planner(),
        logger=log,
        storage_url="file:///data",
    )
    census = Census(transport, subjects)
    await census.start()
    await announce(bus.transport(), subjects, "jobmanager", "jm1")
    await BusApi(transport, subjects, submitter, directory, clock, log).start()
    config = {
        "rest.port": "0",
        "storage.options.secret_access_key": "x",
        "security.submission.roots": "/only/here",
    }
    own_log = KeptLines()
    own_log.setFormatter(logging.Formatter("%(message)s"))
    own_log.emit(logging.makeLogRecord({"msg": "event=ready"}))
    events = EventFeed(transport, subjects, directory)
    await events.start()
    rest = Rest(
        directory=directory,
        submitter=submitter,
        results=Results(store, directory, clock),
        census=census,
        clock=clock,
        config=config,
        cluster="test",
        own_log=own_log,
        events=events,
        packages=Packages(store, SystemClock()),
    )
    app = httpx.ASGITransport(rest.app())
    accept = {"accept": REST_ERROR_TYPE}
    async with httpx.AsyncClient(transport=app, base_url="http://dispatcher", headers=accept) as client:
        made = Front(bus, store, subjects, client, rest, directory, submitter, config)

        async def run(message: msg.RunJob) -> msg.Ack:
            made.ran.append(message.job_id)
            return msg.Ack()

        await serve_typed(bus.transport(), subjects.jobmanager_run, msg.RunJob, run)

        async def overview(message: Any) -> msg.ClusterOverview:
            slot = SlotStatus(index=0, state="active", job_id="f" * 32, allocation_id="a1", pid=7)
            manager = TaskManagerDetails(
                id="tm1", host="h", pid=5, data_port=6, last_heartbeat_ms=clock.now_ms(), slots=[slot]
            )
            return msg.ClusterOverview(
                taskmanagers=[manager],
                count=1,
                slots_total=1,
                slots_free=0,
                resourcemanager_id="rm1",
                epoch=1,
            )

        await serve_typed(bus.transport(), subjects.resourcemanager_all, msg.ToResourceManager, overview)
        yield made
