"""Pipes of processes that this one has not started itself."""

from __future__ import annotations

import asyncio
import os


async def read_all(fd: int) -> bytes:
    """All that comes through a pipe until its other ends are closed. Closes ``fd``."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()


async def write_all(fd: int, data: bytes) -> None:
    """Writes ``data`` into a pipe and closes ``fd``. A reader that has closed its end gets what it gets."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(fd, "wb", buffering=0))
    transport.write(data)
    transport.close()  # when all is written
