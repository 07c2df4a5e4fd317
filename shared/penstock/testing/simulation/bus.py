"""The bus between simulated processes, with a broker in the middle, as NATS has.

Messages from one publisher to one subscription keep their order, as the port says; others do not. A message or an answer may be late, lost, or come twice; a process may be cut off
from the broker, with or without being told; the broker may be down. A process that dies
is unsubscribed at once, one that hangs is not.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.bus.envelope import NobodyServesError
from penstock.bus.subjects import matches
from penstock.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Handler, Transport
    from penstock.testing.simulation.world import Process, World


@dataclass
class BusFaults:
    """Probabilities of faults for each hop. ``delay_s``: the delay of one way; a late message is delayed by
    ``late_s``."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    delay_s: tuple[float, float] = (0.0003, 0.002)
    late_s: tuple[float, float] = (0.05, 1.5)


@dataclass(eq=False)
class Subscription:
    bus: SimBus
    transport: SimTransport
    pattern: str
    handler: Handler
    queue: str | None
    #: publisher → the earliest time at which its last message arrives here
    arrives_s: dict[str, float] = field(default_factory=dict)
    active: bool = True

    async def unsubscribe(self) -> None:
        self.transport.check(self.pattern)
        self.active = False
        self.bus.subscriptions = [s for s in self.bus.subscriptions if s is not self]


