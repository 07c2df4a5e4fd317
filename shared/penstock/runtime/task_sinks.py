"""A task's sinks: whether they accept rows, and when their rows are flushed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.operators.drivers import PausingOperator, SinkDriver
    from penstock.runtime.chain import Chain


class TaskSinks:
    """The sinks of a task. ``spawn`` starts a background task of the task; ``wake``: a sink may accept rows again."""

    def __init__(
        self, chain: Chain, *, spawn: Callable[[Any], asyncio.Task[Any]], wake: Callable[[], None]
    ) -> None:
        self._sinks = chain.sinks
        self._pausing = chain.pausing
        self._spawn = spawn
        self._wake = wake
        self._waits: dict[PausingOperator, asyncio.Task[None]] = {}
        self._flushes: dict[SinkDriver, asyncio.Task[None]] = {}
        #: True if a sink may hold rows that were not flushed.
        self.unflushed = False

    def busy(self) -> bool:
        """Whether some sink accepts no rows now, or an operator awaits a response."""
        busy = False
        for operator in self._pausing:
            if not operator.ready():
                busy = True
                if operator not in self._waits:
                    self._waits[operator] = self._spawn(self._await(operator))
        return busy

    async def _await(self, operator: PausingOperator) -> None:
        try:
            await operator.wait_ready()
        finally:
            del self._waits[operator]
            self._wake()

    def flush_soon(self) -> None:
        """Flushes, when the input ran empty, the rows since the last flush."""
        if not self.unflushed:
            return
        self.unflushed = False
        for sink in self._sinks:
            if sink in self._flushes:
                self.unflushed = True  # They are flushed when this flush is over.
            elif sink.has_flush:
                self._flushes[sink] = self._spawn(self._flush(sink))

    async def _flush(self, sink: SinkDriver) -> None:
        try:
            await sink.flush()
        finally:
            del self._flushes[sink]
            self._wake()

    async def commit(self, checkpoint_id: int) -> None:
        """Commit the checkpoint in all sinks."""
        for sink in self._sinks:
            await sink.commit(checkpoint_id)

    def wants_final_checkpoint(self) -> bool:
        """Whether output of some sink waits for a commit."""
        return any(sink.wants_final_checkpoint() for sink in self._sinks)

    async def flushed(self) -> None:
        """Waits until all running flushes have ended."""
        if self._flushes:
            await asyncio.wait(list(self._flushes.values()))

    async def complete(self, *, stopped: bool) -> None:
        """All input has ended. ``stopped``: a savepoint has ended it."""
        for sink in self._sinks:
            await sink.flush()
            await sink.complete(stopped=stopped)
