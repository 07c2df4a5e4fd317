"""The process of the SQL gateway. It needs a dispatcher's REST address, and nothing else of the cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from typing import TYPE_CHECKING

from penstock import config as conf
from penstock import secrets
from penstock.api.execution import CLUSTER_VARIABLE
from penstock.errors import PenstockError
from penstock_services.common import configuration, logs
from penstock_services.common.http_serving import LOOPBACK, bind, http_server, shown_host
from penstock_services.gateway.app import Gateway
from penstock_services.gateway.sessions import Sessions, session_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import structlog


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; the exit code. ``argv``: ``--config FILE``, ``-D key=value``."""
    try:
        config = configuration.parse_arguments("gateway", argv)
        secrets.announce(config)
        log = logs.configure("gateway", f"gateway-{uuid.uuid4().hex[:8]}")
        return asyncio.run(_serve(config, log))
    except PenstockError as err:
        sys.stderr.write(f"the SQL gateway cannot run\n{err}\n")
        return 1


async def _serve(config: Mapping[str, str], log: structlog.stdlib.BoundLogger) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    address = conf.REST_ADDRESS.read(config) or os.environ.get(CLUSTER_VARIABLE) or _dispatcher(config)
    os.environ[CLUSTER_VARIABLE] = address
    host, port = conf.GATEWAY_BIND.read(config), conf.GATEWAY_PORT.read(config)
    listener = bind(host, port, conf.GATEWAY_BIND.key, conf.GATEWAY_PORT.key)
    sessions = Sessions(
        session_options(config),
        idle_s=conf.GATEWAY_IDLE_MS.read(config) / 1000,
        most=conf.GATEWAY_SESSIONS.read(config),
        statements=conf.GATEWAY_THREADS.read(config),
    )
    server = http_server(Gateway(sessions).app(hosts=LOOPBACK if host in LOOPBACK else None))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    checking = asyncio.create_task(_expire(sessions, conf.GATEWAY_CHECK_MS.read(config) / 1000))
    rest = f"http://{shown_host(host)}:{listener.getsockname()[1]}"
    log.info("gateway_ready", rest=rest, cluster=address)
    await asyncio.wait({serving, asyncio.create_task(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED)
    checking.cancel()
    server.should_exit = True
    await asyncio.gather(serving, checking, return_exceptions=True)
    await asyncio.to_thread(sessions.close_all)
    log.info("gateway_stopped")
    return 0


def _dispatcher(config: Mapping[str, str]) -> str:
    return f"http://127.0.0.1:{conf.REST_PORT.read(config)}"


async def _expire(sessions: Sessions, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(sessions.expire)
