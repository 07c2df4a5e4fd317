from __future__ import annotations

import asyncio

import pytest

from penstock_services.dispatcher.shared_answer import SharedAnswer


class Clock:
    ms = 0.0

    def monotonic_ms(self) -> float:
        return self.ms


class Source:
    """Computes 1, 2, 3 …, each when ``go`` is set."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.fails = False

    async def compute(self) -> int:
        self.begun += 1
        mine = self.begun
        await self.go.wait()
        if self.fails:
            raise ValueError(str(mine))
        return mine


async def test_those_who_ask_at_once_share_an_answer() -> None:
    source, clock = Source(), Clock()
    answer = SharedAnswer(source.compute, clock, 1_000)
    asking = [asyncio.create_task(answer.get()) for _ in range(5)]
    await asyncio.sleep(0)
    clock.ms = 5_000  # it takes long
    asking.append(asyncio.create_task(answer.get()))
    await asyncio.sleep(0)
    asking.pop(0).cancel()  # a client went away
    source.go.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert await answer.get() == 2  # the first is too old to be given again
    clock.ms += 1_000
    assert await answer.get() == 2
    clock.ms += 1
    assert await answer.get() == 3


async def test_nobody_gets_an_answer_from_before_a_change() -> None:
    source = Source()
    answer = SharedAnswer(source.compute, Clock(), 1_000)
    early = asyncio.create_task(answer.get())
    await asyncio.sleep(0)
    answer.outdated()
    late = asyncio.create_task(answer.get())
    await asyncio.sleep(0)
    source.go.set()
    assert (await early, await late) == (1, 2)
    answer.outdated()
    assert await answer.get() == 3


async def test_a_failure_is_not_remembered() -> None:
    source = Source()
    source.go.set()
    source.fails = True
    answer = SharedAnswer(source.compute, Clock(), 1_000)
    with pytest.raises(ValueError, match="1"):
        await answer.get()
    source.fails = False
    assert await answer.get() == 2
