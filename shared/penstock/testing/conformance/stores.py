"""The conformance kits of object stores and lease stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.testing.conformance.base import Conformance, leaves_nothing

if TYPE_CHECKING:
    from penstock.ports import LeaseStore, Store

#: The number of concurrent writers and readers.
_MANY = 20
#: Expiry in ms: of a lease that outlives every check, and of a lease that expires during a check.
_LONG, _SHORT = 3_600_000, 40
#: How often a check polls for the expiry of a lease. Only ends a check that hangs.
_ROUNDS = 1_000


class ObjectStoreConformance(Conformance):
    """Checks an object store (``penstock.ports.Store``). The author gives ``open``, which opens an empty
    store.

    ``reopen`` opens the same store with another client, as a new process would; None if a store exists in one
    process only. ``close`` closes a client, if that is needed.
    """

    async def open(self) -> Store:
        """A new, empty store."""
        raise NotImplementedError

    async def reopen(self) -> Store | None:
        """The store that ``open`` gave, opened by another client; None if a store exists in one process
        only."""
        return None

    async def close(self, store: Store) -> None:
        """Close the client ``store``, if that is needed."""
        return None

    def test_what_was_written_is_read(self) -> None:
        async def check(store: Store) -> None:
            for key, data in (("a/b", b"one"), ("a/empty", b""), ("a/big", bytes(range(256)) * 8192)):
                await store.put(key, data)
                assert await store.get(key) == data, f"'{key}' reads otherwise than it was written"

        self._check(check)

    def test_a_write_replaces_the_object(self) -> None:
        async def check(store: Store) -> None:
            await store.put("a", b"a long first version")
            await store.put("a", b"short")
            assert await store.get("a") == b"short", "put does not replace the whole object"

        self._check(check)

    def test_a_range_is_read(self) -> None:
        async def check(store: Store) -> None:
            await store.put("a", b"0123456789")
            for start, length in ((0, 1), (3, 4), (9, 1), (0, 10)):
                got = await store.get_range("a", start, length)
                assert got == b"0123456789"[start : start + length], f"range {start}+{length} is {got!r}"

        self._check(check)

    def test_an_absent_object_is_a_key_error(self) -> None:
        async def check(store: Store) -> None:
            for read in (store.get("no/such"), store.get_range("no/such", 0, 1)):
                try:
                    await read
                except KeyError:
                    continue
                raise AssertionError("reading an absent object raises no KeyError")

        self._check(check)

    def test_deleting_takes_what_is_there(self) -> None:
        async def check(store: Store) -> None:
            await store.put("a/1", b"x")
            await store.put("a/2", b"x")
            await store.delete(["a/1", "no/such"])
            await store.delete([])
            assert [k for k, _ in await store.list("")] == ["a/2"], "delete took too little or too much"

        self._check(check)

    def test_a_second_create_fails_and_changes_nothing(self) -> None:
        """The decision log relies on this."""

        async def check(store: Store) -> None:
            assert await store.create("log/1", b"first") is True, "create of a free key is not True"
            assert await store.create("log/1", b"second") is False, "a second create is not False"
            assert await store.get("log/1") == b"first", "a second create has changed the object"
            await store.put("log/2", b"put")
            assert await store.create("log/2", b"x") is False, "create over what put wrote is not False"

        self._check(check)

    def test_of_many_creates_at_once_one_wins(self) -> None:
        async def check(store: Store) -> None:
            for round_ in range(5):
                key = f"log/{round_}"
                won = await asyncio.gather(*(store.create(key, b"%d" % i) for i in range(_MANY)))
                assert sum(won) == 1, f"{sum(won)} of {_MANY} creates of one key have won"
                assert await store.get(key) == b"%d" % won.index(True), "the object is not the winner's"

        self._check(check)

    def test_a_reader_never_sees_half_an_object(self) -> None:
        async def check(store: Store) -> None:
            versions = [bytes([i]) * 300_000 for i in range(4)]
            await store.put("a", versions[0])

            async def write() -> None:
                for data in versions * 3:
                    await store.put("a", data)

            async def read() -> None:
                for _ in range(12):
                    assert await store.get("a") in versions, "a read saw a mixture of two writes"

            await asyncio.gather(write(), read(), read())

        self._check(check)

    def test_list_gives_keys_and_sizes_in_order(self) -> None:
        async def check(store: Store) -> None:
            keys = ["jobs/b/2", "jobs/b/1", "jobs/a", "jobs/bc/1", "jobs/b/1/x y", "other"]
            keys.remove("jobs/b/1")  # a store need not allow an object and a folder of the same name
            for key in keys:
                await store.put(key, key.encode())
            for prefix in ("", "jobs/", "jobs/b", "jobs/b/", "jobs/b/2", "no/such"):
                want = sorted((k, len(k)) for k in keys if k.startswith(prefix))
                got = [tuple(item) for item in await store.list(prefix)]
                assert got == want, f"list('{prefix}') is {got}, not {want}"

        self._check(check)

    def test_many_objects_are_listed_whole(self) -> None:
        """Remote stores list a thousand objects in each response."""

        async def check(store: Store) -> None:
            keys = [f"many/{i:05d}" for i in range(1100)]
            for start in range(0, len(keys), 100):
                await asyncio.gather(*(store.put(k, b"x") for k in keys[start : start + 100]))
            assert [k for k, _ in await store.list("many/")] == keys, "list leaves out some of 1,100 objects"

        self._check(check)

    def test_keys_cannot_leave_the_store(self) -> None:
        async def check(store: Store) -> None:
            for key in ("", "/a", "a//b", "../a", "a/../b", "a/"):
                try:
                    await store.put(key, b"x")
                except Exception:  # any error counts as a refusal
                    continue
                raise AssertionError(f"put takes the key {key!r}")

        self._check(check)

    def test_another_client_sees_the_same(self) -> None:
        async def check(store: Store) -> None:
            await store.put("a/1", b"kept")
            other = await self.reopen()
            if other is None:
                return
            try:
                assert await other.get("a/1") == b"kept", "another client reads another object"
                assert await other.create("a/1", b"x") is False, "another client's create overwrites"
            finally:
                await self.close(other)

        self._check(check)

    def _check(self, check: Callable[[Store], Awaitable[None]]) -> None:
        async def opened() -> None:
            store = await self.open()
            try:
                await check(store)
            finally:
                await self.close(store)

        self.within_patience(opened())


class LeaseStoreConformance(Conformance):
    """Checks a lease store (``penstock.ports.LeaseStore``). The author gives ``open``, a store without
    leases. ``pass_ms``: lets that much of the store's own time pass; by default it sleeps."""

    async def open(self) -> LeaseStore:
        """A new store without leases."""
        raise NotImplementedError

    async def pass_ms(self, ms: int) -> None:
        """Let ``ms`` milliseconds of the store's own time pass."""
        await asyncio.sleep(ms / 1000)

    def test_one_owner_holds_a_lease(self) -> None:
        async def check(leases: LeaseStore) -> None:
            assert await leases.holder("a") is None, "a lease that nobody took has a holder"
            assert await leases.acquire("a", "one", _LONG), "a free lease is not given"
            assert not await leases.acquire("a", "two", _LONG), "a second owner gets the lease"
            assert await leases.holder("a") == "one", "holder is not the owner"
            assert await leases.acquire("b", "two", _LONG), "another lease is not given"

        self._check(check)

    def test_the_owner_may_acquire_again(self) -> None:
        async def check(leases: LeaseStore) -> None:
            assert await leases.acquire("a", "one", _LONG)
            assert await leases.acquire("a", "one", _LONG), "the owner's second acquire is refused"

        self._check(check)

    def test_only_the_owner_renews(self) -> None:
        async def check(leases: LeaseStore) -> None:
            assert not await leases.renew("a", "one", _LONG), "a lease that nobody holds is renewed"
            await leases.acquire("a", "one", _LONG)
            assert await leases.renew("a", "one", _LONG), "the owner's renewal is refused"
            assert not await leases.renew("a", "two", _LONG), "another's renewal succeeds"
            assert await leases.holder("a") == "one", "another's renewal took the lease"

        self._check(check)

    def test_only_the_owner_releases(self) -> None:
        async def check(leases: LeaseStore) -> None:
            await leases.acquire("a", "one", _LONG)
            await leases.release("a", "two")
            assert await leases.holder("a") == "one", "another's release took the lease away"
            await leases.release("a", "one")
            await leases.release("a", "one")
            assert await leases.holder("a") is None, "a released lease has a holder"
            assert await leases.acquire("a", "two", _LONG), "a released lease is not given"

        self._check(check)

    def test_a_lease_expires(self) -> None:
        async def check(leases: LeaseStore) -> None:
            await leases.acquire("a", "one", _SHORT)
            for _ in range(_ROUNDS):
                await self.pass_ms(_SHORT)
                if await leases.acquire("a", "two", _LONG):
                    break
            assert await leases.holder("a") == "two", "an expired lease is not given to another"
            assert not await leases.renew("a", "one", _LONG), "the owner of an expired lease renews it"

        self._check(check)

    def test_renewing_prolongs_the_lease(self) -> None:
        async def check(leases: LeaseStore) -> None:
            await leases.acquire("a", "one", _SHORT)
            assert await leases.renew("a", "one", _LONG) or await leases.acquire("a", "one", _LONG)
            await self.pass_ms(_SHORT * 3)
            assert await leases.holder("a") == "one", "a renewed lease ended at its first expiry"

        self._check(check)

    def test_of_many_at_once_one_gets_it(self) -> None:
        async def check(leases: LeaseStore) -> None:
            for round_ in range(5):
                name = f"lease {round_}"
                got = await asyncio.gather(*(leases.acquire(name, f"o{i}", _LONG) for i in range(_MANY)))
                assert sum(got) == 1, f"{sum(got)} of {_MANY} owners got one lease"
                assert await leases.holder(name) == f"o{got.index(True)}", "the holder is not the winner"

        self._check(check)

    def test_closing_leaves_nothing_behind(self) -> None:
        async def cycle() -> None:
            leases = await self.open()
            await leases.acquire("a", "one", _SHORT)
            await leases.release("a", "one")
            await leases.close()

        self.within_patience(leaves_nothing(cycle, "a lease store that was closed"))

    def _check(self, check: Callable[[LeaseStore], Awaitable[None]]) -> None:
        async def opened() -> None:
            leases = await self.open()
            try:
                await check(leases)
            finally:
                await leases.close()

        self.within_patience(opened())
