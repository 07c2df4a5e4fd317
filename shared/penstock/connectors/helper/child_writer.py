"""Runs a writer in its helper process. Batches and cuts are handled in order, at the pace of the writer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.cancelling import end_tasks
from penstock.connectors.base import SinkWriter
from penstock.connectors.helper.context import failure
from penstock.connectors.helper.messages import (
    Answer,
    Call,
    Cut,
    Open,
    Opened,
    Taken,
    ToHelper,
    Waits,
    Write,
    decoded,
)
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.connectors.base import Connector
    from penstock.connectors.helper.context import HelperContext


#: How often the slot is told of a server that the writer waits for, in seconds.
_AWAY_S = 0.5


class WriterPart:
    """Runs a connector's writer in the helper process."""

    def __init__(
        self, connector: Connector, context: HelperContext, message: Open, send: Callable[..., None]
    ) -> None:
        self._writer = connector.writer(context.table)
        self._context = context
        self._send = send
        self._opening = message
        self._writes = 0
        self._away: str | None = None
        #: Messages from the slot, in order. They wait while the writer is not ready.
        self._work: asyncio.Queue[tuple[ToHelper, memoryview]] = asyncio.Queue()
        #: Flushes, pre-commits and commits never overlap, as in a slot.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Opened:
        """Open the writer; the result says whether it flushes and commits."""
        if type(self._writer).away is not SinkWriter.away:
            self._start(self._tell_away())
        if not self._opening.abandons:
            await self._writer.open(self._context.source, self._opening.restored)
        self._start(self._take())
        kind = type(self._writer)
        commits = kind.commit is not SinkWriter.commit or kind.needs_commit is not SinkWriter.needs_commit
        waits = not self._opening.abandons and self._writer.needs_commit()
        return Opened(flushes=kind.flush is not SinkWriter.flush, commits=commits, needs_commit=waits)

    def received(self, message: ToHelper, payload: memoryview) -> None:
        """Queue a message of the slot; messages are handled in order."""
        self._work.put_nowait((message, payload))

    async def close(self) -> None:
        """Stop the work and close the writer."""
        await end_tasks(list(self._tasks))
        await self._writer.close()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self) -> None:
        try:
            while True:
                message, payload = await self._work.get()
                match message:
                    case Write():
                        await self._write(payload)
                    case Cut():
                        # The call cuts the epoch now; only its completion waits.
                        cut = self._writer.begin_checkpoint(message.checkpoint_id)
                        self._start(self._awaited(message.call, cut))
                    case Call():
                        self._start(self._awaited(message.call, self._called(message)))
                    case _:
                        raise InternalError("a message that no writer knows", got=repr(message))
        except Exception as err:
            self._send(failure(err))

    async def _tell_away(self) -> None:
        while True:
            away = self._writer.away()
            if away != self._away:
                self._away = away
                self._send(Waits(away=away))
            await asyncio.sleep(_AWAY_S)

    async def _write(self, payload: memoryview) -> None:
        while not self._writer.ready():
            await self._writer.wait_ready()
        self._writer.write(decoded(self._context.source.schema, payload))
        self._writes += 1
        self._tell(payload.nbytes)

    def _tell(self, taken_bytes: int) -> None:
        self._context.tell_metrics()
        self._send(
            Taken(taken_bytes=taken_bytes, writes=self._writes, needs_commit=self._writer.needs_commit())
        )

    async def _awaited(self, call: int, work: Awaitable[list[bytes] | None]) -> None:
        try:
            async with self._turn:
                items = await work
        except Exception as err:
            self._send(failure(err, call))
            return
        self._tell(0)
        self._send(Answer(call=call, items=tuple(items or ())))

    async def _called(self, message: Call) -> None:
        match message.method:
            case "flush":
                await self._writer.flush()
            case "commit":
                await self._writer.commit(message.arguments["checkpoint_id"])
            case "finish":
                await self._writer.finish()
            case "stopped":
                await self._writer.stopped()
            case "abandon":
                await self._writer.abandon(self._context.source)
            case other:
                raise InternalError(f"a writer has no method '{other}'")
