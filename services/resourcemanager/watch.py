"""A connection to each task manager's data port, open while it lives.

When the task manager's process dies, the kernel closes the connection at once: long before a heartbeat is
missed.
"""

from __future__ import annotations

import asyncio
import contextlib

from penstock.log_events import EventLog
from penstock.messages.preface import WATCH

_log = EventLog("penstock.resourcemanager.watch")

#: How long opening the connection may take.
CONNECT_S = 2.0


async def until_closed(host: str, port: int) -> bool:
    """Opens a connection, and returns True when the other side has closed it. Returns False if it could not
    be opened: the data port cannot be reached from here, which proves nothing."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as err:
        _log.debug("taskmanager_watch_failed", host=host, port=port, error=err)
        return False
    try:
        writer.write(WATCH)
        await reader.read(1)
    except OSError:
        pass  # a reset connection has ended, too
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return True
