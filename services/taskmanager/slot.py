"""One slot process: its control channel in both directions, the sockets passed to it, and its end."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ExternalError
from penstock.log_events import EventLog
from penstock.messages.slot import FromSlot, ShutdownSlot
from penstock.messages.slot_output import newest
from penstock.messages.stack_samples import SampleStacks, StacksSampled
from penstock.messages.taps import EdgeTapped, TapEdge
from penstock.processes import ProcessHandle
from penstock_services.common.packets import send_packet
from penstock_services.common.template import describe_status
from penstock_services.taskmanager.usage import Usage

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from penstock.messages.slot import Deploy
    from penstock.messages.taps import Tap
    from penstock_services.taskmanager.template import ForkedSlot, Template

_log = EventLog("penstock.taskmanager.slot")
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromSlot] = msgspec.msgpack.Decoder(FromSlot)

#: How long sending to a slot that does not read may take.
SEND_TIMEOUT_S = 5.0
#: How long to read, after the end of the process, the reports that it wrote before. (A helper process of the
#: user may hold the channel open.)
DRAIN_TIMEOUT_S = 2.0
#: How long to wait for the exit code, which the template reports at once, or a little later on a busy
#: machine.
EXIT_CODE_TIMEOUT_S = 5.0
#: How long to wait for an answer beyond the time that making it needs.
ANSWER_PATIENCE_S = 2.0
_MAX_FRAME_BYTES = 64 * 1024 * 1024
_LAST_WORDS_BYTES = 2000


class SlotProcess:
    """One slot process. ``number``: its process number in the slot table. ``deploy``: what it runs."""

    def __init__(
        self,
        number: int,
        deploy: Deploy,
        forked: ForkedSlot,
        template: Template,
        local_dir: Path,
        log_path: Path,
    ) -> None:
        self.number = number
        self.deploy = deploy
        self.pid = forked.pid
        self._usage = Usage(forked.pid)
        self.local_dir = local_dir
        self.log_path = log_path
        self._template = template
        self._control = forked.control
        self._fds = forked.fds
        self._sending = asyncio.Lock()
        self._passing = asyncio.Lock()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._gone = asyncio.Event()
        self._process: ProcessHandle | None = None
        self._heard_s = 0.0
        #: Request id → the answer that is awaited.
        self._answers: dict[str, asyncio.Future[Any]] = {}
        #: Whether it was reported as stalled.
        self.stalled = False
        #: The frame that was reported, if it is stalled.
        self.stalled_in: str | None = None
        #: The exit code, once the process has ended and the template has reported it.
        self.exit_code: int | None = None

    async def start(self) -> None:
        """Watches the process, opens its channel, and sends ``Deploy``. Raises ExternalError if the slot does
        not take it."""
        loop = asyncio.get_running_loop()
        self._heard_s = loop.time()
        try:
            self._process = ProcessHandle(self.pid)
            loop.add_reader(self._process, self._died)
        except ProcessLookupError:
            self._gone.set()  # the process ended before it could be watched
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._control)
        await self.send(self.deploy)

    def _died(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process)
        self._gone.set()

    # -- down -------------------------------------------------------------------------

    async def send(self, message: Any) -> None:
        """Sends one message. Raises ExternalError if the process has ended or does not read."""
        data = _encoder.encode(message)
        writer = self._writer
        assert writer is not None, "send before start"
        async with self._sending:
            writer.write(len(data).to_bytes(4, "big") + data)
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await writer.drain()
            except TimeoutError:
                raise ExternalError(
                    f"the slot's process {self.pid} has not read its commands for {SEND_TIMEOUT_S:g} s",
                    where=self.deploy.allocation_id,
                ) from None
            except OSError as err:
                raise ExternalError(
                    f"the slot's process {self.pid} is gone: {err}", where=self.deploy.allocation_id
                ) from err

    async def pass_connection(self, preface: dict[str, Any], sock: socket.socket) -> None:
        """Passes a data socket to the slot. Raises ExternalError if the slot does not take it."""
        async with self._passing:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send_packet(self._fds, _encoder.encode(preface), [sock.fileno()])
            except (OSError, TimeoutError) as err:
                raise ExternalError(
                    f"the slot's process {self.pid} does not take a data connection: {err or 'time-out'}",
                    where=self.deploy.allocation_id,
                ) from err

    async def sample(self, samples: int, interval_ms: int) -> StacksSampled | None:
        """What the slot does in the next ``samples * interval_ms``; None if it does not answer."""
        request_id = uuid.uuid4().hex
        asked = SampleStacks(request_id=request_id, samples=samples, interval_ms=interval_ms)
        found: StacksSampled | None = await self._ask(request_id, asked, samples * interval_ms / 1000)
        return found

    async def tap(self, tap: Tap) -> EdgeTapped | None:
        """The rows of an edge that passed here since the tap's last request; None if the slot does not answer."""
        request_id = uuid.uuid4().hex
        found: EdgeTapped | None = await self._ask(request_id, TapEdge(request_id=request_id, tap=tap))
        return found

    async def _ask(self, request_id: str, message: Any, takes_s: float = 0.0) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        try:
            async with asyncio.timeout(takes_s + ANSWER_PATIENCE_S):
                await self.send(message)
                return await answer
        except (TimeoutError, ExternalError):
            return None
        finally:
            del self._answers[request_id]

    def answered(self, report: StacksSampled | EdgeTapped) -> None:
        """Takes the answer to a request. One that comes too late is dropped."""
        answer = self._answers.get(report.request_id)
        if answer is not None and not answer.done():
            answer.set_result(report)

    async def end(self, grace_ms: int) -> None:
        """Ends the process: it may stop in an orderly way within ``grace_ms``, then it is killed. Returns
        when it has ended."""
        if not self._gone.is_set():
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self.send(ShutdownSlot())
                    await self._gone.wait()
            except (ExternalError, TimeoutError):
                self.kill()
        await self._gone.wait()

    def kill(self) -> None:
        """Kills the process, if it runs."""
        if self._process is not None:
            self._process.kill()

    # -- up ---------------------------------------------------------------------------

    async def reports(self) -> AsyncIterator[tuple[FromSlot, int]]:
        """(report, its encoded size) until the slot closes its end. A slot that sends a malformed report is
        killed."""
        while True:
            try:
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                if length > _MAX_FRAME_BYTES:
                    raise msgspec.DecodeError(f"a frame of {length} bytes")
                report = _decoder.decode(await self._reader.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            except msgspec.DecodeError as err:
                _log.error("slot_report_malformed", slot_pid=self.pid, error=err)
                self.kill()
                return
            self._heard_s = asyncio.get_running_loop().time()
            yield report, length

    async def gone(self) -> None:
        """Returns when the process has ended."""
        await self._gone.wait()

    async def last_words(self) -> str:
        """How the process ended, as text, with the end of its log. Call it after ``gone``."""
        status = self.exit_code = await self._template.exit_status(self.pid, EXIT_CODE_TIMEOUT_S)
        reason = f"the slot's process {self.pid} ended with {describe_status(status)}"
        lines = await self.log_tail()
        return f"{reason}; the end of its log:\n{lines}" if lines else reason

    def silent_ms(self) -> int:
        """Milliseconds since the last report. A slot whose step does not end reports nothing."""
        return round((asyncio.get_running_loop().time() - self._heard_s) * 1000)

    async def log_tail(self, limit_bytes: int = _LAST_WORDS_BYTES) -> str:
        """The last ``limit_bytes`` of the slot's output; empty if there is none."""
        return await asyncio.to_thread(self._tail, limit_bytes)

    def _tail(self, limit_bytes: int) -> str:
        try:
            with newest(self.log_path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - limit_bytes))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def close(self) -> None:
        """Closes the channels. The process must have ended."""
        if self._process is not None:
            asyncio.get_running_loop().remove_reader(self._process)
            self._process.close()
            self._process = None
        if self._writer is not None:
            self._writer.close()  # and the socket with it
        else:
            self._control.close()
        self._fds.close()

    def usage(self) -> dict[str, Any]:
        """See ``Usage.read``."""
        return self._usage.read()