class SimBus:
    """``cut``: names of processes that do not reach the broker. ``on_exchange(process,
    subject, request, reply)`` is called with every request that a process answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = BusFaults()
        self.down = False
        self.cut: set[str] = set()
        self.subscriptions: list[Subscription] = []
        self.transports: list[SimTransport] = []
        self.on_exchange: list[Callable[[Process, str, bytes, bytes], None]] = []
        self._turns = itertools.count()

    def transport(self, process: Process) -> SimTransport:
        return SimTransport(self, process)

    # -- faults ---------------------------------------------------------------------------

    def set_down(self, down: bool) -> None:
        """Stop or restart the broker; connected processes notice after a while."""
        self.world.trace("bus", "down" if down else "up")
        self.down = down
        for transport in self.transports:
            self._tell(transport, not down)

    def cut_off(self, process: Process, cut: bool) -> None:
        self.world.trace(process.name, "cut off" if cut else "back", "bus")
        (self.cut.add if cut else self.cut.discard)(process.name)

    def _tell(self, transport: SimTransport, connected: bool) -> None:
        process = transport.process

        def tell() -> None:
            if process.alive and transport.connected != connected:
                transport.connected = connected
                for listener in transport.listeners:
                    process.loop.call_soon(listener, connected)

        self.world.after(self.world.random.uniform(0.001, 0.3), tell)

    # -- delivery ---------------------------------------------------------------------------

    def hop_s(self) -> float:
        faults, chance = self.faults, self.world.random
        if faults.late and chance.random() < faults.late:
            return chance.uniform(*faults.late_s)
        return chance.uniform(*faults.delay_s)

    def reaches(self, process: Process) -> bool:
        return not self.down and process.alive and process.name not in self.cut

    def lost(self) -> bool:
        return bool(self.faults.loss) and self.world.random.random() < self.faults.loss

    def receivers(self, subject: str) -> list[Subscription]:
        found = [s for s in self.subscriptions if matches(s.pattern, subject)]
        groups: dict[str, list[Subscription]] = {}
        taken = [s for s in found if s.queue is None]
        for sub in found:
            if sub.queue is not None:
                groups.setdefault(sub.queue, []).append(sub)
        turn = next(self._turns)
        return taken + [members[turn % len(members)] for members in groups.values()]

    def deliver(self, sub: Subscription, sender: Process, subject: str, data: bytes, reply: Any) -> None:
        """Runs at the broker: delivers one copy (sometimes two, or none) to one subscription."""
        world = self.world
        if self.lost():
            world.trace(sub.transport.process.name, "lost", subject)
            return
        at = max(world.now_s + self.hop_s(), sub.arrives_s.get(sender.name, 0.0))
        sub.arrives_s[sender.name] = at
        twice = self.faults.repeat and world.random.random() < self.faults.repeat
        for when in (at, at + self.hop_s()) if twice else (at,):
            world.at(when, lambda: self._arrive(sub, subject, data, reply))

    def _arrive(self, sub: Subscription, subject: str, data: bytes, reply: Any) -> None:
        process = sub.transport.process
        if sub.active and self.reaches(process):
            self.world.trace(process.name, "receives", f"{subject} {len(data)} {zlib.crc32(data):08x}")
            process.loop.call_soon(sub.transport.take, sub, subject, data, reply)


class SimTransport:
    """The bus as one process uses it."""

    def __init__(self, bus: SimBus, process: Process) -> None:
        self.bus = bus
        self.process = process
        self.connected = True
        self.listeners: list[Callable[[bool], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        bus.transports.append(self)
        process.on_exit.append(self._gone)

    def _gone(self) -> None:
        self.bus.subscriptions = [s for s in self.bus.subscriptions if s.transport is not self]
        self.bus.transports.remove(self)

    def check(self, subject: str) -> None:
        if not self.connected:
            raise BrokerError("not connected to the simulated bus", where=subject)

    async def publish(self, subject: str, data: bytes) -> None:
        self.check(subject)
        self._send(subject, data, None, None)

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        self.check(subject)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        loop = self.process.loop

        def reply(result: bytes | BaseException) -> None:
            """Runs at the requesting process: only the first answer counts."""
            if not answer.done():
                if isinstance(result, bytes):
                    answer.set_result(result)
                else:
                    answer.set_exception(result)

        def replied(result: bytes | BaseException) -> None:
            """Runs at the broker: passes the answer on to the requesting process."""
            if not self.bus.lost():
                self.bus.world.after(
                    self.bus.hop_s(),
                    lambda: self.bus.reaches(self.process) and loop.call_soon(reply, result),
                )

        self._send(subject, data, replied, self._nobody(subject, replied))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise BrokerError(f"no answer within {timeout_s:g} s", where=subject) from None

    def _nobody(self, subject: str, replied: Callable[[BaseException], None]) -> Callable[[], None]:
        return lambda: replied(NobodyServesError(f"nobody serves the subject {subject}", where=subject))

    def _send(self, subject: str, data: bytes, reply: Any, nobody: Callable[[], None] | None) -> None:
        bus = self.bus

        def at_broker() -> None:
            if not bus.reaches(self.process) and self.process.alive:
                return
            found = bus.receivers(subject)
            if not found and nobody is not None:
                nobody()
            for sub in found:
                bus.deliver(sub, self.process, subject, data, reply)

        if bus.reaches(self.process) and not bus.lost():
            bus.world.after(bus.hop_s(), at_broker)

    def take(self, sub: Subscription, subject: str, data: bytes, reply: Any) -> None:
        """Runs in the subscribing process: calls the handler and sends its answer."""
        task = asyncio.get_running_loop().create_task(self._handle(sub, subject, data, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, sub: Subscription, subject: str, data: bytes, reply: Any) -> None:
        answer = await sub.handler(subject, data)
        if answer is None or reply is None:
            return
        for listener in self.bus.on_exchange:
            listener(self.process, subject, data, answer)
        if self.bus.reaches(self.process) and not self.bus.lost():
            self.bus.world.after(self.bus.hop_s(), lambda: self.bus.down or reply(answer))

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription:
        self.check(subject)
        sub = Subscription(self.bus, self, subject, handler, queue)
        self.bus.subscriptions.append(sub)
        return sub

    async def close(self) -> None:
        self.bus.subscriptions = [s for s in self.bus.subscriptions if s.transport is not self]
        for task in list(self._tasks):
            task.cancel()
        self.connected = False


if TYPE_CHECKING:
    _port: type[Transport] = SimTransport
