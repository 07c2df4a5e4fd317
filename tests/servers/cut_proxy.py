"""A proxy on loopback that a test can cut: connections are reset, or stay open while nothing passes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Literal

from penstock.reserving import port_of, reserve_port


class CutProxy:
    """Forwards connections to ``target``, a port of this host, from ``port``."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._reset = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        ready = threading.Event()
        self._loop.call_soon(lambda: self._loop.create_task(self._serve(ready)))
        self._thread.start()
        ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _serve(self, ready: threading.Event) -> None:
        self._flows.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        ready.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        mine = [writer]
        try:
            if self._reset:
                return
            await self._flows.wait()
            there, out = await asyncio.open_connection("127.0.0.1", self.target)
            mine.append(out)
            self._writers |= set(mine)
            await asyncio.gather(self._pass(reader, out), self._pass(there, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or the test ends: the client sees its connection closed
        finally:
            self._tasks.discard(task)
            self._writers -= set(mine)
            for one in mine:
                one.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self, how: Literal["reset", "silence"]) -> None:
        """``reset``: connections are reset and new ones closed; ``silence``: they stay open, and nothing passes."""

        def do() -> None:
            if how == "silence":
                self._flows.clear()
                return
            self._reset = True
            for writer in self._writers:
                made = writer.get_extra_info("socket")
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()

        self._loop.call_soon_threadsafe(do)

    def mend(self) -> None:
        def do() -> None:
            self._reset = False
            self._flows.set()

        self._loop.call_soon_threadsafe(do)

    def stop(self) -> None:
        async def end() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._loop.stop()

        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(end()))
        self._thread.join()
        self._loop.close()
        self._reserved.close()
