"""The simulated world itself: time, processes, sockets, bus, leases, objects, disk."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.envelope import NobodyServesError
from penstock.errors import BrokerError, LeaseStoreError, ObjectStoreError
from penstock.testing.simulation import (
    BusFaults,
    LeaseServer,
    ObjectServer,
    Process,
    SimBus,
    SimDisk,
    SimLeases,
    SimStore,
    StoreFaults,
    Violation,
    World,
    socket_pair,
    virtual_time,
)

Main = Callable[[Process], Awaitable[Any]]


def run(world: World, main: Main, limit_s: float = 100.0) -> Any:
    """What ``main`` returns, as a process of its own."""
    result: list[Any] = []

    async def wrapped(process: Process) -> None:
        result.append(await main(process))
        world.stop()

    world.spawn("main", wrapped)
    world.run(limit_s)
    return result[0]


async def idle(_: Process) -> None:
    await asyncio.Event().wait()


def test_a_simulated_process_is_no_process_of_this_machine():
    """A task manager tells in its heartbeats what /proc says of its slots: were one of them
    numbered like some real process, the same seed would give two digests."""
    process = World(1).spawn("idle", idle)
    assert process.pid > int(Path("/proc/sys/kernel/pid_max").read_text())
    assert not Path(f"/proc/{process.pid}").exists()


class TestTime:
    def test_it_jumps_to_what_is_due_next(self):
        world = World(1)

        async def main(_: Process) -> float:
            await asyncio.sleep(3600)
            return world.now_s

        began = time.monotonic()
        assert run(world, main, 4000) == pytest.approx(3600, abs=1)
        assert time.monotonic() - began < 60

    def test_a_world_in_which_nothing_will_happen_is_broken(self):
        with pytest.raises(Violation, match="nothing will ever happen"):
            run(World(1), idle)

    def test_a_world_that_goes_on_for_ever_is_broken(self):
        async def main(_: Process) -> None:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(1)

        with pytest.raises(Violation, match="not over after 100 s"):
            run(World(1), main)

    def test_helper_threads_answer_later_and_in_the_worlds_time(self):
        async def main(process: Process) -> tuple[int, bool]:
            before = process.world.now_s
            answer = await asyncio.to_thread(lambda: 7)
            return answer, process.world.now_s > before

        assert run(World(1), main) == (7, True)

    def test_whoever_asks_the_system_is_answered_by_the_world(self):
        def once(seed: int) -> tuple[Any, ...]:
            world = World(seed)

            async def main(process: Process) -> tuple[Any, ...]:
                process.clock_offset_ms = 5_000
                await asyncio.sleep(10)
                return time.time(), time.monotonic(), uuid.uuid4().hex

            with virtual_time(world):
                return run(world, main)

        assert once(1) == once(1)
        assert once(1)[2] != once(2)[2]
        assert once(1)[0] == pytest.approx(1_750_000_015, abs=1)

    def test_computing_takes_time(self):
        world = World(1)
        seen: list[float] = []

        async def main(process: Process) -> None:
            for _ in range(100):
                world.look_at_processor_clock()
            await asyncio.sleep(0)
            seen.append(world.now_s)

        run(world, main)
        assert seen[0] == pytest.approx(100 * world.look_s)


class TestProcesses:
    def test_what_is_killed_runs_no_finally_and_takes_its_children_along(self):
        world, said = World(1), []

        async def child(process: Process) -> None:
            await asyncio.sleep(50)
            said.append("child")

        async def parent(process: Process) -> None:
            world.spawn("child", child, parent=process)
            try:
                await asyncio.sleep(50)
            finally:
                said.append("finally")

        async def main(_: Process) -> list[int | None]:
            victim = world.spawn("parent", parent)
            await asyncio.sleep(1)
            world.kill(victim)
            await asyncio.sleep(60)
            return [victim.exit_code, victim.children[0].exit_code]

        assert run(world, main) == [-9, -9]
        assert said == []
        world.close()

    def test_what_is_paused_wakes_up_in_another_time(self):
        world, seen = World(1), []

        async def worker(_: Process) -> None:
            while True:
                await asyncio.sleep(1)
                seen.append(round(world.now_s))

        async def main(_: Process) -> None:
            process = world.spawn("worker", worker)
            await asyncio.sleep(2.5)
            world.pause(process)
            await asyncio.sleep(10)
            assert len(seen) == 2
            world.resume(process)
            await asyncio.sleep(1.5)

        run(world, main)
        assert seen[:2] == [1, 2]
        assert seen[2] >= 12

    def test_exit_codes(self):
        world = World(1)

        async def seven(_: Process) -> int:
            return 7

        async def raises(_: Process) -> None:
            raise ValueError("x")

        async def main(_: Process) -> list[int | None]:
            both = [world.spawn("a", seven), world.spawn("b", raises)]
            await asyncio.sleep(1)
            return [p.exit_code for p in both]

        assert run(world, main) == [7, 1]

    def test_a_failure_that_nobody_asked_for_is_found(self):
        world, kept = World(1), []

        async def fails() -> None:
            raise ValueError("x")

        async def main(_: Process) -> None:
            kept.append(asyncio.get_running_loop().create_task(fails()))
            await asyncio.sleep(1)

        run(world, main)
        with pytest.raises(Violation, match="ValueError"):
            world.look_for_unheard()


class TestSockets:
    def test_what_was_sent_before_a_crash_arrives_then_the_end(self):
        world = World(1)

        async def main(me: Process) -> bytes:
            other = world.spawn("other", idle)
            mine, theirs = socket_pair(world, me, other)
            await asyncio.sleep(0.1)
            theirs.send(b"last words")
            world.kill(other)
            reader, writer = await asyncio.open_unix_connection(sock=mine)  # type: ignore[arg-type]
            got = await reader.read()
            writer.close()
            return got

        assert run(world, main) == b"last words"

    def test_a_reset_is_heard_on_both_sides(self):
        world = World(1)

        async def main(me: Process) -> int:
            ends = socket_pair(world, me, me)
            streams = [await asyncio.open_unix_connection(sock=end) for end in ends]  # type: ignore[arg-type]
            ends[0].reset()
            for reader, _ in streams:
                with pytest.raises(ConnectionResetError):
                    await reader.read()
            return len(streams)

        assert run(world, main) == 2


class TestBus:
    def world(self, **faults: Any) -> tuple[World, SimBus]:
        world = World(3)
        bus = SimBus(world)
        bus.faults = BusFaults(**faults)
        return world, bus

    def serve(self, world: World, bus: SimBus, name: str = "server") -> tuple[Process, list[bytes]]:
        got: list[bytes] = []

        async def main(process: Process) -> None:
            async def handler(_: str, data: bytes) -> bytes:
                got.append(data)
                return b"re:" + data

            await bus.transport(process).serve("a.*", handler)
            await asyncio.Event().wait()

        return world.spawn(name, main), got

    def test_request_and_reply_and_nobody(self):
        world, bus = self.world()
        self.serve(world, bus)

        async def main(process: Process) -> bytes:
            transport = bus.transport(process)
            await asyncio.sleep(0.1)
            with pytest.raises(NobodyServesError):
                await transport.request("b.x", b"")
            return await transport.request("a.x", b"1")

        assert run(world, main) == b"re:1"

    def test_one_publisher_keeps_its_order_though_messages_are_late(self):
        world, bus = self.world(late=0.5)
        _, got = self.serve(world, bus)

        async def main(process: Process) -> None:
            transport = bus.transport(process)
            await asyncio.sleep(0.1)
            for i in range(50):
                await transport.publish("a.x", str(i).encode())
                await asyncio.sleep(0.002)
            await asyncio.sleep(30)

        run(world, main)
        order = [int(data) for data in got]
        assert sorted(order) == list(range(50))

    def test_loss_and_repetition(self):
        world, bus = self.world(loss=0.2, repeat=0.2)
        _, got = self.serve(world, bus)

        async def main(process: Process) -> None:
            transport = bus.transport(process)
            await asyncio.sleep(0.1)
            for i in range(200):
                await transport.publish("a.x", str(i).encode())
                await asyncio.sleep(0.01)
            await asyncio.sleep(5)

        run(world, main)
        assert len(set(got)) < 200
        assert len(got) > len(set(got))

    def test_who_is_cut_off_waits_in_vain_and_a_broker_that_is_down_says_so(self):
        world, bus = self.world()
        self.serve(world, bus)

        async def main(process: Process) -> list[bool]:
            transport, heard = bus.transport(process), []
            transport.listeners.append(heard.append)
            await asyncio.sleep(0.1)
            bus.cut_off(process, True)
            with pytest.raises(BrokerError, match="no answer"):
                await transport.request("a.x", b"1", 0.5)
            bus.cut_off(process, False)
            bus.set_down(True)
            await asyncio.sleep(1)
            with pytest.raises(BrokerError, match="not connected"):
                await transport.request("a.x", b"1", 0.5)
            bus.set_down(False)
            await asyncio.sleep(1)
            assert await transport.request("a.x", b"1") == b"re:1"
            return heard

        assert run(world, main) == [False, True]


class TestLeases:
    def test_a_lease_runs_out_while_its_owner_hangs(self):
        world = World(1)
        server = LeaseServer(world)

        async def main(process: Process) -> list[bool]:
            leases = SimLeases(server, process)
            out = [await leases.acquire("l", "a", 1000), await leases.acquire("l", "b", 1000)]
            await asyncio.sleep(2)
            out += [await leases.renew("l", "a", 1000), await leases.acquire("l", "b", 1000)]
            server.wipe()
            return [*out, await leases.renew("l", "b", 1000), await leases.holder("l") is None]

        assert run(world, main) == [True, False, False, True, False, True]

    def test_a_store_that_is_down_does_not_answer(self):
        world = World(1)
        server = LeaseServer(world)
        server.set_down(True)

        async def main(process: Process) -> bool:
            with pytest.raises(LeaseStoreError):
                await SimLeases(server, process).acquire("l", "a", 1000)
            return True

        assert run(world, main)


class TestObjects:
    def test_a_call_that_failed_may_have_been_applied(self):
        world = World(2)
        server = ObjectServer(world)
        server.faults = StoreFaults(before=0.3, after=0.3)

        async def main(process: Process) -> set[tuple[str, bool]]:
            store, seen = SimStore(server, process), set()
            for i in range(60):
                try:
                    await store.put(f"k{i}", b"x")
                    said = "done"
                except ObjectStoreError:
                    said = "failed"
                seen.add((said, f"k{i}" in server.objects))
            return seen

        assert run(world, main) == {("done", True), ("failed", True), ("failed", False)}

    def test_a_create_is_atomic_and_a_listing_may_lag(self):
        world = World(2)
        server = ObjectServer(world)

        async def main(process: Process) -> list[Any]:
            store = SimStore(server, process)
            won = await asyncio.gather(*(store.create("k", str(i).encode()) for i in range(5)))
            server.faults = StoreFaults(lag_s=20)
            lagging = [len(await store.list("")) for _ in range(20)]
            await asyncio.sleep(40)
            return [sum(won), min(lagging), len(await store.list(""))]

        assert run(world, main) == [1, 0, 1]

    def test_a_write_is_applied_though_the_writer_died(self):
        world = World(2)
        server = ObjectServer(world)

        async def writer(process: Process) -> None:
            await SimStore(server, process).put("k", b"x")

        async def main(_: Process) -> bool:
            victim = world.spawn("writer", writer)
            await asyncio.sleep(0.0001)
            world.kill(victim)
            await asyncio.sleep(1)
            return "k" in server.objects

        assert run(world, main)


class TestDisk:
    def test_the_power_takes_what_was_not_synced(self):
        disk = SimDisk(World(1))
        for name in ("kept", "lost"):
            file = disk.open_output(f"/d/{name}")
            file.write(b"rows")
            file.close()
        disk.sync("/d/kept")
        disk.delete("/d/lost")
        open_file = disk.open_output("/d/open")
        open_file.write(b"in the process's own buffer")
        assert disk.read("/d/open") == b""
        assert disk.rename("/d/kept", "/e/target")
        disk.power_fails()
        assert disk.read("/e/target") == b"rows"
        assert not disk.exists("/d/lost")
        assert not disk.exists("/d/open")
        # The name it was renamed from was durable, and its folder was not synced since.
        assert disk.exists("/d/kept")
