"""One answer for all who ask at the same time: so that ten clients that poll do not make the dispatcher ask all masters ten times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Clock

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """Computes an answer when somebody asks, and gives it to all who ask within ``fresh_ms`` after its computation began.

    After ``outdated`` nobody gets an answer whose computation began before. A failed computation fails all who wait for it;
    the next one who asks starts another.

    Args:
        compute: Computes the answer. Receivers must not change it.
        clock: Tells the time.
        fresh_ms: The greatest age of an answer, in ms. An answer that takes longer is given to those who wait for it.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]], clock: Clock, fresh_ms: int) -> None:
        self._compute = compute
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._task: asyncio.Task[T] | None = None
        self._begun_ms = 0.0

    def outdated(self) -> None:
        """Something has changed: the answer is computed anew for the next who asks."""
        self._task = None

    async def get(self) -> T:
        """The answer. Raises what the computation raises."""
        task = self._task
        if task is None or (task.done() and not self._fresh(task)):
            self._begun_ms = self._clock.monotonic_ms()
            task = self._task = asyncio.get_running_loop().create_task(self._run())
            task.add_done_callback(_looked_at)
        # A client that goes away must not end the computation for the others.
        return await asyncio.shield(task)

    async def _run(self) -> T:
        return await self._compute()

    def _fresh(self, task: asyncio.Task[T]) -> bool:
        failed = task.cancelled() or task.exception() is not None
        return not failed and self._clock.monotonic_ms() - self._begun_ms <= self._fresh_ms


def _looked_at(task: asyncio.Task[T]) -> None:
    """Python reports an exception that nobody has looked at, although all who waited went away."""
    if not task.cancelled():
        task.exception()
