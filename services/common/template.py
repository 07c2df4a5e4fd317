"""A template: a child process that has only imported modules, and from which other processes are forked.

This process must not fork them itself, because it has threads, sockets and a running loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ExternalError
from penstock.log_events import EventLog
from penstock.messages.forking import (
    ChildExited,
    Forked,
    ForkFailed,
    FromTemplate,
    TemplateReady,
    TemplateStale,
)
from penstock_services.common.packets import send_packet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_services.common.processes import SystemSpawner

_log = EventLog("penstock.template")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromTemplate] = msgspec.msgpack.Decoder(FromTemplate)

#: How long a fork waits until the template is ready, and then for the template's answer.
READY_TIMEOUT_S = 60.0
FORK_TIMEOUT_S = 10.0
_MAX_PACKET_BYTES = 64 * 1024


class StaleTemplate(ExternalError):
    """The template forks no more, because code that it has imported has changed. A new one can."""


class TemplateProcess:
    """A template. ``run`` is a supervised child: it does not return, and raises when the process ends.
    ``env``: what its environment has beside this process's."""

    def __init__(self, spawner: SystemSpawner, argv: list[str], env: dict[str, str] | None = None) -> None:
        self._spawner = spawner
        self._argv = argv
        self._env = env or {}
        self._sock: socket.socket | None = None
        self._ready = asyncio.Event()
        self._forks: dict[str, asyncio.Future[int]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self.pid: int | None = None

    async def run(self) -> None:
        """Starts the template and reads its answers. Raises ExternalError when the process has ended."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        pid = None
        try:
            with theirs:
                pid = await self._spawner.spawn(
                    [*self._argv, str(theirs.fileno())],
                    {**os.environ, **self._env},
                    pass_fds=[theirs.fileno()],
                )
            self._sock, self.pid = ours, pid
            await self._read(ours)
            status = await self._spawner.wait(pid)
            pid = None
            raise ExternalError(
                f"the template process ended with {describe_status(status)}",
                where=" ".join(self._argv),
                remedy="see the log above for its last words",
            )
        finally:
            self._sock = self.pid = None
            self._ready.clear()
            ours.close()
            gone = ExternalError("the template process ended")
            for waiting in (*self._forks.values(), *self._exits.values()):
                if not waiting.done():
                    waiting.set_exception(gone)
                    waiting.exception()  # the caller may have stopped waiting
            self._forks.clear()
            self._exits.clear()
            if pid is not None:
                # What it has forked dies with it.
                self._spawner.kill(pid, signal.SIGKILL)
                await self._spawner.wait(pid)

    async def _read(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await self._recv(loop, sock):
            message = _decoder.decode(data)
            match message:
                case TemplateReady(import_ms=import_ms):
                    _log.info("template_ready", template_pid=message.pid, import_ms=round(import_ms))
                    self._ready.set()
                case Forked(order=order, pid=pid):
                    self._exits[pid] = loop.create_future()
                    if (fork := self._forks.get(order)) and not fork.done():
                        fork.set_result(pid)
                    else:
                        self.unclaimed(order, pid)
                        self._spawner.kill(pid, signal.SIGKILL)
                case ForkFailed(order=order, error=error):
                    self._refuse(order, ExternalError(f"the template cannot fork: {error}"))
                case TemplateStale(order=order, changed=changed):
                    self._refuse(
                        order, StaleTemplate(f"the template has imported what has changed: {changed}")
                    )
                case ChildExited(pid=pid, status=status):
                    if (ended := self._exits.get(pid)) and not ended.done():
                        ended.set_result(os.waitstatus_to_exitcode(status))

    def unclaimed(self, order: str, pid: int) -> None:
        """Logs that a process was forked for which nobody waits any more; it is ended."""
        _log.warning("fork_unclaimed", order=order, child_pid=pid)

    def _refuse(self, order: str, error: ExternalError) -> None:
        if (fork := self._forks.get(order)) and not fork.done():
            fork.set_exception(error)

    @staticmethod
    async def _recv(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
        try:
            return await loop.sock_recv(sock, _MAX_PACKET_BYTES)
        except ConnectionError:
            return b""

    async def fork_order(
        self, name: str, order: msgspec.Struct, fds: Sequence[int], timeout_s: float = FORK_TIMEOUT_S
    ) -> int:
        """Has a process forked, and returns its id. Waits until the template is ready, also after it ended
        and is being restarted. ``name``: what the answers call the order. ``fds``: descriptors for the
        process; the caller closes its own. Raises ExternalError if the template is not ready in time or
        cannot fork, StaleTemplate if another one must."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    await self._ready.wait()
                    try:
                        forking = await self._send(name, order, fds)
                        break
                    except ConnectionError:
                        # The template has just ended, and ``run`` has not noticed it yet.
                        self._ready.clear()
        except TimeoutError:
            raise ExternalError(
                f"the template process was not ready within {READY_TIMEOUT_S:.0f} s",
                remedy="see the log for why it does not start",
            ) from None
        try:
            done, _ = await asyncio.wait({forking}, timeout=timeout_s)
            if not done:
                raise ExternalError(f"the template does not answer within {timeout_s:.0f} s")
            return forking.result()
        finally:
            self._forks.pop(name, None)

    async def _send(self, name: str, order: msgspec.Struct, fds: Sequence[int]) -> asyncio.Future[int]:
        """Raises ConnectionError if the order cannot be sent."""
        sock = self._sock
        if sock is None:
            raise ExternalError("the template process ended")
        forking = self._forks[name] = asyncio.get_running_loop().create_future()
        try:
            await send_packet(sock, _encoder.encode(order), fds)
        except BaseException:
            self._forks.pop(name, None)
            raise
        return forking

    async def exit_status(self, pid: int, timeout_s: float | None) -> int | None:
        """The exit code of a forked process (negative: the number of the signal); None if it is not known
        within ``timeout_s`` (None: wait for it), or the template ends first."""
        ended = self._exits.get(pid)
        if ended is None:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(ended)
        except (TimeoutError, ExternalError):
            return None
        finally:
            if ended.done():
                self._exits.pop(pid, None)


def describe_status(code: int | None) -> str:
    """An exit code as text."""
    if code is None:
        return "an unknown status"
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
