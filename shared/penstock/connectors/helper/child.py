"""The helper process: opens one part of a connector, serves it, and ends when its slot ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, Protocol

from penstock.connectors.helper.channel import Channel
from penstock.connectors.helper.child_calls import EnumeratorPart, LookupPart
from penstock.connectors.helper.child_reader import ReaderPart
from penstock.connectors.helper.child_writer import WriterPart
from penstock.connectors.helper.context import HelperContext, failure
from penstock.connectors.helper.messages import Answer, Call, Open, ToHelper
from penstock.connectors.registry import CONNECTORS
from penstock.processes import die_with_parent

if TYPE_CHECKING:
    from penstock.connectors.helper.messages import Opened


class HelperPart(Protocol):
    """Serves one part of a connector. ``received`` must not wait."""

    async def open(self) -> Opened:
        """Open the part; the result says what the part can do."""

    def received(self, message: ToHelper, payload: memoryview) -> None:
        """Handle a message of the slot."""

    async def close(self) -> None:
        """Close the part."""


_PARTS: dict[str, Any] = {
    "enumerator": EnumeratorPart,
    "lookup": LookupPart,
    "reader": ReaderPart,
    "writer": WriterPart,
}


def main(fd: int, parent_pid: int) -> None:
    """Serve the slot at the other end of the socket ``fd`` until the slot closes the socket."""
    die_with_parent(parent_pid)
    # An interrupt at a terminal reaches all processes; only the slot may react to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(socket.socket(fileno=fd)))


async def _serve(sock: socket.socket) -> None:
    sock.setblocking(False)
    messages: asyncio.Queue[tuple[ToHelper, memoryview] | None] = asyncio.Queue()
    channel: Channel[ToHelper] = await Channel.over(
        sock, ToHelper, lambda *item: messages.put_nowait(item), lambda: messages.put_nowait(None)
    )
    try:
        await _served(channel, messages)
    finally:
        # Exit at once, without waiting for threads of the client library.
        os._exit(0)


async def _served(
    channel: Channel[ToHelper], messages: asyncio.Queue[tuple[ToHelper, memoryview] | None]
) -> None:
    first = await messages.get()
    if first is None:
        return
    message = first[0]
    assert isinstance(message, Open)
    context = HelperContext(message, channel.send)
    try:
        connector = CONNECTORS.find(message.connector)
        part: HelperPart = _PARTS[message.part](connector, context, message, channel.send)
        channel.send(await part.open())
    except Exception as err:
        channel.send(failure(err))
        await messages.get()  # the slot ends this process
        return
    while (item := await messages.get()) is not None:
        message, payload = item
        if isinstance(message, Call) and message.method == "close":
            try:
                await part.close()
                channel.send(Answer(call=message.call))
            except Exception as err:
                channel.send(failure(err, message.call))
            continue
        try:
            part.received(message, payload)
        except Exception as err:
            channel.send(failure(err))
