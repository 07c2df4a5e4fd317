"""What a task has on the event loop beside its steps: background tasks, and the timer that wakes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.cancelling import end_tasks

if TYPE_CHECKING:
    from collections.abc import Callable


class BackgroundTasks:
    """The background tasks of one owner. ``fail(error)``: called with the error of one that has failed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fail: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._fail = fail
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Runs ``coroutine`` as a background task."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def end(self) -> None:
        """Cancels all of them but the one that calls this, and waits until they have ended."""
        me = asyncio.current_task()
        await end_tasks([task for task in self._tasks if task is not me])

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


class WakeTimer:
    """Calls ``wake`` at the earliest processing time that was asked for.

    ``now_ms``: processing time, ms since the epoch.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], wake: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def arm(self, at_ms: int) -> None:
        """Calls ``wake`` at this processing time, or earlier if an earlier time is armed."""
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        delay = max(0, at_ms - self._now_ms()) / 1000
        self._handle = self._loop.call_later(delay, self._fired)

    def cancel(self) -> None:
        """Calls ``wake`` no more, unless the timer is armed again."""
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        self._handle = None
        self._wake()
