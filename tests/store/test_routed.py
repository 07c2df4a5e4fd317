"""Keys that are whole URLs, and copies."""

from __future__ import annotations

import pytest

from penstock.errors import SpecError
from penstock.messages.layout import located
from penstock.store import MemoryStore, copy_object, open_store
from penstock.store.routed import split_url


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("file:///a/b/c", ("file:///", "a/b/c")),
        ("file:///a%20b/100%25/c", ("file:///", "a b/100%/c")),
        ("s3://bucket/x/y", ("s3://bucket", "x/y")),
        ("memory:///m/k", None),
        ("s3://bucket", None),
    ],
)
def test_a_url_names_a_store_and_a_key(url, parts):
    if parts is not None:
        assert split_url(url) == parts
    elif url.startswith("s3"):
        with pytest.raises(SpecError):
            split_url(url)


async def test_what_lies_in_another_folder_is_read_listed_copied_and_deleted(tmp_path):
    store = open_store((tmp_path / "mine").as_uri())
    other = open_store((tmp_path / "other").as_uri())
    await other.put("deep/x", b"theirs")
    url = (tmp_path / "other" / "deep" / "x").as_uri()
    assert await store.get(url) == b"theirs"
    assert await store.get_range(url, 1, 3) == b"hei"
    assert await store.list(url.rpartition("/")[0]) == [(url, 6)]
    await copy_object(store, url, "copied/x")
    assert await store.get("copied/x") == b"theirs"
    await copy_object(store, "copied/x", (tmp_path / "third" / "x").as_uri())
    assert (tmp_path / "third" / "x").read_bytes() == b"theirs"
    await store.delete(["copied/x", url])
    for key in ("copied/x", url):
        with pytest.raises(KeyError) as missing:
            await store.get(key)
        assert missing.value.args == (key,)


async def test_a_copy_is_an_object_of_its_own(tmp_path):
    for store in (open_store(tmp_path.as_uri()), MemoryStore()):
        await store.put("a", b"one")
        await copy_object(store, "a", "folder/b")
        await store.put("a", b"two")
        await store.delete(["a"])
        assert await store.get("folder/b") == b"one"
        with pytest.raises(KeyError):
            await copy_object(store, "a", "c")


async def test_a_folder_may_have_any_name(tmp_path):
    """In a URL its name is encoded; on the disk it is what its owner called it."""
    store = open_store((tmp_path / "mine").as_uri())
    folder = tmp_path / "my data 100% ü#1"
    await store.put(f"{located(str(folder))}/x", b"1")
    assert (folder / "x").read_bytes() == b"1"
    assert located(str(folder)) == folder.as_uri() == located(folder.as_uri())
    assert await store.list(folder.as_uri()) == [(f"{folder.as_uri()}/x", 1)]
    await store.copy(f"{folder.as_uri()}/x", f"{folder.as_uri()}/y")
    await store.delete([f"{folder.as_uri()}/x"])
    assert [path.name for path in folder.iterdir()] == ["y"]
