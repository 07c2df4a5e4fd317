"""The proxies of enumerators and readers that run in a helper process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split
from penstock.connectors.helper.context import report
from penstock.connectors.helper.messages import (
    AddSplits,
    Bad,
    CaughtUp,
    Completed,
    Credit,
    Failed,
    Metrics,
    Probe,
    Rows,
    ToSlot,
    decoded,
)
from penstock.connectors.helper.process import HelperProcess, as_error, opening
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types.logical import Schema

#: How old the helper's report that a split has caught up may be, in seconds. If the slot or the helper was
#: held up, an older report may be wrong.
_FRESH_S = 1.0


class HelperEnumerator(SourceEnumerator):
    """Calls an enumerator in a helper process. ``local``: an enumerator in this process, used only for its
    attributes."""

    def __init__(self, connector: str, table: TableInfo, local: SourceEnumerator) -> None:
        self._connector = connector
        self._table = table
        self._local = local
        self._process: HelperProcess | None = None
        self.discovery_interval_ms = local.discovery_interval_ms

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        process = self._process
        if process is None:
            process = HelperProcess(f"connector '{self._connector}'", lambda *_: None)
            await process.start(opening("enumerator", self._connector, self._table, ctx), ctx)
            self._process = process
        answer, _ = await process.call("discover", known=sorted(known), pinned=self.pinned)
        if self.discovery_interval_ms is None:
            await self.close()  # no later discovery needs the process
        return answer.splits

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close()


class HelperReader(SourceReader):
    """Takes the rows that the reader in the helper process has read ahead, in their order. A snapshot
    consists of the positions that came with the rows taken so far, so it needs no answer from the process."""

    def __init__(self, connector: str, table: TableInfo) -> None:
        self._connector = connector
        self._table = table
        self._process = HelperProcess(f"connector '{connector}'", self._received, self._wake)
        #: Messages with their payloads, in order; ``poll`` applies them.
        self._waiting: deque[tuple[ToSlot, memoryview]] = deque()
        self._news = asyncio.Event()
        self._splits: dict[str, Split] = {}
        self._finished: set[str] = set()
        #: The splits that have caught up; the next attribute has the time at which that was true.
        self._caught_up: frozenset[str] = frozenset()
        self._caught_up_at = -_FRESH_S
        self._probing = False
        self._schema: Schema | None = None
        self._pending: int | None = None
        self._away: str | None = None
        self._rows_waiting = 0

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        await self._process.start(opening("reader", self._connector, self._table, ctx), ctx)

    @property
    def pid(self) -> int:
        """The id of the helper process."""
        return self._process.pid

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits.update({split.id: split for split in splits})
        self._caught_up = frozenset()
        self._process.send(AddSplits(splits=tuple(splits)))

    def poll(self) -> Fetched | None:
        while self._waiting:
            message, payload = self._waiting.popleft()
            fetched = self._applied(message, payload)
            if fetched is not None:
                return fetched
        self._process.check()
        self._news.clear()
        return None

    def _applied(self, message: ToSlot, payload: memoryview) -> Fetched | None:
        match message:
            case Rows():
                self._splits.update({split.id: split for split in message.splits})
                self._finished.update(message.finished)
                self._pending, self._away = message.pending_records, message.away
                self._schema = self._schema if message.schema is None else message.schema
                if message.split_id is None:
                    return None
                self._rows_waiting -= 1
                assert self._schema is not None
                self._process.send(Credit(taken_bytes=payload.nbytes, batch_rows=self.ctx.batch_rows))
                return Fetched(message.split_id, decoded(self._schema, payload))
            case CaughtUp():
                self._probing = False
                # Rows that were read after the report would be in the queue.
                if not self._rows_waiting:
                    self._caught_up, self._caught_up_at = frozenset(message.splits), message.at_s
            case Bad() | Metrics():
                report(message, self.ctx)
            case Failed():
                self._process.fail(as_error(message, self._process.what))
                self._process.check()
            case _:
                raise InternalError("a message that no reader sends", got=repr(message))
        return None

    async def wait(self) -> None:
        self._process.check()
        await self._news.wait()

    def finished_splits(self) -> set[str]:
        return set(self._finished)

    def caught_up(self, split_id: str) -> bool:
        """Whether the helper reported a moment ago that the split has caught up. This call also asks for a
        new report."""
        if split_id in self._finished:
            return True
        if self._rows_waiting:
            return False
        fresh = time.monotonic() - self._caught_up_at < _FRESH_S
        if not self._probing and self._process.failure is None:
            self._probing = True
            self._process.send(Probe())
        return fresh and split_id in self._caught_up

    def snapshot(self) -> list[Split]:
        return list(self._splits.values())

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        self._process.send(Completed(checkpoint_id=checkpoint_id, positions=tuple(positions)))

    def away(self) -> str | None:
        return self._away

    def pending_records(self) -> int | None:
        return self._pending

    async def close(self) -> None:
        await self._process.close()

    async def kill(self) -> None:
        """End the process as a crash would."""
        await self._process.kill()

    def _received(self, message: ToSlot, payload: memoryview) -> None:
        if isinstance(message, Rows) and message.split_id is not None:
            self._rows_waiting += 1
            self._caught_up -= {message.split_id}
        self._waiting.append((message, payload))
        self._wake()

    def _wake(self) -> None:
        self._news.set()
