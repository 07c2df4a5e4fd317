"""Measures how a source uses the data thread while all of its rows are read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.testing.conformance.data_thread import DataThread, helper_faults, waits_of_this_thread

if TYPE_CHECKING:
    from penstock.testing.conformance.driving import Driver


async def reading_faults(driver: Driver) -> dict[str, str]:
    """The faults found while all rows of a source are read once: kind → description."""
    wrong: dict[str, str] = {}
    runs = driver.connector.runs
    splits = await driver.splits()
    polls = waits = 0
    driver.helper.calls = 0
    async with DataThread(driver.helper) as thread:
        reader = await driver.reader(splits)
        try:
            while True:
                before = waits_of_this_thread()
                fetched = reader.poll()
                waits += waits_of_this_thread() > before
                polls += 1
                if fetched is None:
                    if reader.finished_splits() >= {s.id for s in splits}:
                        break
                    await reader.wait()
                await asyncio.sleep(0)
        finally:
            await reader.close()
    wrong.update(thread.faults(": hand over fewer rows a poll"))
    if runs == "loop":
        if driver.helper.calls:
            wrong["helper"] = "runs = 'loop', but it calls SourceContext.run: declare 'native'"
        elif waits * 10 > polls:
            wrong["waits"] = f"poll waited for something in {waits} of {polls} calls; it must not"
    wrong.update(helper_faults(driver.helper))
    return wrong
