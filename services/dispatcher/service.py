"""The dispatcher's service: REST, dashboard and bus. It has no state, so any number of them may run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from penstock import config as conf
from penstock.errors import ExternalError
from penstock_services.common.kept_lines import KeptLines
from penstock_services.common.presence import Census
from penstock_services.dispatcher.bus_api import BusApi
from penstock_services.dispatcher.directory import JobDirectory
from penstock_services.dispatcher.planning import Planner
from penstock_services.dispatcher.rest import Rest
from penstock_services.dispatcher.results import Results
from penstock_services.dispatcher.submission import Submitter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import uvicorn

    from penstock_services.common.main import ServiceContext

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
STOP_S = 3


class DispatcherService:
    """A dispatcher process; see ``common.main.Service``."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._server: uvicorn.Server | None = None
        self.own_log = KeptLines()

    async def start(self) -> Mapping[str, Any]:
        """See ``Service.start``. Raises ExternalError if the port cannot be bound."""
        context = self._context
        # The port is bound first, so that a taken port is reported before anything else fails.
        host, port = conf.REST_BIND.read(context.config), conf.REST_PORT.read(context.config)
        listener = bind(host, port)
        try:
            rest = await self._build()
        except BaseException:
            listener.close()
            raise
        hosts = LOOPBACK if host in LOOPBACK else None
        await self._serve(rest, listener, hosts)
        address = listener.getsockname()
        return {"rest": f"http://{_shown(host)}:{address[1]}"}

    async def _build(self) -> Rest:
        context = self._context
        store = await context.store()
        directory = JobDirectory(context.transport, context.subjects, store)
        submitter = Submitter(
            transport=context.transport,
            subjects=context.subjects,
            store=store,
            clock=context.clock,
            planner=Planner(),
            logger=context.log,
            storage_url=conf.STORAGE_URL.read(context.config),
        )
        census = Census(context.transport, context.subjects)
        await census.start()
        bus = BusApi(context.transport, context.subjects, submitter, directory, context.clock, context.log)
        await bus.start()
        return Rest(
            directory=directory,
            submitter=submitter,
            results=Results(store, directory, context.clock),
            census=census,
            clock=context.clock,
            config=context.config,
            cluster=context.subjects.cluster,
            own_log=self.own_log,
        )

    async def _serve(self, rest: Rest, listener: socket.socket, hosts: frozenset[str] | None) -> None:
        server = self._server = _make_server(config_of(rest, hosts))
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


def config_of(rest: Rest, hosts: frozenset[str] | None) -> uvicorn.Config:
    """The configuration of the HTTP server. ``hosts``: the host names under which it may be called; None:
    any."""
    import uvicorn

    from penstock_services.dispatcher.connections import TimedConnection

    return uvicorn.Config(
        rest.app(hosts=hosts),
        http=TimedConnection,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
        server_header=False,
    )


def _make_server(config: uvicorn.Config) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """The HTTP server. Signals belong to the service; it announces when it listens."""

        on_started: Any = staticmethod(lambda: None)

        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.on_started()

    return Server(config)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else ("127.0.0.1" if host in ("0.0.0.0", "") else host)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ExternalError, which names the keys to change, if the address cannot be
    bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as err:
        listener.close()
        raise ExternalError(
            f"cannot listen on {host}:{port}: {err.strerror}",
            expected="a free port",
            where=f"{conf.REST_PORT.key}, {conf.REST_BIND.key}",
            remedy=f"stop what uses the port, or choose another: -D {conf.REST_PORT.key}=0 takes any",
        ) from err
    listener.setblocking(False)
    return listener
