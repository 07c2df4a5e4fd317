"""The proxy of a writer that runs in a helper process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.connectors.base import SinkWriter
from penstock.connectors.helper.context import report
from penstock.connectors.helper.messages import (
    WINDOW_BYTES,
    Bad,
    Cut,
    Failed,
    Metrics,
    Taken,
    ToSlot,
    Waits,
    Write,
    encoded,
)
from penstock.connectors.helper.process import HelperProcess, as_error, opening
from penstock.errors import InternalError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types.batch import Batch


class HelperWriter(SinkWriter):
    """Sends batches and cuts in order. Rows that the process took and did not make durable are lost with the
    process; then the next checkpoint fails, and so does the task."""

    def __init__(self, connector: str, table: TableInfo) -> None:
        self._connector = connector
        self._table = table
        self._process = HelperProcess(f"connector '{connector}'", self._received, self._wake)
        self._room = asyncio.Event()
        self._room.set()
        self._sent_bytes = 0
        self._writes = 0
        self._needs_commit = False
        self._away: str | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        opened = await self._process.start(
            opening("writer", self._connector, self._table, ctx, restored=tuple(restored)), ctx
        )
        self._flushes, self._commits = opened.flushes, opened.commits
        self._needs_commit = opened.needs_commit

    @property
    def pid(self) -> int:
        """The id of the helper process."""
        return self._process.pid

    def write(self, batch: Batch) -> None:
        self._process.check()
        rows = encoded(batch)
        self._sent_bytes += rows.size
        self._writes += 1
        self._needs_commit = self._commits
        if self._sent_bytes >= WINDOW_BYTES:
            self._room.clear()
        self._process.send(Write(), rows)

    def ready(self) -> bool:
        return self._room.is_set()

    async def wait_ready(self) -> None:
        await self._room.wait()
        self._process.check()

    def away(self) -> str | None:
        return self._away

    async def flush(self) -> None:
        self._process.check()
        if self._flushes:
            await self._process.call("flush")

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        cut = self._process.begin(lambda number: Cut(call=number, checkpoint_id=checkpoint_id))

        async def durable() -> list[bytes]:
            answer, _ = await cut
            return list(answer.items)

        return durable()

    async def commit(self, checkpoint_id: int) -> None:
        await self._process.call("commit", checkpoint_id=checkpoint_id)

    def needs_commit(self) -> bool:
        return self._needs_commit

    async def finish(self) -> None:
        await self._process.call("finish")

    async def stopped(self) -> None:
        await self._process.call("stopped")

    async def close(self) -> None:
        await self._process.close()

    async def kill(self) -> None:
        """End the process as a crash would."""
        await self._process.kill()

    async def abandon(self, ctx: SourceContext) -> None:
        # The writer is not opened, because opening would commit.
        await self._process.start(opening("writer", self._connector, self._table, ctx, abandons=True), ctx)
        try:
            await self._process.call("abandon")
        finally:
            await self._process.close()

    def _received(self, message: ToSlot, _: memoryview) -> None:
        match message:
            case Taken():
                self._sent_bytes -= message.taken_bytes
                if self._sent_bytes < WINDOW_BYTES:
                    self._room.set()
                # An older report does not cover the rows that were sent since.
                if message.writes == self._writes:
                    self._needs_commit = message.needs_commit
            case Waits():
                self._away = message.away
            case Bad() | Metrics():
                try:
                    report(message, self.ctx)
                except PenstockError as err:
                    self._process.fail(err)
            case Failed():
                self._process.fail(as_error(message, self._process.what))
            case _:
                raise InternalError("a message that no writer sends", got=repr(message))

    def _wake(self) -> None:
        self._room.set()
