"""Whether the service on this host still answers, for the health checks of containers::

    python -m penstock_services.common.alive taskmanager

Exit code 0 if a process of that role, on this host, answers on the bus: its event loop runs and its
connection is open. The configuration is that of the service itself.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING

from penstock import config as conf
from penstock import internal_tls
from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects
from penstock.errors import ExternalError, PenstockError
from penstock_services.common import configuration
from penstock_services.common.presence import Census

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 3.0


async def check(
    role: str,
    url: str,
    cluster: str,
    host: str,
    timeout_s: float = TIMEOUT_S,
    config: Mapping[str, str] | None = None,
) -> str:
    """The id of the process of this role on ``host`` that answers. Raises ExternalError if none does within
    ``timeout_s``."""
    transport = await NatsTransport.connect(
        url, name=f"{cluster}-alive", role=role, deadline_s=timeout_s, config=config
    )
    try:
        census = Census(transport, Subjects(cluster))
        await census.start()
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            for process in await census.take(asyncio.sleep):
                if process.role == role and process.host == host:
                    return process.id
    finally:
        await transport.close()
    raise ExternalError(
        f"no {role} on {host} answers on the bus",
        expected=f"an answer within {timeout_s:g} s",
        where=url,
        remedy="see the log of the service",
    )


def main(argv: list[str]) -> int:
    """The exit code: 0 if the service answers, 1 if not, 2 for wrong arguments."""
    if not argv:
        sys.stderr.write(
            "usage: python -m penstock_services.common.alive ROLE [--config FILE] [-D KEY=VALUE]\n"
        )
        return 2
    role = argv[0]
    try:
        config = configuration.parse_arguments(role, argv[1:])
        internal_tls.announce(config)
        url, cluster = conf.NATS_URL.read(config), conf.CLUSTER_ID.read(config)
        found = asyncio.run(check(role, url, cluster, socket.gethostname(), config=config))
    except PenstockError as err:
        sys.stderr.write(f"{err}\n")
        return 1
    sys.stdout.write(f"ok: {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
