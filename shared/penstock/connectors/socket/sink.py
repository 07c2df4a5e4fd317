"""Writes records to a TCP server."""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from typing import TYPE_CHECKING, Any

from penstock.connectors.away import Away, patiently
from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.socket.settings import OPTIONS, OWNER, address
from penstock.errors import BrokerError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch

_ROWS = 1000
#: Seconds between two checks whether the receiver's machine has acknowledged all bytes.
_LOOK_S = 0.005


class SocketWriter(BufferedWriter):
    """Writes at least once, up to the receiver's machine: a checkpoint waits until that machine has
    acknowledged all bytes. A
    connection that breaks fails the task, which sends the rows since its checkpoint again."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._where = f"{OWNER}, {address(table.options)}"
        super().__init__(self._where, max_items=_ROWS, retries=0)
        self._encoder = message_format(table.options.get("format"), where=OWNER).encoder(
            table.schema, table.options
        )
        self._delimiter = bytes([self._options["byte-delimiter"]])
        self._out: asyncio.StreamWriter | None = None
        self._watching: asyncio.Task[None] | None = None
        self._broken: str | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[bytes]:
        return [data + self._delimiter for data in self._encoder.encode(batch)]

    async def send(self, items: Sequence[Any]) -> Sequence[Any]:
        out = await self._connected()
        try:
            out.write(b"".join(items))
            await out.drain()
        except OSError as err:
            raise self._lost(str(err)) from err
        if self._broken is not None:
            raise self._lost(self._broken)
        return ()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        taken_so_far = self._taken

        async def taken() -> list[bytes]:
            await self._until_sent(taken_so_far)
            await self._taken_over()
            return []

        return taken()

    async def finish(self) -> None:
        await super().finish()
        await self._taken_over()

    async def _taken_over(self) -> None:
        """Waits until the receiver's machine has acknowledged every byte."""
        if self._out is None:
            return
        handle = self._out.get_extra_info("socket")
        left = array.array("i", [0])
        while True:
            if self._broken is not None:
                raise self._lost(self._broken)
            fcntl.ioctl(handle.fileno(), termios.TIOCOUTQ, left)
            if not left[0] and not self._out.transport.get_write_buffer_size():
                return
            await asyncio.sleep(_LOOK_S)

    async def _connected(self) -> asyncio.StreamWriter:
        if self._out is None:
            reader, out = await patiently(self._connect, Away(self._where), None)
            self._out = out
            self._watching = asyncio.ensure_future(self._watch(reader))
        return self._out

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(self._options["hostname"], self._options["port"])
        except OSError as err:
            raise BrokerError("the receiver does not answer", got=str(err), where=self._where) from err

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """Notices when the receiver closes the connection; everything that the receiver sends is ignored."""
        try:
            while await reader.read(1 << 16):
                pass
            self._broken = "the receiver closed it"
        except OSError as err:
            self._broken = str(err)

    def _lost(self, why: str) -> BrokerError:
        return BrokerError(
            "the connection to the receiver broke",
            expected="a receiver that reads until the job ends",
            got=why,
            where=self._where,
            remedy="start the receiver again; the job sends the rows since its last checkpoint again",
        )

    async def close(self) -> None:
        await super().close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._out is not None:
            self._out.close()
