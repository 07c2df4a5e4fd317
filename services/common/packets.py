"""Packets with file descriptors over a non-blocking AF_UNIX SOCK_SEQPACKET socket."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


async def send_packet(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Sends one packet, completely or not at all; waits while the other side does not read. Raises OSError if
    the other side has closed. The caller closes its copies of ``fds``."""
    while True:
        try:
            socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
            return
        except (BlockingIOError, InterruptedError):
            await _writable(sock)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(sock)
