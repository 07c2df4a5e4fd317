"""How a process serves HTTP: the listening socket, and a server whose connections have time limits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from penstock.errors import ExternalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import uvicorn
    from starlette.types import ASGIApp

    from penstock_services.common.security.tls import ServerTls

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: Seconds in which requests that run may finish when the server stops.
STOP_S = 3


def server_config(app: ASGIApp, tls: ServerTls | None = None) -> uvicorn.Config:
    """How ``app`` is served. ``tls``: None: without."""
    import uvicorn

    from penstock_services.common.connections import TimedConnection

    return uvicorn.Config(
        app,
        http=TimedConnection,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
        server_header=False,
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )


def http_server(app: ASGIApp, tls: ServerTls | None = None) -> Any:
    """A server of ``app``, to be run with ``serve``. Set its ``on_started`` to learn when it listens."""
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

    return Server(server_config(app, tls))


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, stopping: asyncio.Event, tls: ServerTls | None = None
) -> AsyncIterator[None]:
    """Serves ``app`` on the listening socket. The block runs once at the start; its end waits for ``stopping``,
    or for the server's end, and stops the server."""
    server = http_server(app, tls)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    waiting = asyncio.create_task(stopping.wait())
    try:
        yield
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)


def shown_url(host: str, listener: socket.socket, tls: ServerTls | None) -> str:
    """The URL at which a server that listens on ``host`` is reached from this machine."""
    scheme = "http" if tls is None else "https"
    return f"{scheme}://{shown_host(host)}:{listener.getsockname()[1]}"


def shown_host(host: str) -> str:
    """The host of a URL at which a server that listens on ``host`` is reached from this machine."""
    return f"[{host}]" if ":" in host else ("127.0.0.1" if host in ("0.0.0.0", "") else host)


def bind(host: str, port: int, host_key: str, port_key: str) -> socket.socket:
    """A listening socket.

    Raises:
        ExternalError: The port is taken; it names the configuration keys ``host_key`` and ``port_key``.
    """
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
            where=f"{port_key}, {host_key}",
            remedy=f"stop what uses the port, or choose another: -D {port_key}=0 takes any",
        ) from err
    listener.setblocking(False)
    return listener
