"""A data connection: frames in, frames out, on one socket of the slot's loop.

Reading goes into a buffer of the protocol. A large payload is received in place, into memory that then
belongs to the batch made of it. Writing hands buffers to the transport, which sends them without a copy. The
credit of the channels bounds what waits there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import InternalError
from penstock.runtime.network.frames import HEADER, HEADER_BYTES, MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_RECEIVE_BYTES = 256 * 1024
#: Larger payloads are received in place instead of through the buffer.
_IN_PLACE_BYTES = 16 * 1024

#: type, flags, edge, producer, consumer, payload
OnFrame: TypeAlias = "Callable[[int, int, int, int, int, bytes | bytearray], None]"


class FrameProtocol(asyncio.BufferedProtocol):
    """``on_frame`` gets every frame in order; ``on_lost`` gets the reason of the end."""

    def __init__(self, on_frame: OnFrame, on_lost: Callable[[Exception | None], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        #: The header of a large payload that is being received.
        self._large: tuple[int, int, int, int, int] | None = None
        self._payload = bytearray()
        self._filled = 0
        self.transport: asyncio.Transport | None = None

    # -- writing -------------------------------------------------------------------------

    def send(
        self,
        type_: int,
        flags: int,
        edge: int,
        producer: int,
        consumer: int,
        payload: bytes | memoryview = b"",
    ) -> None:
        """Send a frame. It never waits: the transport buffers. After the end of the connection it does nothing."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        header = HEADER.pack(len(payload), type_, flags, edge, producer, consumer)
        if len(payload) > 512:
            transport.writelines((header, payload))
        else:
            transport.write(header + bytes(payload))

    def close(self) -> None:
        """Close the connection when everything that is buffered has been sent."""
        if self.transport is not None:
            self.transport.close()

    # -- reading -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: the memory for the next bytes, which is a large payload's own memory if one is being received."""
        if self._large is not None:
            return memoryview(self._payload)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._buffer) - self._end < _IN_PLACE_BYTES:
            left = self._end - self._start
            self._view[:left] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, left
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: ``nbytes`` have arrived in that memory; all complete frames are handled."""
        try:
            if self._large is not None:
                self._filled += nbytes
                if self._filled == len(self._payload):
                    self._large_done()
            else:
                self._end += nbytes
                self._parse()
        except Exception as err:
            # A frame cannot be handled, so the frames after it cannot either.
            self._on_lost(err)
            self._on_lost = lambda _: None
            self.close()

    def _parse(self) -> None:
        view = self._view
        while self._end - self._start >= HEADER_BYTES:
            length, type_, flags, edge, producer, consumer = HEADER.unpack_from(view, self._start)
            if length > MAX_PAYLOAD_BYTES:
                raise InternalError(f"a data frame of {length} bytes: not a peer of ours")
            body = self._start + HEADER_BYTES
            there = self._end - body
            if there >= length:
                self._start = body + length
                # A copy: the batch keeps it, and the buffer is used again.
                self._on_frame(type_, flags, edge, producer, consumer, bytes(view[body : self._start]))
            elif length > _IN_PLACE_BYTES:
                self._payload = bytearray(length)
                self._payload[:there] = view[body : self._end]
                self._filled = there
                self._large = (type_, flags, edge, producer, consumer)
                self._start = self._end = 0
                return
            else:
                return

    def _large_done(self) -> None:
        head, payload = self._large, self._payload
        self._large, self._payload = None, bytearray()
        assert head is not None
        self._on_frame(*head, payload)

    def eof_received(self) -> bool:
        """asyncio: the peer has closed its side; this side closes too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection has ended."""
        self.transport = None
        self._on_lost(exc)
