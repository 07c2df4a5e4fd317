"""Which processes exist: each answers when asked.

``<cluster>.processes.who`` asks all of them; the answers go to ``<cluster>.processes.here``. The list is for
people; no decision depends on it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import BrokerError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bus import Subjects
    from penstock.ports import Transport

#: A process known from before that does not answer is not waited for longer than this.
GATHER_S = 0.3


#: More processes than a cluster has: whoever answers with ever new names fills no memory.
MAX_PROCESSES = 10_000

_log = EventLog("penstock.presence")


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the cluster."""

    role: str
    id: str
    pid: int
    host: str
    details: dict[str, Any] = {}


def _who(subjects: Subjects) -> str:
    return f"{subjects.cluster}.processes.who"


def _here(subjects: Subjects) -> str:
    return f"{subjects.cluster}.processes.here"


async def announce(
    transport: Transport,
    subjects: Subjects,
    role: str,
    service_id: str,
    details: Callable[[], dict[str, Any]] = dict,
) -> None:
    """From now on this process answers every question."""
    host, pid = socket.gethostname(), os.getpid()

    async def answer(_: str, __: bytes) -> None:
        process = Process(role=role, id=service_id, pid=pid, host=host, details=details())
        await transport.publish(_here(subjects), msgspec.json.encode(process))

    await transport.serve(_who(subjects), answer)


class Census:
    """Asks which processes exist, and collects the answers."""

    def __init__(self, transport: Transport, subjects: Subjects) -> None:
        self._transport = transport
        self._subjects = subjects
        self._known: set[str] = set()
        self._found: dict[str, Process] = {}
        self._arrived = asyncio.Event()

    async def start(self) -> None:
        """Subscribes to the answers."""
        await self._transport.serve(_here(self._subjects), self._take)

    async def _take(self, _: str, data: bytes) -> None:
        try:
            process = msgspec.json.decode(data, type=Process)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            _log.warning("process_not_read", error=str(err), got=repr(data[:200]))
            return
        if process.id not in self._found and len(self._found) >= MAX_PROCESSES:
            return
        self._found[process.id] = process
        self._arrived.set()

    async def take(self, sleep: Callable[[float], Awaitable[None]]) -> list[Process]:
        """The processes, sorted by role and id. Waits until all that answered the last time have answered, at
        most ``GATHER_S`` seconds; empty while the bus is not connected."""
        self._found.clear()
        try:
            await self._transport.publish(_who(self._subjects), b"")
        except BrokerError:
            return []
        late = asyncio.ensure_future(sleep(GATHER_S))
        try:
            while not late.done() and not (self._known and self._known <= set(self._found)):
                self._arrived.clear()
                arrived = asyncio.ensure_future(self._arrived.wait())
                await asyncio.wait([late, arrived], return_when=asyncio.FIRST_COMPLETED)
                arrived.cancel()
        finally:
            late.cancel()
        self._known = set(self._found)
        return sorted(self._found.values(), key=lambda p: (p.role, p.id))
