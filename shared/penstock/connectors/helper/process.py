"""The slot's side of a helper process: starts the process, calls it, notices that it is gone, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from penstock.connectors.helper.channel import Channel
from penstock.connectors.helper.messages import Answer, Call, Failed, Open, Opened, ToSlot
from penstock.errors import FunctionError, HelperLostError, PenstockError, error_from_dict
from penstock.processes import ProcessHandle
from penstock.secrets import unresolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.helper.messages import Part

#: Seconds that a helper process may take to close its part before it is killed.
_CLOSE_S = 10.0
#: The program of a helper process. It has the slot's import path, with the job's files; the working folder is
#: not on it.
_PROGRAM = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from penstock.connectors.helper.child import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]))\n"
)


def opening(part: Part, connector: str, table: TableInfo, ctx: SourceContext, **more: Any) -> Open:
    """The first message for a part of a connector."""
    return Open(
        part=part, connector=connector, schema=table.schema, options=dict(unresolved(table.options)), format=table.format,
        job_id=ctx.job_id, uid=ctx.uid, subtask_index=ctx.subtask_index, parallelism=ctx.parallelism,
        attempt=ctx.attempt, projection=tuple(ctx.projection), metadata=tuple(ctx.metadata),
        pushed=dict(ctx.pushed), config=dict(ctx.config), on_error=ctx.on_error, batch_rows=ctx.batch_rows,
        gathered=ctx.gathered,
        **more,
    )  # fmt: skip


class HelperProcess:
    """One process with one part of a connector in it.

    ``received(message, payload)`` gets every message that is no answer to a call. ``failed()`` is called
    once, when ``failure`` is set: the part has failed or the process is gone, and every further call fails.
    """

    def __init__(
        self,
        what: str,
        received: Callable[[ToSlot, memoryview], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.what = what
        self.failure: PenstockError | None = None
        self._received = received
        self._failed = failed
        self._calls: dict[int, asyncio.Future[tuple[Answer, memoryview]]] = {}
        self._next_call = 1
        self._closing = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ToSlot] | None = None
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id; 0 before the process is started."""
        return 0 if self._process is None else self._process.pid

    async def start(self, message: Open, ctx: SourceContext) -> Opened:
        """Start the process and open the part in it. Raises the error that opening raised in the process."""
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        try:
            # The fork runs in the helper thread, because it may block the data thread for too long.
            self._process = await ctx.run(lambda: _spawn(there))
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        self._handle = ProcessHandle(self.pid)
        self._opened: asyncio.Future[Opened] = loop.create_future()
        loop.add_reader(self._handle.fileno(), self._has_ended)
        try:
            self._channel = await Channel.over(here, ToSlot, self._message, self._lost)
            self.send(message)
            return await self._opened
        except BaseException:
            await self.kill()
            raise

    def send(self, message: Any, payload: Any = b"") -> None:
        """Send a message, with binary data, to the process."""
        assert self._channel is not None, "the helper process was used before it was started"
        self._channel.send(message, payload)

    def check(self) -> None:
        """Raise the error that ended the part, if there is one."""
        if self.failure is not None:
            raise self.failure

    def begin(
        self, make: Callable[[int], Any], payload: Any = b""
    ) -> asyncio.Future[tuple[Answer, memoryview]]:
        """Send the message that ``make`` makes for a new call number; returns the future of the answer."""
        self.check()
        number, self._next_call = self._next_call, self._next_call + 1
        answer: asyncio.Future[tuple[Answer, memoryview]] = asyncio.get_running_loop().create_future()
        # A caller that is cancelled meanwhile never retrieves the exception, and asyncio would complain.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._calls[number] = answer
        self.send(make(number), payload)
        return answer

    async def call(self, method: str, payload: Any = b"", **arguments: Any) -> tuple[Answer, memoryview]:
        """Call a method of the part in the helper process; return its result or raise its error."""
        return await self.begin(lambda n: Call(call=n, method=method, arguments=arguments), payload)

    async def close(self) -> None:
        """Close the part and end the process; kill the process when it does not end by itself. A caller that is
        cancelled leaves no process either."""
        try:
            if self._channel is not None and self.failure is None and not self._closing:
                self._closing = True
                with contextlib.suppress(PenstockError, TimeoutError):
                    await asyncio.wait_for(self.call("close"), _CLOSE_S)
                self._channel.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), _CLOSE_S)
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the process now, and wait until it is gone."""
        self._closing = True
        if self._process is not None and not self._ended.is_set():
            self._handle.kill()
            try:
                await self._ended.wait()
            except asyncio.CancelledError:
                self._has_ended()  # The loop may not turn again; the wait for a killed process is short.
                raise
        if self._channel is not None:
            self._channel.abort()

    # -- what comes -----------------------------------------------------------------------------

    def _message(self, message: ToSlot, payload: memoryview) -> None:
        match message:
            case Opened():
                if not self._opened.done():
                    self._opened.set_result(message)
            case Answer():
                answer = self._calls.pop(message.call)
                if not answer.done():
                    answer.set_result((message, payload))
            case Failed(call=int() as number):
                answer = self._calls.pop(number)
                if not answer.done():
                    answer.set_exception(as_error(message, self.what))
            case Failed() if not self._opened.done():
                self._opened.set_exception(as_error(message, self.what))
            case _:
                self._received(message, payload)

    def _lost(self) -> None:
        """The other end of the socket is gone, so the process has ended or is about to."""
        if not self._closing and not self._ended.is_set():
            self._handle.kill()

    def _has_ended(self) -> None:
        if self._ended.is_set():
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._handle.fileno())
        self._handle.close()
        assert self._process is not None
        code = self._process.wait()
        self._ended.set()
        self.fail(
            HelperLostError(
                f"the helper process of {self.what} ended",
                expected="a process that runs as long as its task",
                got=f"signal {-code}" if code < 0 else f"exit code {code}",
                where=f"process {self.pid}",
                remedy="the task is restored from the last checkpoint; look for the reason in the task manager's "
                "output (the kernel kills a process when memory runs out)",
            )
        )

    def fail(self, error: PenstockError) -> None:
        """The part has failed with ``error``; only the first error counts."""
        if self.failure is not None:
            return
        self.failure = error
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(error)
        if not self._closing:
            self._failed()


def as_error(message: Failed, what: str) -> PenstockError:
    """The error of the helper process, with its traceback there. An exception that is no ``PenstockError``
    was raised by the connector's code."""
    if message.error.get("type"):
        error = error_from_dict(message.error)
    else:
        error = FunctionError(
            f"{what} raised {message.error['message']}",
            where=what,
            remedy="correct the connector",
            user_traceback=message.traceback,
        )
    error.add_note(f"In the helper process of {what}:\n{message.traceback}")
    return error


def _spawn(sock: socket.socket) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        "-P",
        "-u",
        "-c",
        _PROGRAM,
        json.dumps(sys.path),
        str(sock.fileno()),
        str(os.getpid()),
    ]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[sock.fileno()])
