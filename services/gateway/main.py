"""The process of the SQL gateway. It needs a dispatcher's REST address, and nothing else of the cluster."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from penstock import config as conf
from penstock import secrets
from penstock.api.execution import CLUSTER_VARIABLE, defaults_of
from penstock.jobgraph.graph import prepare_types
from penstock_services.common.alone import run_alone
from penstock_services.common.http_serving import bind, serving, shown_url
from penstock_services.common.security.front_door import front_door
from penstock_services.gateway.app import Gateway
from penstock_services.gateway.sessions import Sessions, session_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import structlog


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; the exit code. ``argv``: ``--config FILE``, ``-D key=value``."""
    return run_alone("gateway", "the SQL gateway", argv, _serve)


async def _serve(
    config: Mapping[str, str], log: structlog.stdlib.BoundLogger, stopping: asyncio.Event
) -> None:
    address = conf.REST_ADDRESS.read(config) or os.environ.get(CLUSTER_VARIABLE) or dispatcher_of(config)
    os.environ[CLUSTER_VARIABLE] = address
    # Statements are planned in this process.
    os.environ.setdefault(secrets.ALLOWED_VARIABLE, conf.SECRETS_ALLOWED.read(config))
    host, port = conf.GATEWAY_BIND.read(config), conf.GATEWAY_PORT.read(config)
    door = front_door(config, host, conf.GATEWAY_BIND.key)
    listener = bind(host, port, conf.GATEWAY_BIND.key, conf.GATEWAY_PORT.key)
    sessions = Sessions(
        session_options(config),
        idle_s=conf.GATEWAY_IDLE_MS.read(config) / 1000,
        most=conf.GATEWAY_SESSIONS.read(config),
        statements=conf.GATEWAY_THREADS.read(config),
        defaults=lambda: defaults_of(address),
    )
    prepare_types()  # sessions work in threads
    app = Gateway(sessions, conf.MAX_SQL_CHARS.read(config)).app(door)
    rest = shown_url(host, listener, door.tls)
    checking = asyncio.create_task(_expire(sessions, conf.GATEWAY_CHECK_MS.read(config) / 1000))
    async with serving(app, listener, stopping, door.tls):
        log.info("gateway_ready", rest=rest, cluster=address)
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    await asyncio.to_thread(sessions.close_all)
    log.info("gateway_stopped")


def dispatcher_of(config: Mapping[str, str]) -> str:
    """The dispatcher of this machine, which has the same configuration."""
    scheme = "https" if conf.SSL_REST_CERTIFICATE.read(config) else "http"
    return f"{scheme}://127.0.0.1:{conf.REST_PORT.read(config)}"


async def _expire(sessions: Sessions, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await asyncio.to_thread(sessions.expire)
