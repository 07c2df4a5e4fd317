"""Runs a reader in its helper process. The reader reads ahead as far as the slot's window allows, and sends
its positions with all rows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from penstock.cancelling import end_tasks
from penstock.connectors.base import SourceReader
from penstock.connectors.helper.context import failure
from penstock.connectors.helper.messages import (
    WINDOW_BYTES,
    AddSplits,
    CaughtUp,
    Completed,
    Credit,
    Open,
    Opened,
    Probe,
    Rows,
    ToHelper,
    encoded,
)
from penstock.errors import InternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.base import Connector, Fetched, Split
    from penstock.connectors.helper.context import HelperContext
    from penstock.types.logical import Schema


class ReaderPart:
    """Runs a connector's reader in the helper process, within the credit of the slot."""

    def __init__(
        self, connector: Connector, context: HelperContext, _: Open, send: Callable[..., None]
    ) -> None:
        self._reader = connector.reader(context.table)
        self._context = context
        self._send = send
        self._sent_bytes = 0
        #: Set when the slot has sent splits, or credit for more rows.
        self._changed = asyncio.Event()
        self._known: dict[str, Split] = {}
        self._finished: set[str] = set()
        self._schema: Schema | None = None
        self._pending: int | None = None
        self._away: str | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> Opened:
        """Open the reader. Raises UnsupportedError for a reader that defines ``dormant``."""
        kind = type(self._reader)
        if kind.dormant is not SourceReader.dormant:
            raise UnsupportedError(
                "a reader with 'dormant' in a helper process",
                expected="splits that wait for no others: the slot asks before the process could answer",
                got=f"{kind.__module__}.{kind.__qualname__}.dormant",
                remedy="declare runs = 'native' or 'loop'",
            )
        await self._reader.open(self._context.source)
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return Opened()

    def received(self, message: ToHelper, payload: memoryview) -> None:
        """Handle a message of the slot: new splits or credit."""
        match message:
            case AddSplits():
                self._known.update({split.id: split for split in message.splits})
                self._reader.add_splits(message.splits)
            case Credit():
                self._sent_bytes -= message.taken_bytes
                self._context.source.batch_rows = message.batch_rows
            case Completed():
                self._reader.on_checkpoint_complete(message.checkpoint_id, message.positions)
                return
            case Probe():
                now = time.monotonic()
                self._context.tell_metrics()
                done = [split for split in self._known if self._reader.caught_up(split)]
                self._send(CaughtUp(splits=tuple(done), at_s=now))
                return
            case _:
                raise InternalError("a message that no reader knows", got=repr(message))
        self._changed.set()

    async def close(self) -> None:
        """Stop reading and close the reader."""
        if self._reading is not None:
            await end_tasks([self._reading])
        await self._reader.close()

    async def _read(self) -> None:
        try:
            while True:
                self._changed.clear()
                if self._sent_bytes >= WINDOW_BYTES or not self._known:
                    await self._changed.wait()
                    continue
                fetched = self._reader.poll()
                self._tell(fetched)
                if fetched is not None:
                    await asyncio.sleep(0)
                elif self._finished >= self._known.keys():
                    await self._changed.wait()
                else:
                    await self._wait()
        except Exception as err:
            self._context.tell_metrics()
            self._send(failure(err))

    async def _wait(self) -> None:
        """Wait until there may be rows, or the slot has sent a message."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(self._reader.wait())
        changed = loop.create_task(self._changed.wait())
        try:
            await asyncio.wait((waiting, changed), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
        finally:
            await end_tasks([waiting, changed])

    def _tell(self, fetched: Fetched | None) -> None:
        """Send rows with the positions after them, or only what has changed."""
        moved = tuple(split for split in self._reader.snapshot() if self._known.get(split.id) != split)
        finished = tuple(self._reader.finished_splits() - self._finished)
        pending, away = self._reader.pending_records(), self._reader.away()
        self._known.update({split.id: split for split in moved})
        self._finished.update(finished)
        self._context.tell_metrics()
        if fetched is None:
            if moved or finished or (pending, away) != (self._pending, self._away):
                self._send(Rows(splits=moved, finished=finished, pending_records=pending, away=away))
            self._pending, self._away = pending, away
            return
        batch, payload = fetched.batch, encoded(fetched.batch)
        schema = batch.schema if batch.schema != self._schema else None
        self._schema, self._pending, self._away = batch.schema, pending, away
        self._sent_bytes += payload.size
        message: Any = Rows(
            split_id=fetched.split_id,
            schema=schema,
            splits=moved,
            finished=finished,
            pending_records=pending,
            away=away,
        )
        self._send(message, payload)
