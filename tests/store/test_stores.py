"""The port's guarantees, for every store."""

import asyncio
from pathlib import Path

import pytest

from penstock.errors import ObjectStoreError, SpecError
from penstock.store import MemoryStore, open_store, probe_conditional_create
from penstock.store.local import LocalStore
from penstock.store.objects import ObstoreStore
from penstock.testing.conformance import ObjectStoreConformance


@pytest.fixture(params=["memory", "local", "obstore"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return open_store(f"file://{tmp_path}/deep/store")
    import obstore.store

    return ObstoreStore(obstore.store.MemoryStore(), "memory")


async def test_round_trip(store):
    await store.put("a/b", b"one")
    await store.put("a/b", b"three")
    assert await store.get("a/b") == b"three"
    assert await store.get_range("a/b", 1, 3) == b"hre"


async def test_absent(store):
    with pytest.raises(KeyError):
        await store.get("nothing")
    with pytest.raises(KeyError):
        await store.get_range("not/there", 0, 1)
    await store.put("there", b"x")
    await store.delete(["nothing", "there", "not/there"])
    assert await store.list("") == []


async def test_create_is_conditional(store):
    assert await store.create("log/1", b"first") is True
    assert await store.create("log/1", b"second") is False
    assert await store.get("log/1") == b"first"


async def test_one_of_many_creates_wins(store):
    won = await asyncio.gather(*(store.create("log/7", b"%d" % i) for i in range(20)))
    assert sum(won) == 1
    assert await store.get("log/7") == b"%d" % won.index(True)


async def test_list_is_sorted_and_takes_any_prefix(store):
    for key in ("jobs/b/2", "jobs/b/1", "jobs/a", "jobs/bc/1", "other"):
        await store.put(key, key.encode())
    assert await store.list("jobs/") == [("jobs/a", 6), ("jobs/b/1", 8), ("jobs/b/2", 8), ("jobs/bc/1", 9)]
    assert [key for key, _ in await store.list("jobs/b")] == ["jobs/b/1", "jobs/b/2", "jobs/bc/1"]
    assert await store.list("jobs/b/3") == []
    assert await store.list("nowhere/at/all") == []
    assert len(await store.list("")) == 5


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "a/", "."])
async def test_keys_stay_inside(store, key):
    with pytest.raises(ObjectStoreError, match="not an object key"):
        await store.put(key, b"x")


async def test_probe_accepts(store):
    await probe_conditional_create(store)
    assert await store.list("") == []


async def test_probe_refuses_a_store_that_overwrites():
    class Overwriting(MemoryStore):
        async def create(self, key, data):
            await self.put(key, data)
            return True

    with pytest.raises(ObjectStoreError, match="does not honour conditional creates"):
        await probe_conditional_create(Overwriting())


async def test_local_leaves_no_partial_files(tmp_path):
    store = LocalStore(tmp_path)
    await store.put("a/b", b"1")
    await store.create("a/b", b"2")
    (tmp_path / "a" / ".partial-crashed").write_bytes(b"half")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [".partial-crashed", "b"]
    assert await store.list("") == [("a/b", 1)]


async def test_local_fsyncs_file_then_folder(tmp_path, monkeypatch):
    """Durable: the data before it gets its name, the name before the call returns."""
    import os

    store = LocalStore(tmp_path)
    calls = []
    fsync, link = os.fsync, os.link
    monkeypatch.setattr(
        os, "fsync", lambda fd: (calls.append(os.path.isdir(f"/proc/self/fd/{fd}")), fsync(fd))[1]
    )
    monkeypatch.setattr(os, "link", lambda a, b: (calls.append("link"), link(a, b))[1])
    assert await store.create("x", b"1")
    assert calls == [False, "link", True]


@pytest.mark.parametrize("do", ["put", "create", "copy"])
async def test_a_place_that_cannot_be_written_is_not_an_object_that_is_missing(tmp_path, do):
    store = LocalStore(tmp_path)
    await store.put("there", b"x")
    with pytest.raises(ObjectStoreError, match="Not a directory") as failed:
        # A folder would have to be made where there is a file.
        await (store.copy("there", "there/a/b") if do == "copy" else getattr(store, do)("there/a/b", b"x"))
    assert "there" in failed.value.where
    if do == "copy":
        with pytest.raises(KeyError):
            await store.copy("nothing", "a/b")


async def test_local_says_what_failed(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ObjectStoreError, match="object store in"):
        open_store(f"file://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["", "/just/a/path", "file://host/share", "nonsense"])
def test_bad_urls(url):
    with pytest.raises(SpecError):
        open_store(url)


def test_unknown_scheme():
    with pytest.raises(ObjectStoreError, match="cannot open"):
        open_store("gopher://x/y")


def test_memory_is_shared_by_url():
    assert open_store("memory:///t1") is open_store("memory:///t1")
    assert open_store("memory:///t1") is not open_store("memory:///t2")


def test_options_of_the_http_client_are_no_options_of_the_store():
    """obstore panics when one is among the store's."""
    from penstock.store.open import open_obstore

    store = open_obstore("s3://bucket", {"allow_http": "true", "timeout": "5s", "endpoint": "http://x:1"})
    assert dict(store.config)["endpoint"] == "http://x:1"
    assert dict(store.client_options)["allow_http"] in (True, "true")


class _Stores(ObjectStoreConformance):
    async def close(self, store):
        return None


class TestMemoryStore(_Stores):
    async def open(self):
        return MemoryStore()


class TestLocalStore(_Stores):
    async def open(self):
        return open_store(f"file://{self.folder}/deep/store")

    reopen = open


class TestObstore(_Stores):
    async def open(self):
        import obstore.store

        return ObstoreStore(obstore.store.MemoryStore(), "memory")
