import asyncio

import pytest

from penstock.errors import FencedError, LeaseStoreError
from penstock.leases import MemoryLeases
from penstock_services.common.clock import SystemClock
from penstock_services.common.election import LeaderElection

TTL_MS = 3000


class Flaky(MemoryLeases):
    down = False

    async def _maybe(self):
        if self.down:
            raise LeaseStoreError("down")

    async def acquire(self, name, owner, ttl_ms):
        await self._maybe()
        return await super().acquire(name, owner, ttl_ms)

    async def renew(self, name, owner, ttl_ms):
        await self._maybe()
        return await super().renew(name, owner, ttl_ms)

    async def release(self, name, owner):
        await self._maybe()
        await super().release(name, owner)


class Candidate:
    def __init__(self, leases, owner, clock=None, gained=None):
        self.story = []
        self._gained = gained
        self.election = LeaderElection(
            leases, "rm", owner, TTL_MS, clock or SystemClock(), self.gained, self.lost, jitter=lambda: 0.5
        )
        self.task = asyncio.create_task(self.election.run())

    async def gained(self):
        self.story.append("gained")
        if self._gained:
            await self._gained()

    async def lost(self, reason):
        self.story.append(reason)

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_one_leads_and_the_next_takes_over(virtual_time):
    async def main():
        leases = MemoryLeases()
        a, b = Candidate(leases, "a"), Candidate(leases, "b")
        await asyncio.sleep(60)
        assert (a.story, b.story) == (["gained"], [])
        assert a.election.still_leading()
        assert not b.election.still_leading()
        await a.stop()  # orderly: the lease is given back, so b need not wait for its expiry
        at = asyncio.get_running_loop().time()
        while not b.story:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - at < TTL_MS / 2000
        assert a.story == ["gained", "it ended"]
        await b.stop()
        assert await leases.holder("rm") is None

    virtual_time(main())


def test_fences_itself_when_the_store_is_down_past_the_expiry(virtual_time):
    async def main():
        leases = Flaky()
        a = Candidate(leases, "a")
        await asyncio.sleep(10)
        leases.down = True
        await asyncio.sleep(TTL_MS / 1000 / 3)
        assert a.election.still_leading()
        await asyncio.sleep(TTL_MS / 1000)
        assert not a.election.still_leading()
        assert a.story == ["gained", "it could not be renewed in time"]
        leases.down = False
        await asyncio.sleep(TTL_MS / 1000)
        assert a.story[-1] == "gained"
        await a.stop()

    virtual_time(main())


def test_a_short_outage_costs_nothing(virtual_time):
    async def main():
        leases = Flaky()
        a = Candidate(leases, "a")
        await asyncio.sleep(10)
        leases.down = True
        await asyncio.sleep(TTL_MS / 1000 / 2)
        leases.down = False
        await asyncio.sleep(10)
        assert a.story == ["gained"]
        await a.stop()

    virtual_time(main())


def test_a_wiped_store_is_asked_again(virtual_time):
    async def main():
        leases = MemoryLeases()
        a = Candidate(leases, "a")
        await asyncio.sleep(10)
        leases.wipe()
        await asyncio.sleep(10)
        assert a.story == ["gained"]
        leases.wipe()
        assert await leases.acquire("rm", "thief", 1_000_000)
        await asyncio.sleep(10)
        assert a.story == ["gained", "another owner holds it"]
        await a.stop()

    virtual_time(main())


def test_stopped_and_resumed(virtual_time):
    """SIGSTOP: the clock jumps, and the first question is already answered with no."""

    class Jumping(SystemClock):
        jump = 0

        def monotonic_ms(self):
            return super().monotonic_ms() + self.jump

    async def main():
        clock = Jumping()
        a = Candidate(MemoryLeases(), "a", clock)
        await asyncio.sleep(10)
        assert a.election.still_leading()
        clock.jump = TTL_MS
        assert not a.election.still_leading()
        await asyncio.sleep(1)
        assert a.story[:2] == ["gained", "it could not be renewed in time"]
        await a.stop()

    virtual_time(main())


@pytest.mark.parametrize("error", [FencedError("a newer epoch"), ValueError("a bug")])
def test_failing_to_take_over_gives_the_lease_back(virtual_time, error):
    async def fails():
        raise error

    async def main():
        leases = MemoryLeases()
        a = Candidate(leases, "a", gained=fails)
        await asyncio.sleep(0.5)
        assert a.story[0] == "gained"
        assert a.story[1].startswith("taking over failed")
        assert await leases.holder("rm") is None
        await a.stop()

    virtual_time(main())


def test_resign(virtual_time):
    async def main():
        leases = MemoryLeases()
        a = Candidate(leases, "a")
        b = Candidate(leases, "b")
        await asyncio.sleep(5)
        a.election.resign()
        await asyncio.sleep(5)
        assert a.story == ["gained", "resigned"]
        assert b.story == ["gained"]
        await a.stop()
        await b.stop()

    virtual_time(main())


def test_a_slow_take_over_keeps_the_lease(virtual_time):
    async def slow():
        await asyncio.sleep(10 * TTL_MS / 1000)

    async def main():
        a = Candidate(MemoryLeases(), "a", gained=slow)
        await asyncio.sleep(9 * TTL_MS / 1000)
        assert a.election.still_leading()
        await a.stop()
        assert a.story == ["gained", "it ended"]

    virtual_time(main())
