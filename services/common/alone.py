"""A process that serves HTTP beside the cluster: it takes no part in the bus and holds no lease."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock import secrets
from penstock.errors import PenstockError
from penstock_services.common import configuration, logs

if TYPE_CHECKING:
    import structlog

#: Serves until the event is set, with the configuration and the log; its end is the process's.
Serve = Callable[[Mapping[str, str], "structlog.stdlib.BoundLogger", asyncio.Event], Awaitable[None]]


def run_alone(role: str, title: str, argv: Sequence[str], serve: Serve) -> int:
    """Run ``serve`` until SIGTERM or SIGINT; the exit code. ``argv``: ``--config FILE``, ``-D key=value``.
    ``title`` names the process in the error of a start that fails."""
    try:
        config = configuration.parse_arguments(role, argv)
        secrets.announce(config)
        log = logs.configure(role, f"{role}-{uuid.uuid4().hex[:8]}")
        asyncio.run(_until_signalled(config, log, serve))
        return 0
    except PenstockError as err:
        sys.stderr.write(f"{title} cannot run\n{err}\n")
        return 1


async def _until_signalled(
    config: Mapping[str, str], log: structlog.stdlib.BoundLogger, serve: Serve
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await serve(config, log, stopping)
