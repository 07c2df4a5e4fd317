"""The dispatcher's service: REST, dashboard and bus. It has no state, so any number of them may run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock import config as conf
from penstock.sandbox.probe import check
from penstock.sandbox.settings import sandbox_of_planners
from penstock_services.common.http_serving import bind, http_server, shown_url
from penstock_services.common.kept_lines import KeptLines
from penstock_services.common.presence import Census
from penstock_services.common.security.front_door import front_door
from penstock_services.dispatcher.bus_api import BusApi
from penstock_services.dispatcher.directory import JobDirectory
from penstock_services.dispatcher.event_feed import EventFeed
from penstock_services.dispatcher.packages import Packages
from penstock_services.dispatcher.planning import Planner
from penstock_services.dispatcher.policy import Policy
from penstock_services.dispatcher.rest import Rest
from penstock_services.dispatcher.results import Results
from penstock_services.dispatcher.submission import Submitter

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    import uvicorn

    from penstock_services.common.main import ServiceContext
    from penstock_services.common.security.front_door import FrontDoor


class DispatcherService:
    """A dispatcher process; see ``common.main.Service``."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._server: uvicorn.Server | None = None
        self._rest: Rest | None = None
        self._sandbox = sandbox_of_planners(context.config)
        self._planner = Planner(sandbox=self._sandbox)
        self.own_log = KeptLines()

    async def start(self) -> Mapping[str, Any]:
        """See ``Service.start``. Raises ExternalError if the port cannot be bound, SpecError if the address
        needs authentication and none is configured, ExternalError if this machine does not allow the planners' sandbox."""
        context = self._context
        if self._sandbox is not None:
            await asyncio.to_thread(check, self._sandbox)
        # The port is bound first, so that a taken port is reported before anything else fails.
        host, port = conf.REST_BIND.read(context.config), conf.REST_PORT.read(context.config)
        door = front_door(context.config, host, conf.REST_BIND.key)
        listener = bind(host, port, conf.REST_BIND.key, conf.REST_PORT.key)
        try:
            rest = self._rest = await self._build()
        except BaseException:
            listener.close()
            raise
        await self._serve(rest, listener, door)
        return {"rest": shown_url(host, listener, door.tls)}

    async def _build(self) -> Rest:
        context = self._context
        store = await context.store()
        directory = JobDirectory(context.transport, context.subjects, store, remember=context.clock)
        submitter = Submitter(
            transport=context.transport,
            subjects=context.subjects,
            store=store,
            clock=context.clock,
            planner=self._planner,
            logger=context.log,
            storage_url=conf.STORAGE_URL.read(context.config),
            policy=Policy(context.config),
            defaults=conf.planning_defaults(context.config),
            tracer=context.tracer,
            on_accepted=directory.changed,
        )
        census = Census(context.transport, context.subjects)
        await census.start()
        bus = BusApi(context.transport, context.subjects, submitter, directory, context.clock, context.log)
        await bus.start()
        events = EventFeed(context.transport, context.subjects, directory)
        await events.start()
        return Rest(
            directory=directory,
            submitter=submitter,
            results=Results(store, directory, context.clock),
            census=census,
            clock=context.clock,
            config=context.config,
            cluster=context.subjects.cluster,
            own_log=self.own_log,
            events=events,
            packages=Packages(
                store,
                context.clock,
                most=conf.MAX_PACKAGES.read(context.config),
                kept_ms=conf.PACKAGES_KEPT_MS.read(context.config),
            ),
        )

    async def _serve(self, rest: Rest, listener: socket.socket, door: FrontDoor) -> None:
        server = self._server = http_server(rest.app(door), door.tls)
        started = asyncio.Event()
        server.on_started = started.set
        self._context.supervisor.start("rest", lambda: server.serve(sockets=[listener]))
        await started.wait()

    async def stop(self) -> None:
        """See ``Service.stop``."""
        if self._server is not None:
            self._server.should_exit = True
        await asyncio.sleep(0)
        await self._context.supervisor.stop("rest")
        if self._rest is not None:
            await self._rest.close()
        await self._planner.close()
