"""A small task manager for tests: it has a real template, real slot processes and a real data port, but no
control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InternalError
from penstock.messages.forking import ChildExited, Forked, ForkFailed, FromTemplate, TemplateReady
from penstock.messages.preface import recv_preface, verify
from penstock.messages.slot import (
    Deploy,
    ForkSlot,
    FromSlot,
    ShutdownSlot,
    SlotAddress,
    SlotReady,
    StateHandle,
    StorageSettings,
    TaskDescriptor,
    ToSlot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.jobgraph import JobGraph

#: Only ends a test that hangs.
_WAIT_S = 120.0


class SlotHandle:
    """A slot process, as its task manager sees it."""

    def __init__(self, allocation_id: str, pid: int, control: socket.socket, fds: socket.socket) -> None:
        self.allocation_id = allocation_id
        self.pid = pid
        self.fds = fds
        self.messages: list[Any] = []
        self.closed = False
        self._control = control
        self._changed = asyncio.Event()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def start(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._control)
        self._task = asyncio.get_running_loop().create_task(self._read())

    def send(self, message: ToSlot) -> None:
        data = msgspec.msgpack.encode(message)
        self._writer.write(len(data).to_bytes(4, "big") + data)

    async def wait_for(self, kind: type, condition: Callable[[Any], bool] = lambda _: True) -> Any:
        """Wait for the first message of ``kind`` for which ``condition`` holds."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                for message in self.messages:
                    if isinstance(message, kind) and condition(message):
                        return message
                if self.closed:
                    raise InternalError(
                        f"slot {self.allocation_id} closed its channel", got=str(self.messages)
                    )
                self._changed.clear()
                await self._changed.wait()

    async def _read(self) -> None:
        decode = msgspec.msgpack.Decoder(FromSlot).decode
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                self.messages.append(decode(await self._reader.readexactly(length)))
                self._changed.set()
        self.closed = True
        self._changed.set()

    async def close(self) -> None:
        self._writer.close()
        await self._task
        self.fds.close()


