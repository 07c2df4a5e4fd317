"""The channel of commands and reports between a slot and its task manager."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InternalError
from penstock.messages.slot import ToSlot

if TYPE_CHECKING:
    from penstock.messages.slot import FromSlot

#: Control messages are small; a Deploy may hold a large plan.
MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class ControlChannel:
    """Length-prefixed MessagePack to and from the task manager."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(ToSlot).decode

    @classmethod
    async def open(cls, sock: socket.socket) -> ControlChannel:
        """A channel over a connected socket."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    def send(self, message: FromSlot) -> None:
        """Send a report. It never waits; see ``unread_bytes``."""
        data = self._encode(message)
        self._writer.write(len(data).to_bytes(4, "big") + data)

    @property
    def unread_bytes(self) -> int:
        """Bytes that the task manager has not read yet."""
        return self._writer.transport.get_write_buffer_size()

    async def receive(self) -> Any | None:
        """The next command; None if the task manager has closed the channel."""
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            if length > MAX_MESSAGE_BYTES:
                raise InternalError(f"a control message of {length} bytes")
            return self._decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def close(self) -> None:
        """Send what is buffered, then close the channel."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()
        self._writer.close()
