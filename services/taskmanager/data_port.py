"""The data port: slots of other processes connect here.

Each connection opens with a preface that names the slot it is for. This process reads and checks the preface
and passes the socket on; no record ever goes through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

from penstock.errors import ExternalError, PenstockError
from penstock.log_events import EventLog
from penstock.messages.preface import recv_preface, verify
from penstock.unix_sockets import unix_address
from penstock_services.taskmanager.slots import Admission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock_services.taskmanager.slot import SlotProcess
    from penstock_services.taskmanager.slot_table import SlotTable

_log = EventLog("penstock.taskmanager.data_port")

#: How long a new connection may take to send its preface.
PREFACE_TIMEOUT_S = 5.0
#: How long a connection waits for a slot whose process does not run yet: its peer may be deployed a little
#: earlier.
SLOT_TIMEOUT_S = 30.0
#: How many connections may wait at once. Further ones are refused.
MAX_PENDING = 4096
_BACKLOG = 1024


class DataPort:
    """Accepts data connections and passes them to slots.

    ``table`` is only read here; ``notify`` must be called whenever it changes. ``process_of``: allocation
    id → the process that runs there, or None.
    """

    def __init__(self, table: SlotTable, process_of: Callable[[str], SlotProcess | None]) -> None:
        self._table = table
        self._process_of = process_of
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.port = 0
        self.unix_path: str | None = None

    def open(self, host: str, port: int, unix_path: Path) -> None:
        """Binds and listens. Raises ExternalError if the address is taken or the Unix socket cannot be made."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        tcp = socket.socket(family, socket.SOCK_STREAM)
        try:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((host, port))
        except OSError as err:
            tcp.close()
            raise ExternalError(
                f"cannot open the data port {host}:{port}: {err.strerror or err}",
                remedy="set taskmanager.data.port to a free port (0 = any) and "
                "taskmanager.bind-host to an address of this host",
            ) from err
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with unix_address(str(unix_path)) as path:
                unix.bind(path)
        except OSError as err:
            tcp.close()
            unix.close()
            raise ExternalError(
                f"cannot open the data port's Unix socket: {err.strerror or err}",
                where=str(unix_path),
                remedy="set io.tmp.dirs to a folder where sockets can be made",
            ) from err
        self.port, self.unix_path = int(tcp.getsockname()[1]), str(unix_path)
        for sock in (tcp, unix):
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            self._listening.append(sock)

    async def run(self) -> None:
        """Accepts connections until it is cancelled."""
        await asyncio.gather(*(self._accept(sock) for sock in self._listening))

    def notify(self) -> None:
        """Must be called when the slot table has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """Closes the sockets, and the connections that wait."""
        for task in list(self._tasks):
            task.cancel()
        for sock in self._listening:
            sock.close()
        if self.unix_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.unix_path)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as err:
                _log.warning("data_connection_failed", error=err)
                await asyncio.sleep(0.1)  # out of descriptors: other connections will give some back
                continue
            if len(self._tasks) >= MAX_PENDING:
                _log.warning("data_connection_refused", reason=f"{MAX_PENDING} are waiting already")
                sock.close()
                continue
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        try:
            await self._admit(sock)
        except TimeoutError:
            _log.warning("data_connection_refused", reason=f"no preface within {PREFACE_TIMEOUT_S:g} s")
        except (PenstockError, OSError) as err:
            _log.warning("data_connection_refused", reason=err)
        finally:
            sock.close()  # the slot has its own copy

    async def _admit(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PREFACE_TIMEOUT_S):
            preface = await recv_preface(loop, sock)
        if preface is None:
            await loop.sock_recv(
                sock, 1
            )  # the connection carries nothing; it ends when either side closes it
            return
        until = loop.time() + SLOT_TIMEOUT_S
        while True:
            changed = self._changed
            admission, reason = self._table.admit(preface)
            process = self._process_of(preface["target_allocation"])
            if admission is Admission.PASS and process is not None:
                break
            if admission is Admission.REFUSE or loop.time() >= until:
                raise ExternalError(reason or "the slot's process is gone", where=_name(preface))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await changed.wait()
        if not verify(preface, process.deploy.secret):
            raise ExternalError("the preface's signature is wrong", where=_name(preface))
        await process.pass_connection(preface, sock)


def _name(preface: dict[str, Any]) -> str:
    return (
        f"job {preface['job_id']} attempt {preface['job_attempt']}, from slot "
        f"{preface['source_allocation']} to slot {preface['target_allocation']}"
    )
