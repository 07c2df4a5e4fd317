"""The reader of the single split of a database that is followed: a snapshot, changes, and a server that may be
away.

One reader reads all tables, so that the rows of a key stay in order.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import Fetched, SourceReader, Split
from penstock.errors import ExternalError

if TYPE_CHECKING:
    from penstock.types.batch import Batch

#: The id of the single split.
SPLIT = "changes"
#: Pauses between attempts to reach the server, in seconds.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
#: How long the reader waits for the socket before it checks again, in seconds.
LOOK_S = 1.0


class FollowingReader(SourceReader):
    """Hands over the batches that ``_read`` prepares, each with the position after it. If the server does not
    answer, the reader hangs up, waits, and continues from its position."""

    #: The position of the split. Its ``cursor`` is the progress of the snapshot; None: it is complete.
    _position: Any

    def __init__(self) -> None:
        self._split: Split | None = None
        #: Whether changes are read, too.
        self._follows = True
        #: Batches that were read, each with the position after it.
        self._ready: deque[tuple[Batch, Any]] = deque()
        self._retry_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._event = asyncio.Event()
        #: Why the server was lost; None: it answers.
        self._gone: str | None = None

    @abstractmethod
    def _connect(self) -> None:
        """Make the connections that are missing. May block; ExternalError: the server is away."""

    @abstractmethod
    def _read(self) -> bool:
        """Read a chunk, or the changes that have arrived, into ``_ready``; False if there is nothing now."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Close the connections, and drop what was read and not handed over."""

    @abstractmethod
    def _reconnecting(self, err: ExternalError, pause_s: float) -> None:
        """Log that the server is away."""

    def poll(self) -> Fetched | None:
        if self._split is None or time.monotonic() < self._retry_at:
            return None
        try:
            while not self._ready and not self._done:
                self._connect()
                self._pause_s, self._gone = FIRST_PAUSE_S, None
                if not self._read():
                    return None
        except ExternalError as err:
            self._lost(err)
            return None
        if not self._ready:
            return None
        batch, self._position = self._ready.popleft()
        return Fetched(self._split.id, batch)

    @property
    def _done(self) -> bool:
        return not self._follows and self._split is not None and self._position.cursor is None

    def _lost(self, err: ExternalError) -> None:
        """The server does not answer: keep the position, and make everything that depends on a connection
        again."""
        self._hang_up()
        self._gone = f"{err.where}: {err.message}" if err.where else err.message
        self._retry_at = time.monotonic() + self._pause_s
        self._reconnecting(err, self._pause_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)

    def away(self) -> str | None:
        return self._gone

    async def wait(self) -> None:
        if self._split is None or self._done:
            self._event.clear()
            await self._event.wait()
        elif (pause_s := self._retry_at - time.monotonic()) > 0:
            await asyncio.sleep(pause_s)
        elif not self._ready:
            await self._wait_for_changes()

    async def _wait_for_changes(self) -> None:
        """Wait until the stream of changes may have more."""

    def finished_splits(self) -> set[str]:
        return {self._split.id} if self._split is not None and self._done and not self._ready else set()

    def snapshot(self) -> list[Split]:
        if self._split is None:
            return []
        return [msgspec.structs.replace(self._split, position=self._position.to_json())]


async def readable(number: int, most_s: float) -> None:
    """Wait until the file ``number`` can be read, at most ``most_s`` seconds."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(number, came.set)
    try:
        async with asyncio.timeout(most_s):
            await came.wait()
    except TimeoutError:
        return
    finally:
        loop.remove_reader(number)
