"""Sinks that send rows in batches, one batch at a time, so that rows stay in order and none overtakes a retry."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.connectors.away import FIRST_PAUSE_S, MOST_PAUSE_S, Away
from penstock.connectors.base import SinkWriter
from penstock.errors import ExternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.types import Batch

#: When the task ends, the seconds that the batch under way may still take.
_LAST_WORDS_S = 5.0


class BufferedWriter(SinkWriter):
    """Writes at least once: a checkpoint waits until the rows before its barrier are acknowledged.

    A subclass turns rows into items (``encode``) and sends them (``send``).

    Args:
        where: The connector and its server, for the log.
        max_items: Items of one batch at most.
        max_bytes: Bytes of one batch at most, about; None: no limit.
        interval_ms: Rows wait no longer than this under load.
        retries: How often a failed batch is sent again; None: no limit.
        pauses_s: The pause before the first repetition and the longest pause, in seconds.
        waits: False: a checkpoint does not wait (guarantee ``none``).
    """

    def __init__(
        self,
        where: str,
        *,
        max_items: int,
        max_bytes: int | None = None,
        interval_ms: int = 1000,
        retries: int | None = None,
        pauses_s: tuple[float, float] = (FIRST_PAUSE_S, MOST_PAUSE_S),
        waits: bool = True,
    ) -> None:
        self._away = Away(where, first_s=pauses_s[0], most_s=pauses_s[1])
        self._max_items, self._max_bytes = max(1, max_items), max_bytes
        self._interval_ms, self._retries, self._waits = interval_ms, retries, waits
        self._buffer: deque[Any] = deque()
        self._bytes = 0
        #: Items taken by ``write``, and how many of them were acknowledged.
        self._taken = self._sent = 0
        #: The one task that sends.
        self._sending: asyncio.Task[None] | None = None
        self._closing = False
        #: The error of a failed batch. Its items are in no buffer any more, so nothing may be sent after
        #: them.
        self._failure: BaseException | None = None
        self._flushed_ms = 0

    # -- for subclasses ---------------------------------------------------------------------

    @abstractmethod
    def encode(self, batch: Batch) -> Sequence[Any]:
        """The items of a batch, in order; rows that a policy rejects are left out."""

    @abstractmethod
    async def send(self, items: Sequence[Any]) -> Sequence[Any]:
        """Send ``items`` in order and wait until they are acknowledged; returns those that must be sent
        again.

        After an ExternalError all items are sent again after a pause.
        """

    def size_of(self, item: Any) -> int:
        """Bytes of an item, about."""
        return 0

    # -- the port ---------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        self._check()
        items = self.encode(batch)
        self._buffer.extend(items)
        self._taken += len(items)
        if self._max_bytes is not None:
            self._bytes += sum(map(self.size_of, items))
        now_ms = self.ctx.now_ms()
        if self._full() or now_ms - self._flushed_ms >= self._interval_ms:
            self._start()

    def _full(self) -> bool:
        if self._max_bytes is not None and self._bytes >= self._max_bytes:
            return True
        return len(self._buffer) >= self._max_items

    def ready(self) -> bool:
        return self._sending is None or not self._full()

    async def wait_ready(self) -> None:
        while not self.ready():
            await self._over()
        self._check()

    async def flush(self) -> None:
        await self._until_sent(self._taken)

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        taken = self._taken

        async def acknowledged() -> list[bytes]:
            if self._waits:
                await self._until_sent(taken)
            self._check()
            return []

        return acknowledged()

    async def finish(self) -> None:
        await self._until_sent(self._taken)

    async def close(self) -> None:
        """Waits a moment for the batch under way: a batch that is cut off could still arrive, after rows of
        the next attempt."""
        self._closing = True
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_LAST_WORDS_S)
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.gather(self._sending, return_exceptions=True)

    # -- sending ----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        if self._sending is None and self._buffer:
            self._sending = asyncio.ensure_future(self._send_out())

    async def _over(self) -> None:
        """Waits until the batch under way, if any, is sent; raises its error."""
        if self._sending is not None:
            # ``wait`` instead of a plain await: the waiting task may be cancelled, but the batch must not be.
            await asyncio.wait([self._sending])
        self._check()

    async def _until_sent(self, taken: int) -> None:
        self._check()
        while self._sent < taken:
            self._start()
            await self._over()

    async def _send_out(self) -> None:
        """Sends the items that are in the buffer now, in batches; continues until less than a full batch
        follows them."""
        try:
            goal = self._taken
            while self._sent < goal:
                items = self._next()
                await self._send_one(items)
                self._sent += len(items)
                self._flushed_ms = self.ctx.now_ms()
        except BaseException as err:
            self._failure = err
        finally:
            self._sending = None

    def _next(self) -> list[Any]:
        items: list[Any] = []
        size = 0
        while self._buffer and len(items) < self._max_items:
            if self._max_bytes is not None:
                more = self.size_of(self._buffer[0])
                if items and size + more > self._max_bytes:
                    break
                size += more
                self._bytes -= more
            items.append(self._buffer.popleft())
        return items

    def away(self) -> str | None:
        return self._away.reason

    async def _send_one(self, items: Sequence[Any]) -> None:
        while True:
            try:
                items = await self.send(items)
                if not items:
                    self._away.answered()
                    return
                err: ExternalError = ExternalError(f"{len(items)} rows were not taken")
            except ExternalError as refused:
                err = refused
            pause_s = self._away.failed(err)
            if self._closing or (self._retries is not None and self._away.attempts > self._retries):
                raise err
            await asyncio.sleep(pause_s)
