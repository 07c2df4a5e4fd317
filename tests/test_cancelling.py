import asyncio

from penstock.cancelling import end_tasks


async def test_a_task_that_loses_its_cancellation_is_ended_all_the_same() -> None:
    """As ``wait_for`` does when the cancellation meets the result."""
    lost = 0

    async def loops() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
                if lost > 2:
                    raise

    async def fails() -> None:
        raise ValueError

    tasks = [asyncio.create_task(loops()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    await end_tasks(tasks)
    assert lost == 3
    assert all(task.done() for task in tasks)


async def test_wait_for_loses_a_cancellation_that_meets_its_result() -> None:
    """Why ``end_tasks`` is there: the loop of a reader went on after ``cancel``."""
    event = asyncio.Event()
    turns = 0

    async def loops() -> None:
        nonlocal turns
        while True:
            await asyncio.wait_for(event.wait(), 3600)
            event.clear()
            turns += 1

    task = asyncio.create_task(loops())
    while not turns:
        event.set()
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    await asyncio.sleep(0)  # the waiter of wait_for is done, its task not yet awake
    task.cancel()
    await end_tasks([task])
    assert task.done()
