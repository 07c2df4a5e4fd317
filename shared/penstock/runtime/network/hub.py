"""The network of one slot: a connection for each other slot that it sends to or receives from.

The producer's side opens a connection, sends the preface, and waits for the HELLO of the target slot (its
task manager may have to fork it first). Until then elements wait, bounded by the channels' credit. Both
sides report a connection that breaks while any of its channels is open.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from penstock import internal_tls
from penstock.errors import ExternalError, InternalError, PeerLostError
from penstock.messages.preface import encode_preface
from penstock.runtime.deployment import ChannelId
from penstock.runtime.elements import CONTROL_BYTES, Element, EndOfInput
from penstock.runtime.network.connection import FrameProtocol
from penstock.runtime.network.frames import (
    CREDIT,
    HEADER_BYTES,
    HELLO,
    ElementDecoder,
    decode_credit,
    encode_credit,
    encode_element,
)
from penstock.unix_sockets import unix_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.messages.slot import SlotAddress
    from penstock.runtime.channels import InputChannel
    from penstock.types.logical import Schema

#: How long a slot tries to reach another one of the same deployment.
CONNECT_TIMEOUT_S = 30.0
_RETRY_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class NetworkHub:
    """All data connections of a slot. ``on_lost(error)``: a connection with open channels broke."""

    def __init__(
        self,
        *,
        allocation_id: str,
        job_id: str,
        job_attempt: int,
        epoch: int,
        secret: str,
        addresses: Mapping[str, SlotAddress],
        on_lost: Callable[[ExternalError], None],
    ) -> None:
        self.allocation_id = allocation_id
        self._job_id = job_id
        self._job_attempt = job_attempt
        self._epoch = epoch
        self._secret = secret
        self._addresses = addresses
        self._on_lost = on_lost
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: dict[str, Incoming] = {}
        self.closed = False
        #: TLS contexts of the accepting and the connecting side between hosts; None: without TLS.
        self.tls = internal_tls.data_tls()

    # -- RemoteChannels --------------------------------------------------------------------

    def sender(
        self, allocation_id: str, channel: ChannelId, schema: Schema
    ) -> tuple[Callable[[Element], int], Callable[[Callable[[int], None]], None]]:
        """The producing end of a channel to another slot (see ``RemoteChannels``)."""
        connection = self._outgoing.get(allocation_id)
        if connection is None:
            connection = self._outgoing[allocation_id] = Outgoing(self, allocation_id)
        return connection.channel(channel)

    def receiver(
        self, allocation_id: str, channel: ChannelId, schema: Schema, target: InputChannel
    ) -> Callable[[int], None]:
        """The consuming end of a channel from another slot (see ``RemoteChannels``)."""
        connection = self._incoming.get(allocation_id)
        if connection is None:
            connection = self._incoming[allocation_id] = Incoming(self, allocation_id)
        return connection.channel(channel, schema, target)

    # -- life --------------------------------------------------------------------------------

    def connect(self) -> None:
        """Opens all outgoing connections (after every channel is made)."""
        for connection in self._outgoing.values():
            connection.connect()

    async def accept(self, sock: socket.socket, preface: Mapping[str, Any]) -> None:
        """A verified socket from the task manager. It is refused (closed) if it belongs to another job
        attempt or to no producer of ours."""
        source = preface.get("source_allocation", "")
        mine = (
            preface.get("job_id") == self._job_id
            and preface.get("job_attempt") == self._job_attempt
            and preface.get("target_allocation") == self.allocation_id
        )
        connection = self._incoming.get(source)
        if not mine or connection is None:
            sock.close()
            raise InternalError(
                "a data connection that does not belong to this slot was refused",
                expected=f"job {self._job_id}, attempt {self._job_attempt}, slot {self.allocation_id}",
                got=str({k: v for k, v in preface.items() if k != "mac"}),
            )
        await connection.attach(sock)

    async def drain(self, timeout_s: float) -> None:
        """Closes the outgoing connections when all their data has left the process; waits at most this long."""
        self.closed = True
        left = [asyncio.ensure_future(c.close_flushed()) for c in self._outgoing.values()]
        if left:
            await asyncio.wait(left, timeout=timeout_s)

    def close(self) -> None:
        """Close all connections at once."""
        self.closed = True
        for outgoing in self._outgoing.values():
            outgoing.close()
        for incoming in self._incoming.values():
            incoming.close()

    # -- used by the connections ---------------------------------------------------------------

    def lost(self, what: str, reason: object) -> None:
        """A connection broke: report PeerLostError, unless the hub is closed."""
        if not self.closed:
            self._on_lost(
                PeerLostError(
                    f"the data connection {what} broke",
                    got=str(reason or "closed by the other side"),
                    remedy="the other slot or its host probably died: the job restarts from its checkpoint",
                )
            )

    def preface(self, target: str) -> bytes:
        """The signed preface of a connection to the slot ``target``."""
        return encode_preface(
            job_id=self._job_id,
            job_attempt=self._job_attempt,
            epoch=self._epoch,
            source_allocation=self.allocation_id,
            target_allocation=target,
            secret=self._secret,
        )

    def address(self, allocation_id: str) -> SlotAddress:
        """The address of a slot. Raises InternalError if the deployment has none."""
        found = self._addresses.get(allocation_id)
        if found is None:
            raise InternalError(f"the deployment has no address of slot {allocation_id}")
        return found


class Outgoing:
    """The connection to one slot: it sends elements and receives credit."""

    def __init__(self, hub: NetworkHub, target: str) -> None:
        self._hub = hub
        self._target = target
        self._credit: dict[tuple[int, int, int], Callable[[int], None]] = {}
        self._open: set[tuple[int, int, int]] = set()
        self._waiting: list[tuple[int, int, int, int, int, bytes | memoryview]] = []
        self._protocol: FrameProtocol | None = None
        self._ready = False
        self._hello: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def channel(
        self, channel: ChannelId
    ) -> tuple[Callable[[Element], int], Callable[[Callable[[int], None]], None]]:
        """The (push, bind) functions of a channel (see ``RemoteChannels.sender``)."""
        key = (channel.edge, channel.producer, channel.consumer)
        self._open.add(key)

        def push(element: Element) -> int:
            type_, flags, payload = encode_element(element)
            if self._ready:
                assert self._protocol is not None
                self._protocol.send(type_, flags, *key, payload)
            else:
                self._waiting.append((type_, flags, *key, payload))
            if isinstance(element, EndOfInput):
                self._open.discard(key)
            return max(CONTROL_BYTES, HEADER_BYTES + len(payload))

        def bind(add_credit: Callable[[int], None]) -> None:
            self._credit[key] = add_credit

        return push, bind

    def connect(self) -> None:
        """Open the connection in the background."""
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_TIMEOUT_S
        attempt = 0
        while not self._hub.closed:
            try:
                await asyncio.wait_for(self._try(), max(0.1, deadline - loop.time()))
                return
            except (OSError, TimeoutError) as err:
                self._protocol = None
                if loop.time() >= deadline:
                    self._hub.lost(f"to slot {self._target} could not be opened and", err)
                    return
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _try(self) -> None:
        loop = asyncio.get_running_loop()
        sock = await open_socket(self._hub.address(self._target))
        self._hello = loop.create_future()
        protocol = self._protocol = FrameProtocol(self._frame, self._lost)
        try:
            await loop.sock_sendall(sock, self._hub.preface(self._target))
            if sock.family == socket.AF_UNIX:
                await loop.create_unix_connection(lambda: protocol, sock=sock)
            else:
                tls = self._hub.tls
                if tls is None:
                    await loop.create_connection(lambda: protocol, sock=sock)
                else:
                    # The preface goes before the handshake, so that a task manager can pass the socket on unread.
                    await loop.create_connection(lambda: protocol, sock=sock, ssl=tls[1], server_hostname="")
        except BaseException:
            sock.close()
            raise
        await self._hello

    def _frame(
        self, type_: int, flags: int, edge: int, producer: int, consumer: int, payload: bytes | bytearray
    ) -> None:
        if type_ == CREDIT:
            self._credit[(edge, producer, consumer)](decode_credit(payload))
        elif type_ == HELLO:
            self._ready = True
            assert self._protocol is not None
            waiting, self._waiting = self._waiting, []
            for frame in waiting:
                self._protocol.send(*frame)
            if self._hello is not None and not self._hello.done():
                self._hello.set_result(None)
        else:
            raise InternalError(f"a frame of type {type_} against the stream")

    def _lost(self, reason: Exception | None) -> None:
        if self._hello is not None and not self._hello.done():
            self._hello.set_exception(ConnectionResetError(str(reason or "refused by the other side")))
        elif self._open:
            self._hub.lost(f"to slot {self._target}", reason)
        self._gone.set()

    async def close_flushed(self) -> None:
        """Close the connection and wait until all its data has left the process."""
        if self._protocol is not None and self._ready:
            # Closing a transport sends what it holds first, then tells ``_lost``.
            self._protocol.close()
            await self._gone.wait()

    def close(self) -> None:
        """Close the connection; stop connecting."""
        if self._task is not None:
            self._task.cancel()
        if self._protocol is not None:
            self._protocol.close()


class Incoming:
    """The connection from one slot: it receives elements and sends credit."""

    def __init__(self, hub: NetworkHub, source: str) -> None:
        self._hub = hub
        self._source = source
        self._channels: dict[tuple[int, int, int], tuple[InputChannel, ElementDecoder]] = {}
        self._protocol: FrameProtocol | None = None

    def channel(self, channel: ChannelId, schema: Schema, target: InputChannel) -> Callable[[int], None]:
        """Receive the elements of a channel; returns the function that grants credit."""
        key = (channel.edge, channel.producer, channel.consumer)
        self._channels[key] = (target, ElementDecoder(schema))

        def grant(n: int) -> None:
            if self._protocol is not None:
                self._protocol.send(CREDIT, 0, *key, encode_credit(n))

        return grant

    async def attach(self, sock: socket.socket) -> None:
        """Take the socket of the connection. Raises InternalError if there is one already."""
        if self._protocol is not None:
            sock.close()
            raise InternalError(f"a second data connection from slot {self._source} was refused")
        sock.setblocking(False)
        _tune(sock)
        protocol = self._protocol = FrameProtocol(self._frame, self._lost)
        tls = self._hub.tls if sock.family != socket.AF_UNIX else None
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, sock, ssl=None if tls is None else tls[0]
        )
        protocol.send(HELLO, 0, 0, 0, 0)

    def _frame(
        self, type_: int, flags: int, edge: int, producer: int, consumer: int, payload: bytes | bytearray
    ) -> None:
        found = self._channels.get((edge, producer, consumer))
        if found is None:
            raise InternalError(f"a frame for unknown channel {edge}:{producer}→{consumer}")
        channel, decoder = found
        element = decoder.decode(type_, flags, payload)
        channel.push(element, max(CONTROL_BYTES, HEADER_BYTES + len(payload)))

    def _lost(self, reason: Exception | None) -> None:
        self._protocol = None
        # Elements that have arrived are valid; only channels without their end are incomplete.
        if any(not c.ended and not c.end_queued for c, _ in self._channels.values()):
            self._hub.lost(f"from slot {self._source}", reason)

    def close(self) -> None:
        """Close the connection."""
        if self._protocol is not None:
            self._protocol.close()


async def open_socket(address: SlotAddress) -> socket.socket:
    """Connected, non-blocking: the Unix socket if one answers, otherwise TCP."""
    loop = asyncio.get_running_loop()
    if address.unix_path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            with unix_address(address.unix_path) as path:
                await loop.sock_connect(sock, path)
            return sock
        except OSError:
            sock.close()  # no such path here, or a stale one: use TCP
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, proto, _, where = found[0]
    sock = socket.socket(family, kind, proto)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    _tune(sock)
    return sock


def _tune(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
