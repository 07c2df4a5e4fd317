"""Byte streams between simulated processes, as a kernel provides them.

Bytes that were written before a crash still arrive; then the other side sees the end. A cut
connection is reset on both sides. Bytes keep their order, and each delivery is delayed as in a network.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.simulation.loop import SimLoop
    from penstock.testing.simulation.world import Process, World

#: The delay of one way on one host, shortest and longest (seconds); the next constant is that between hosts.
LOCAL_S = (0.00002, 0.0002)
REMOTE_S = (0.0002, 0.002)


class SimSocket:
    """One end of a stream. ``owner`` changes when the socket is handed to another process."""

    def __init__(self, world: World, owner: Process, *, family: int = socket.AF_UNIX) -> None:
        self.world = world
        self.family = family
        self.peer: SimSocket | None = None
        self.delay_s: tuple[float, float] = LOCAL_S
        #: nothing arrives here before this time (the network is cut, and may heal)
        self.stalled_until_s = 0.0
        self.buffer = bytearray()
        self.ended = False
        self.error: Exception | None = None
        self.closed = False
        self.transport: StreamTransport | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arrives_s = 0.0
        self._own(owner)

    def _own(self, owner: Process) -> None:
        self.owner = owner
        owner.on_exit.append(lambda: self._owner_died(owner))

    def _owner_died(self, owner: Process) -> None:
        if self.owner is owner:
            self.close()

    def passed_to(self, process: Process) -> SimSocket:
        """Hand the socket to another process; the sender's copy may then be closed."""
        copy = SimSocket(self.world, process, family=self.family)
        copy.peer, copy.delay_s, copy.buffer = self.peer, self.delay_s, self.buffer
        copy.ended, copy.error, copy.stalled_until_s = self.ended, self.error, self.stalled_until_s
        if self.peer is not None:
            self.peer.peer = copy
        self.peer, self.closed = None, True
        return copy

    # -- as the kernel does it -----------------------------------------------------------

    def send(self, data: bytes) -> int:
        peer = self.peer
        if self.closed or peer is None:
            raise BrokenPipeError("the other side is gone")
        self._deliver(lambda end: end.buffer.extend(data))
        return len(data)

    def _deliver(self, effect: Callable[[SimSocket], Any]) -> None:
        """Apply ``effect`` to the socket that is the other end at the time of arrival, in order."""
        world = self.world
        at = world.now_s + world.random.uniform(*self.delay_s)
        peer = self.peer
        if peer is not None:
            at = max(at, peer.stalled_until_s)
        at = self._arrives_s = max(at, self._arrives_s)

        def arrive() -> None:
            end = self.peer
            if end is not None and not end.closed:
                effect(end)
                end.arrived()

        world.at(at, arrive)

    def arrived(self) -> None:
        if self.transport is not None:
            self.transport.readable()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.get_loop().call_soon(_settle, waiting)

    def end(self, error: Exception | None) -> None:
        self.ended = True
        self.error = self.error or error

    def close(self) -> None:
        if not self.closed:
            peer = self.peer
            if peer is not None:
                self._deliver(lambda end: end.end(None))
            self.closed = True

    def reset(self) -> None:
        """Break the connection; both sides notice."""
        for end in (self, self.peer):
            if end is not None and not end.closed:
                end.end(ConnectionResetError("the connection was reset"))
                end.arrived()

    # -- as the program sees it ----------------------------------------------------------

    async def receive(self, nbytes: int) -> bytes:
        while not self.buffer:
            if self.error is not None:
                raise self.error
            if self.ended or self.closed:
                return b""
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        data = bytes(self.buffer[:nbytes])
        del self.buffer[:nbytes]
        return data

    def setblocking(self, blocking: bool) -> None: ...

    def setsockopt(self, *args: Any) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return self.owner.host, 1

    def fileno(self) -> SimSocket:
        return self


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def socket_pair(world: World, one: Process, other: Process) -> tuple[SimSocket, SimSocket]:
    """Two connected sockets, one for each process. Their delay is that between hosts if the processes are on
    different hosts."""
    near = one.host == other.host
    family = socket.AF_UNIX if near else socket.AF_INET
    a, b = SimSocket(world, one, family=family), SimSocket(world, other, family=family)
    a.peer, b.peer = b, a
    a.delay_s = b.delay_s = LOCAL_S if near else REMOTE_S
    return a, b


class Listener:
    """A listening socket of ``owner``; ``connect`` returns the socket of the connecting side."""

    def __init__(self, owner: Process) -> None:
        self.owner = owner
        self.family = socket.AF_INET
        self.open = True
        self._queue: deque[SimSocket] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def connect(self, process: Process) -> SimSocket:
        if not self.open or not self.owner.alive:
            raise ConnectionRefusedError("nobody listens there")
        theirs, ours = socket_pair(self.owner.world, process, self.owner)
        self._queue.append(ours)
        if self._waiting is not None and not self._waiting.done():
            waiting = self._waiting
            self.owner.loop.call_soon(_settle, waiting)
        return theirs

    async def accept(self) -> SimSocket:
        while not self._queue:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._queue.popleft()

    def close(self) -> None:
        self.open = False


class PacketChannel:
    """The receiving end of a channel for packets with sockets (SCM_RIGHTS)."""

    def __init__(self, owner: Process) -> None:
        self.owner = owner
        self.packets: deque[tuple[bytes, list[SimSocket]]] = deque()
        self._notify: Callable[[], None] | None = None

    def put(self, data: bytes, sockets: list[SimSocket]) -> None:
        """Send a packet: called in the sending process. The sockets become the receiver's."""
        if not self.owner.alive:
            raise BrokenPipeError("the other side is gone")
        self.packets.append((data, [sock.passed_to(self.owner) for sock in sockets]))
        if self._notify is not None:
            self._notify()

    def take(self) -> tuple[bytes, list[SimSocket]]:
        if not self.packets:
            raise BlockingIOError
        return self.packets.popleft()

    def watch(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self.packets:
            notify()

    def setblocking(self, blocking: bool) -> None: ...

    def fileno(self) -> PacketChannel:
        return self

    def close(self) -> None: ...


class StreamTransport(asyncio.Transport):
    """The asyncio transport of a socket, for a plain protocol or one with a buffer of its own."""

    def __init__(self, loop: SimLoop, sock: SimSocket, protocol: Any) -> None:
        super().__init__({"socket": sock})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._closing = False
        self._reading = True
        self._lost = False
        sock.transport = self
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._read)

    # -- reading -------------------------------------------------------------------------

    def readable(self) -> None:
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        sock = self._sock
        while sock.buffer and self._reading and not self._closing:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(-1))
                n = min(len(room), len(sock.buffer))
                room[:n] = sock.buffer[:n]
                del sock.buffer[:n]
                self._protocol.buffer_updated(n)
            else:
                data = bytes(sock.buffer)
                sock.buffer.clear()
                self._protocol.data_received(data)
        if self._closing or self._lost:
            return
        if sock.error is not None:
            self._end(sock.error)
        elif sock.ended and not sock.buffer:
            self._protocol.eof_received()
            self._end(None)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.readable()

    def is_reading(self) -> bool:
        return self._reading

    # -- writing -------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not self._closing and not self._lost and not self._sock.ended:
            try:
                self._sock.send(bytes(data))
            except BrokenPipeError as err:
                self._end(err)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(part) for part in list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    # -- the end --------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._end(None)

    def abort(self) -> None:
        self.close()

    def _end(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._sock.close()
            self._loop.call_soon(self._protocol.connection_lost, error)

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
