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
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        # The loop's own clock, so that a virtual-time loop controls it.
        return asyncio.get_running_loop().time() * 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ThreadExecutor:
    """Runs a blocking call in the loop's default thread pool."""

    async def run(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)


if TYPE_CHECKING:
    _clock: type[Clock] = SystemClock
    _executor: type[Executor] = ThreadExecutor
