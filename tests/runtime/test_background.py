"""A task's background tasks and its timer."""

from __future__ import annotations

import asyncio

from penstock.runtime.background import BackgroundTasks, WakeTimer


async def test_a_failure_is_reported_and_a_cancellation_is_none() -> None:
    failed: list[BaseException] = []
    background = BackgroundTasks(asyncio.get_running_loop(), failed.append)

    async def fails() -> None:
        raise ValueError("here")

    waits = background.spawn(asyncio.Event().wait())
    fails_ = background.spawn(fails())
    await asyncio.wait([fails_])
    await background.end()
    assert waits.cancelled()
    assert [str(error) for error in failed] == ["here"]


async def test_the_one_that_ends_the_others_goes_on() -> None:
    background = BackgroundTasks(asyncio.get_running_loop(), lambda error: None)
    other = background.spawn(asyncio.Event().wait())

    async def ends() -> str:
        await background.end()
        return "went on"

    assert await background.spawn(ends()) == "went on"
    assert other.cancelled()


async def test_the_earliest_time_wakes() -> None:
    woken = asyncio.Event()
    timer = WakeTimer(asyncio.get_running_loop(), lambda: 1_000, woken.set)
    timer.arm(10_000_000)
    timer.arm(1_001)
    timer.arm(20_000_000)  # later than the armed one: no change
    await woken.wait()
    woken.clear()
    timer.arm(1_000)
    timer.cancel()
    await asyncio.sleep(0.005)
    assert not woken.is_set()
