"""A bus within one process: the double of NATS for tests and the simulation.

Guarantees as the port states them: order from one publisher to one subscription, and
nothing is delivered before ``publish`` gave up the loop once. ``MemoryBus.deliver`` may be
replaced to drop, delay, repeat or reorder.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.bus.envelope import NobodyServesError
from penstock.bus.subjects import matches
from penstock.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Transport

    Handler = Callable[[str, bytes], Awaitable[bytes | None]]

#: A subscription that does not keep up loses messages, as on NATS.
MAX_PENDING = 4096


@dataclass(eq=False)
class _Subscription:
    bus: MemoryBus
    pattern: str
    handler: Handler
    queue: str | None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def take(self, subject: str, data: bytes, reply: asyncio.Future[bytes] | None) -> None:
        if len(self.tasks) >= MAX_PENDING:
            return
        task = asyncio.get_running_loop().create_task(self._run(subject, data, reply))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, subject: str, data: bytes, reply: asyncio.Future[bytes] | None) -> None:
        answer = await self.handler(subject, data)
        if answer is not None and reply is not None and not reply.done():
            reply.set_result(answer)

    async def unsubscribe(self) -> None:
        self.bus.subscriptions = [s for s in self.bus.subscriptions if s is not self]


class MemoryBus:
    """What the transports of one process (or one simulated network) share."""

    def __init__(self) -> None:
        self.subscriptions: list[_Subscription] = []
        self._turn = itertools.count()

    def deliver(self, subject: str, data: bytes, reply: asyncio.Future[bytes] | None) -> int:
        """To every plain subscriber and one of each queue group; returns how many."""
        found = [s for s in self.subscriptions if matches(s.pattern, subject)]
        groups: dict[str, list[_Subscription]] = {}
        taken = [s for s in found if s.queue is None]
        for sub in found:
            if sub.queue is not None:
                groups.setdefault(sub.queue, []).append(sub)
        taken += [members[next(self._turn) % len(members)] for members in groups.values()]
        for sub in taken:
            sub.take(subject, data, reply)
        return len(taken)

    def transport(self) -> MemoryTransport:
        return MemoryTransport(self)


class MemoryTransport:
    """One participant. ``connected = False`` cuts it off, both ways."""

    def __init__(self, bus: MemoryBus | None = None) -> None:
        self.bus = bus or MemoryBus()
        self.connected = True
        self._own: list[_Subscription] = []

    def _check(self, subject: str) -> None:
        if not self.connected:
            raise BrokerError("not connected to the in-memory bus", where=subject)

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        self._check(subject)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.bus.deliver(subject, data, reply):
            raise NobodyServesError(f"nobody serves the subject {subject}", where=subject)
        try:
            async with asyncio.timeout(timeout_s):
                return await reply
        except TimeoutError:
            raise BrokerError(f"no answer within {timeout_s:g} s", where=subject) from None

    async def publish(self, subject: str, data: bytes) -> None:
        self._check(subject)
        self.bus.deliver(subject, data, None)

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> _Subscription:
        async def guarded(on: str, data: bytes) -> bytes | None:
            if not self.connected:
                await asyncio.Event().wait()  # cut off: never answered
            return await handler(on, data)

        sub = _Subscription(self.bus, subject, guarded, queue)
        self.bus.subscriptions.append(sub)
        self._own.append(sub)
        return sub

    async def close(self) -> None:
        for sub in self._own:
            await sub.unsubscribe()
            for task in list(sub.tasks):
                task.cancel()
        self._own.clear()
        self.connected = False


if TYPE_CHECKING:
    _port: type[Transport] = MemoryTransport
