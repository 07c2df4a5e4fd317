"""The template: a child process that has only imported modules, and from which slots are forked.

This process must not fork slots itself, because it has threads, sockets and a running loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ExternalError
from penstock.log_events import EventLog
from penstock.messages.slot import ForkFailed, ForkSlot, FromTemplate, SlotExited, SlotForked, TemplateReady
from penstock.messages.slot_output import MAX_BYTES, MAX_FILES
from penstock_services.taskmanager.packets import send_packet

if TYPE_CHECKING:
    from penstock_services.common.processes import SystemSpawner

_log = EventLog("penstock.taskmanager.template")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromTemplate] = msgspec.msgpack.Decoder(FromTemplate)

#: How long a fork waits until the template is ready, and then for the template's answer.
READY_TIMEOUT_S = 60.0
FORK_TIMEOUT_S = 10.0
_MAX_PACKET_BYTES = 64 * 1024


@dataclass(frozen=True)
class ForkedSlot:
    """A new slot process, and this process's ends of its two channels."""

    pid: int
    control: socket.socket
    fds: socket.socket


@dataclass(frozen=True)
class OutputBound:
    """The limit of a slot's output: the size of a file in bytes, and how many files are kept."""

    max_bytes: int = MAX_BYTES
    max_files: int = MAX_FILES


class Template:
    """The template process. ``run`` is a supervised child: it does not return, and raises when the process
    ends."""

    def __init__(
        self, spawner: SystemSpawner, argv: list[str] | None = None, *, bound: OutputBound = OutputBound()
    ) -> None:
        self._spawner = spawner
        self._bound = bound
        self._argv = argv or [sys.executable, "-P", "-m", "penstock.runtime.template"]
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
                env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
                pid = await self._spawner.spawn(
                    [*self._argv, str(theirs.fileno())], env, pass_fds=[theirs.fileno()]
                )
            self._sock, self.pid = ours, pid
            await self._read(ours)
            status = await self._spawner.wait(pid)
            pid = None
            raise ExternalError(
                f"the template process ended with {describe_status(status)}",
                where=" ".join(self._argv),
                remedy="see the task manager's log above for its last words",
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
                # Its slots die with it.
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
                case SlotForked(allocation_id=allocation_id, pid=pid):
                    self._exits[pid] = loop.create_future()
                    if (fork := self._forks.get(allocation_id)) and not fork.done():
                        fork.set_result(pid)
                    else:
                        _log.warning("slot_unclaimed", allocation_id=allocation_id, slot_pid=pid)
                        self._spawner.kill(pid, signal.SIGKILL)
                case ForkFailed(allocation_id=allocation_id, error=error):
                    if (fork := self._forks.get(allocation_id)) and not fork.done():
                        fork.set_exception(ExternalError(f"the template cannot fork: {error}"))
                case SlotExited(pid=pid, status=status):
                    if (ended := self._exits.get(pid)) and not ended.done():
                        ended.set_result(os.waitstatus_to_exitcode(status))

    @staticmethod
    async def _recv(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
        try:
            return await loop.sock_recv(sock, _MAX_PACKET_BYTES)
        except ConnectionError:
            return b""

    async def fork(self, allocation_id: str, local_dir: str, log_path: str) -> ForkedSlot:
        """Forks a slot process. Waits until the template is ready, also after it ended and is being
        restarted. Raises ExternalError if it is not ready in time or cannot fork."""
        order = ForkSlot(
            allocation_id=allocation_id,
            local_dir=local_dir,
            log_path=log_path,
            log_max_bytes=self._bound.max_bytes,
            log_max_files=self._bound.max_files,
        )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    await self._ready.wait()
                    try:
                        return await self._fork(order)
                    except ConnectionError:
                        # The template has just ended, and ``run`` has not noticed it yet.
                        self._ready.clear()
        except TimeoutError:
            raise ExternalError(
                f"the template process was not ready within {READY_TIMEOUT_S:.0f} s",
                remedy="see the task manager's log for why it does not start",
            ) from None

    async def _fork(self, order: ForkSlot) -> ForkedSlot:
        """Raises ConnectionError if the command cannot be sent."""
        sock = self._sock
        if sock is None:
            raise ExternalError("the template process ended")
        pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forks[order.allocation_id] = pid
        with contextlib.ExitStack() as ends:
            control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ends.enter_context(control_theirs)
            fds, fds_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ends.enter_context(fds_theirs)
            control.setblocking(False)
            fds.setblocking(False)
            try:
                await send_packet(
                    sock, _encoder.encode(order), [control_theirs.fileno(), fds_theirs.fileno()]
                )
                return ForkedSlot(await self._answer(pid), control, fds)
            except BaseException:
                control.close()
                fds.close()
                raise
            finally:
                self._forks.pop(order.allocation_id, None)

    @staticmethod
    async def _answer(pid: asyncio.Future[int]) -> int:
        done, _ = await asyncio.wait({pid}, timeout=FORK_TIMEOUT_S)
        if not done:
            raise ExternalError(f"the template does not answer within {FORK_TIMEOUT_S:.0f} s")
        return pid.result()

    async def exit_status(self, pid: int, timeout_s: float) -> int | None:
        """The exit code of a slot process (negative: the number of the signal); None if it is not known
        within ``timeout_s``."""
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
