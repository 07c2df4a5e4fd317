"""Who starts what for Spark on a task manager, and what ends with what."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from penstock_services.taskmanager.spark import SparkServer


class Spawner:
    """Processes that live until they are killed."""

    def __init__(self) -> None:
        self.started: dict[int, list[str]] = {}
        self.swept: list[int] = []
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def spawn(self, argv: list[str], env: dict[str, str], **_: Any) -> int:
        pid = 100 + len(self.started)
        self.started[pid] = argv
        self._ends[pid] = asyncio.get_running_loop().create_future()
        return pid

    async def wait(self, pid: int) -> int:
        return await self._ends[pid]

    def kill(self, pid: int, number: int) -> None:
        if not self._ends[pid].done():
            self._ends[pid].set_result(-number)

    def kill_group(self, pid: int) -> None:
        self.swept.append(pid)

    def of(self, module: str) -> list[int]:
        return [pid for pid, argv in self.started.items() if module in argv]

    def lives(self, pid: int) -> bool:
        return not self._ends[pid].done()


def server(spawner: Spawner, folder: Path) -> SparkServer:
    return SparkServer(spawner, folder, cores=2, memory="1g", idle_s=0)  # type: ignore[arg-type]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_server_for_all_and_a_driver_ready_for_the_next_job(tmp_path: Path) -> None:
    spawner = Spawner()
    spark = server(spawner, tmp_path)
    first, second = await spark.acquire(), await spark.acquire()
    assert first == second
    assert first.driver == "", "nothing is kept ready before a job ended"
    assert len(spawner.of("penstock.spark.server")) == 1
    spark.release(first)
    spark.release(second)
    await turns()
    [ready] = spawner.of("penstock.spark.driver")
    third, fourth = await spark.acquire(), await spark.acquire()
    assert third.driver == spawner.started[ready][-1]
    assert fourth.driver == "", "one driver, one job"
    assert third.settings()["spark.server.driver"] == third.driver
    spark.release(fourth)
    await turns()
    assert len(spawner.of("penstock.spark.driver")) == 2
    assert spawner.lives(ready), "its slot works with it"
    await spark.stop()
    assert not any(spawner.lives(pid) for pid in spawner.started)


async def test_a_driver_that_dies_while_it_waits_is_nobodys(tmp_path: Path) -> None:
    spawner = Spawner()
    spark = server(spawner, tmp_path)
    spark.release(await spark.acquire())
    await turns()
    [ready] = spawner.of("penstock.spark.driver")
    spawner.kill(ready, signal.SIGKILL)
    await turns()
    assert (await spark.acquire()).driver == ""
    assert not any("driver-" in path for path in os.listdir(tmp_path))
    await spark.stop()


async def test_a_path_too_long_for_a_socket_keeps_no_driver(tmp_path: Path) -> None:
    spawner = Spawner()
    spark = server(spawner, tmp_path / ("deep" * 30))
    spark.release(await spark.acquire())
    await turns()
    assert not spawner.of("penstock.spark.driver")
    await spark.stop()


async def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    spawner = Spawner()
    spark = server(spawner, tmp_path)
    await spark.acquire()
    spawner.kill(spawner.of("penstock.spark.server")[0], signal.SIGKILL)
    await turns()
    assert spark.pid is None
    assert spawner.swept == spawner.of("penstock.spark.server"), "what it had started"
    again = await spark.acquire()
    assert again.pid == spawner.of("penstock.spark.server")[1]
    await spark.stop()


async def test_a_driver_whose_slot_never_came_is_ended(tmp_path: Path) -> None:
    spawner = Spawner()
    spark = server(spawner, tmp_path)
    spark.release(await spark.acquire())
    await turns()
    [ready] = spawner.of("penstock.spark.driver")
    given = await spark.acquire()
    open(given.driver, "w").close()  # noqa: ASYNC230  it listens
    spark.release(given)
    await turns()
    assert not spawner.lives(ready)
    assert not any("driver-1." in path for path in os.listdir(tmp_path))
    await spark.stop()
