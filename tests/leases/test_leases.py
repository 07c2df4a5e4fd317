"""Both lease stores keep the port's promises; Redis against a real Valkey."""

import asyncio
import uuid

import pytest

from penstock.errors import LeaseStoreError
from penstock.leases import MemoryLeases, open_leases
from penstock.leases.redis import RedisLeases
from penstock.testing.conformance import LeaseStoreConformance


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.cluster)])
async def leases(request: pytest.FixtureRequest):
    if request.param == "memory":
        yield MemoryLeases()
        return
    store = open_leases(request.getfixturevalue("redis_url"), prefix=uuid.uuid4().hex)
    yield store
    await store.close()


async def test_one_holder(leases):
    assert await leases.holder("rm") is None
    assert await leases.acquire("rm", "a", 3_600_000)
    assert await leases.acquire("rm", "a", 3_600_000)
    assert not await leases.acquire("rm", "b", 3_600_000)
    assert await leases.acquire("other", "b", 3_600_000)
    assert await leases.holder("rm") == "a"


async def test_renew_and_release_are_the_owners(leases):
    await leases.acquire("rm", "a", 3_600_000)
    assert await leases.renew("rm", "a", 3_600_000)
    assert not await leases.renew("rm", "b", 3_600_000)
    await leases.release("rm", "b")
    assert await leases.holder("rm") == "a"
    await leases.release("rm", "a")
    assert not await leases.renew("rm", "a", 3_600_000)
    assert await leases.acquire("rm", "b", 3_600_000)


async def test_expiry(leases):
    await leases.acquire("rm", "a", 50)
    while not await leases.acquire("rm", "b", 3_600_000):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not await leases.renew("rm", "a", 3_600_000)
    assert await leases.holder("rm") == "b"


async def test_renewing_keeps_it_past_its_first_expiry():
    now = [0.0]
    leases = MemoryLeases(lambda: now[0])
    await leases.acquire("rm", "a", 100)
    for now[0] in (90.0, 180.0, 270.0):
        assert await leases.renew("rm", "a", 100)
    assert not await leases.acquire("rm", "b", 100)
    now[0] = 371.0
    assert await leases.acquire("rm", "b", 100)


async def test_nobody_there_is_said_with_address_and_remedy():
    leases = RedisLeases("redis://user:secret@127.0.0.1:1/0")
    with pytest.raises(LeaseStoreError) as err:
        await leases.acquire("rm", "a", 1000)
    assert "redis://127.0.0.1:1" in str(err.value)
    assert "secret" not in str(err.value)
    assert "high-availability.redis.url" in err.value.remedy
    await leases.close()


@pytest.mark.cluster
async def test_survives_a_restart_of_the_server(own_valkey):
    server = own_valkey()
    leases = open_leases(server.url)
    assert await leases.acquire("rm", "a", 3_600_000)
    server.stop()
    with pytest.raises(LeaseStoreError):
        await leases.renew("rm", "a", 3_600_000)
    own_valkey()
    assert not await leases.renew("rm", "a", 3_600_000)  # it forgot
    assert await leases.acquire("rm", "a", 3_600_000)
    await leases.close()


class TestMemoryLeases(LeaseStoreConformance):
    def setup_method(self):
        super().setup_method()
        self.now_ms = 0.0

    async def open(self):
        return MemoryLeases(lambda: self.now_ms)

    async def pass_ms(self, ms):
        self.now_ms += ms


@pytest.mark.cluster
class TestRedisLeases(LeaseStoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url):
        self.url = redis_url

    async def open(self):
        return open_leases(self.url, prefix=uuid.uuid4().hex)
