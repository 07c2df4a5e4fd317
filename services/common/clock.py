"""The real clock and the real executor behind their ports."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Clock, Executor

T = TypeVar("T")


class SystemClock:
    """The real time; see ``penstock.ports.Clock``."""

    def now_ms(self) -> int:
        """See ``Clock.now_ms``."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """See ``Clock.monotonic_ms``. The event loop's own time."""
        # The loop's own clock, so that a virtual-time loop controls it.
        return asyncio.get_running_loop().time() * 1000

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        await asyncio.sleep(seconds)


class ThreadExecutor:
    """Runs a blocking call in the loop's default thread pool."""

    async def run(self, call: Callable[[], T]) -> T:
        """See ``Executor.run``."""
        return await asyncio.to_thread(call)


if TYPE_CHECKING:
    _clock: type[Clock] = SystemClock
    _executor: type[Executor] = ThreadExecutor
