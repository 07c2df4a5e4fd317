"""Messages with payloads over a socket pair, in an event loop; the payload is copied once."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import numpy as np

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

T = TypeVar("T")

#: Lengths of the message and of its payload.
_HEADER = struct.Struct("!IQ")


class Channel(asyncio.BufferedProtocol, Generic[T]):
    """One end of the socket pair. ``received(message, payload)`` and ``lost()`` are called in the loop;
    ``lost`` once, when the other end has closed or its process is gone."""

    def __init__(
        self, kind: Any, received: Callable[[T, memoryview], None], lost: Callable[[], None]
    ) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._header = memoryview(bytearray(_HEADER.size))
        self._message = self._payload = memoryview(b"")
        #: The memory that is being filled; ``_filled`` says how far.
        self._parts: list[memoryview] = [self._header]
        self._filled = 0

    @classmethod
    async def over(
        cls,
        sock: socket.socket,
        kind: Any,
        received: Callable[[T, memoryview], None],
        lost: Callable[[], None],
    ) -> Channel[T]:
        """A channel over a connected socket. The channel owns the socket from then on."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(kind, received, lost), sock=sock)
        return channel

    def send(self, message: Any, payload: Any = b"") -> None:
        """Send a message; never waits. A caller that sends rows must keep to the window."""
        if self._transport is None or self._transport.is_closing():
            return  # ``lost`` reports it
        data, rows = self._encoder.encode(message), memoryview(payload)
        self._transport.write(_HEADER.pack(len(data), rows.nbytes) + data)
        if rows.nbytes:
            self._transport.write(rows)

    def close(self) -> None:
        """Close the channel once all waiting bytes have been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the channel without sending the waiting bytes."""
        if self._transport is not None:
            self._transport.abort()

    # -- the protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection has ended."""
        self._lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: the memory for the next bytes."""
        return self._parts[0][self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: ``nbytes`` have arrived in that memory; all complete messages are handled."""
        self._filled += nbytes
        while self._parts and self._filled == len(self._parts[0]):
            done, self._filled = self._parts.pop(0), 0
            if done is self._header:
                length, payload = _HEADER.unpack(done)
                self._message, self._payload = _room(length), _room(payload)
                self._parts = [self._message, self._payload]
        if not self._parts:
            message, payload = self._message, self._payload
            self._parts = [self._header]
            self._received(self._decoder.decode(message), payload)


def _room(size: int) -> memoryview:
    """Writable bytes that are not set to zero."""
    return np.empty(size, np.uint8).data.cast("B")