class TestTaskManager:
    """``async with TestTaskManager() as tm``: fork slots, route their data sockets."""

    __test__ = False  # tells pytest that this is no test class

    def __init__(self, *, unix: bool = True) -> None:
        self._unix = unix
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-tm-")
        self.folder = Path(self._folder.name)
        self.slots: dict[str, SlotHandle] = {}
        self.exits: dict[int, int] = {}
        self.secret = secrets.token_hex(16)
        self.import_ms = 0.0
        self.refused: list[dict[str, Any]] = []
        self._replies: asyncio.Queue[Any] = asyncio.Queue()
        self._exited = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> TestTaskManager:
        loop = asyncio.get_running_loop()
        self._template_sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._template_sock.setblocking(False)
        argv = [sys.executable, "-m", "penstock.runtime.template", str(theirs.fileno())]
        self.template = subprocess.Popen(argv, pass_fds=[theirs.fileno()])  # noqa: ASYNC220
        theirs.close()
        loop.add_reader(self._template_sock.fileno(), self._template_says)
        self._listener = self._listen()
        self._tasks.append(loop.create_task(self._accept()))
        ready = await asyncio.wait_for(self._replies.get(), _WAIT_S)
        if not isinstance(ready, TemplateReady):
            raise InternalError("the template did not start", got=str(ready))
        self.import_ms = ready.import_ms
        return self

    async def __aexit__(self, *_: object) -> None:
        for slot in self.slots.values():
            if not slot.closed:
                slot.send(ShutdownSlot())
            await slot.close()
        for task in self._tasks:
            task.cancel()
        asyncio.get_running_loop().remove_reader(self._template_sock.fileno())
        self._template_sock.close()
        self._listener.close()
        await asyncio.to_thread(self.template.wait, _WAIT_S)
        self._folder.cleanup()

    async def fork(self, allocation_id: str) -> SlotHandle:
        """Fork a slot process; returns when it is ready for its deployment."""
        control, theirs = socket.socketpair()
        fds, their_fds = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = ForkSlot(
            allocation_id=allocation_id,
            local_dir=str(self.folder / allocation_id),
            log_path=str(self.folder / f"{allocation_id}.log"),
        )
        data = msgspec.msgpack.encode(order)
        socket.send_fds(self._template_sock, [data], [theirs.fileno(), their_fds.fileno()])
        theirs.close()
        their_fds.close()
        reply = await asyncio.wait_for(self._replies.get(), _WAIT_S)
        if not isinstance(reply, Forked):
            raise InternalError("the slot was not forked", got=str(reply))
        control.setblocking(False)
        slot = SlotHandle(allocation_id, reply.pid, control, fds)
        await slot.start()
        self.slots[allocation_id] = slot
        await slot.wait_for(SlotReady)
        return slot

    async def kill(self, allocation_id: str) -> None:
        """Kill the slot process, and wait until the template has reaped it."""
        slot = self.slots[allocation_id]
        os.kill(slot.pid, signal.SIGKILL)
        async with asyncio.timeout(_WAIT_S):
            while slot.pid not in self.exits:
                self._exited.clear()
                await self._exited.wait()

    def deploy(
        self,
        graph: JobGraph,
        locations: Mapping[str, str],
        *,
        attempt: int = 1,
        store_url: str,
        restore: Mapping[str, tuple[StateHandle, ...]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Deploy the whole job. ``locations``: "vertex:subtask" → allocation id."""
        host, port = self.tcp_address
        unix_path = str(self.folder / "data.sock") if self._unix else None
        addresses = {
            name: SlotAddress(
                allocation_id=name, taskmanager_id="test", host=host, port=port, unix_path=unix_path
            )
            for name in set(locations.values())
        }
        for name in addresses:
            tasks = [
                TaskDescriptor(
                    execution_id=f"{where}:{attempt}",
                    vertex_id=where.rsplit(":", 1)[0],
                    subtask_index=int(where.rsplit(":", 1)[1]),
                    attempt=attempt,
                    restore=(restore or {}).get(where.rsplit(":", 1)[0], ()),
                )
                for where, at in locations.items()
                if at == name
            ]
            self.slots[name].send(
                Deploy(
                    job_id="test-job",
                    job_attempt=attempt,
                    epoch=1,
                    allocation_id=name,
                    job_graph=graph,
                    tasks=tuple(tasks),
                    locations=dict(locations),
                    slots=addresses,
                    secret=self.secret,
                    storage=StorageSettings(url=store_url),
                    config=dict(config or {}),
                )
            )

    def log(self, allocation_id: str) -> str:
        return (self.folder / f"{allocation_id}.log").read_text()

    # -- inside ------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        if self._unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(self.folder / "data.sock"))
            self.tcp_address = ("127.0.0.1", 9)
        else:
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            self.tcp_address = sock.getsockname()
        sock.listen(64)
        sock.setblocking(False)
        return sock

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            sock.setblocking(False)
            preface = await recv_preface(loop, sock)
            if preface is None:  # the client only watches whether this process lives
                sock.close()
                continue
            target = self.slots.get(preface["target_allocation"])
            if target is None or not verify(preface, self.secret):
                self.refused.append(preface)
            else:
                socket.send_fds(target.fds, [msgspec.msgpack.encode(preface)], [sock.fileno()])
            sock.close()

    def _template_says(self) -> None:
        while True:
            try:
                data = self._template_sock.recv(65536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._template_sock.fileno())
                self._replies.put_nowait(None)
                return
            message = msgspec.msgpack.decode(data, type=FromTemplate)
            if isinstance(message, ChildExited):
                self.exits[message.pid] = message.status
                self._exited.set()
            elif isinstance(message, TemplateReady | Forked | ForkFailed):
                self._replies.put_nowait(message)
