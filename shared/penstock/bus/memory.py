"""A transport within one process: it stands for NATS in tests and in the simulation.

It keeps the guarantees of ``penstock.ports.Transport``: messages of one publisher reach one subscription
in order, and no handler runs before ``publish`` has yielded to the event loop. The simulation overrides
``MemoryBus.deliver`` to drop, delay, repeat or reorder messages.
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

#: Handlers of one subscription that may run at once. Further messages are dropped, as on NATS.
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
    """The subscriptions that all transports of one process, or of one simulated network, share."""

    def __init__(self) -> None:
        self.subscriptions: list[_Subscription] = []
        self._turn = itertools.count()

    def deliver(self, subject: str, data: bytes, reply: asyncio.Future[bytes] | None) -> int:
        """Passes a message to every subscription without a queue and to one of each queue group in turn.

        ``reply`` receives the first answer; None for a publication. Returns the number of subscriptions
        reached.
        """
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
        """A new participant of this bus."""
        return MemoryTransport(self)


class MemoryTransport:
    """One participant of a ``MemoryBus``; it implements ``penstock.ports.Transport``.

    ``connected = False`` disconnects it: its calls raise BrokerError, and its handlers do not answer.
    """

    def __init__(self, bus: MemoryBus | None = None) -> None:
        self.bus = bus or MemoryBus()
        self.connected = True
        self._own: list[_Subscription] = []

    def _check(self, subject: str) -> None:
        if not self.connected:
            raise BrokerError("not connected to the in-memory bus", where=subject)

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        """See ``Transport.request``. Raises NobodyServesError, a BrokerError, if the subject has no
        subscriber."""
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
        """See ``Transport.publish``."""
        self._check(subject)
        self.bus.deliver(subject, data, None)

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> _Subscription:
        """See ``Transport.serve``."""

        async def guarded(on: str, data: bytes) -> bytes | None:
            if not self.connected:
                await asyncio.Event().wait()  # disconnected: the requester gets no answer
            return await handler(on, data)

        sub = _Subscription(self.bus, subject, guarded, queue)
        self.bus.subscriptions.append(sub)
        self._own.append(sub)
        return sub

    async def close(self) -> None:
        """Ends the subscriptions, cancels handlers that still run, and disconnects."""
        for sub in self._own:
            await sub.unsubscribe()
            for task in list(sub.tasks):
                task.cancel()
        self._own.clear()
        self.connected = False


if TYPE_CHECKING:
    _port: type[Transport] = MemoryTransport
