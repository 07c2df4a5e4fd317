"""Folders of a store in a folder: made by writes, removed by deletes, whoever else does the same."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from penstock.errors import ObjectStoreError
from penstock.store import open_store
from penstock.store.local import LocalStore


def folders(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir())


async def write(store: LocalStore, how: str, key: str) -> None:
    """``source`` is there."""
    if how == "copy":
        await store.copy("source", key)
    elif how == "create":
        assert await store.create(key, b"x")
    else:
        await store.put(key, b"x")


async def test_a_delete_removes_the_folders_that_it_empties(tmp_path):
    store = open_store(f"file://{tmp_path}/deep/store")
    for key in ("jobs/a/spec", "jobs/a/checkpoints/1/7/manifest", "jobs/a/checkpoints/1/7/state", "top"):
        await store.put(key, b"x")
    root = tmp_path / "deep" / "store"
    await store.delete(["jobs/a/checkpoints/1/7/manifest"])
    assert "jobs/a/checkpoints/1/7" in folders(root), "there is another object in it"
    await store.delete(["jobs/a/checkpoints/1/7/state", "jobs/a/checkpoints/2/absent"])
    assert folders(root) == ["jobs", "jobs/a"]
    await store.delete(["jobs/a/spec", "top"])
    assert list(root.iterdir()) == [], "empty, and there"


async def test_many_checkpoints_leave_no_folders(tmp_path):
    store = LocalStore(tmp_path)
    for n in range(50):
        await store.put(f"jobs/a/checkpoints/{n}/3/manifest", b"x")
        await store.put(f"jobs/a/checkpoints/{n}/3/statistics", b"x")
        if n:
            await store.delete([f"jobs/a/checkpoints/{n - 1}/3/{o}" for o in ("manifest", "statistics")])
    assert len(folders(tmp_path)) == len(["jobs", "jobs/a", "jobs/a/checkpoints", "49", "49/3"])


async def test_folders_outside_the_store_are_other_peoples(tmp_path):
    """What is deleted by its URL lies in somebody's folder: that one stays."""
    store = open_store(f"file://{tmp_path}/store")
    theirs = tmp_path / "theirs" / "savepoints"
    theirs.mkdir(parents=True)
    await store.put(f"file://{theirs}/.probe", b"")
    await store.delete([f"file://{theirs}/.probe"])
    assert theirs.is_dir()
    await open_store("file:///").put(f"{theirs}/x".lstrip("/"), b"")
    await open_store("file:///").delete([f"{theirs}/x".lstrip("/")])
    assert theirs.is_dir()


async def test_a_link_to_a_folder_is_no_empty_folder(tmp_path):
    store = LocalStore(tmp_path / "store")
    (tmp_path / "disk").mkdir()
    (tmp_path / "store" / "jobs").symlink_to(tmp_path / "disk")
    await store.put("jobs/a/b", b"x")
    await store.delete(["jobs/a/b"])
    assert (tmp_path / "store" / "jobs").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("how", ["put", "create", "copy"])
async def test_a_write_whose_folder_is_removed_begins_again(tmp_path, monkeypatch, how):
    store = LocalStore(tmp_path)
    await store.put("source", b"x")
    left = [4]
    uuid4 = uuid.uuid4

    def after_the_folder_was_made() -> uuid.UUID:
        if left[0]:
            left[0] -= 1
            (tmp_path / "a" / "b").rmdir()
            (tmp_path / "a").rmdir()
        return uuid4()

    monkeypatch.setattr(uuid, "uuid4", after_the_folder_was_made)
    await write(store, how, "a/b/c")
    assert left == [0]
    assert await store.get("a/b/c") == b"x"


@pytest.mark.parametrize("how", ["put", "create", "copy"])
async def test_one_that_is_made_and_removed_by_another_meanwhile(tmp_path, monkeypatch, how):
    store = LocalStore(tmp_path)
    await store.put("source", b"x")
    mkdir, removed = os.mkdir, []

    def raced(path: Path) -> None:
        if path.name == "b" and not removed:
            removed.append(path)
            raise FileExistsError(path)
        mkdir(path)

    monkeypatch.setattr(os, "mkdir", raced)
    await write(store, how, "a/b/c")
    assert removed
    assert await store.get("a/b/c") == b"x"


async def test_a_folder_that_goes_each_time_is_an_error_at_last(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    monkeypatch.setattr(store, "_make_folder", lambda folder: None)
    with pytest.raises(ObjectStoreError, match="No such file"):
        await store.put("a/b", b"x")


async def test_what_is_deleted_as_soon_as_it_is_there_was_written(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    replace = os.replace

    def and_delete(source: Path, target: Path) -> None:
        replace(source, target)
        store._delete(["a/b"])

    monkeypatch.setattr(os, "replace", and_delete)
    await store.put("a/b", b"x")
    assert list(tmp_path.iterdir()) == []


async def test_a_create_that_came_too_late_leaves_no_folder(tmp_path, monkeypatch):
    """Its own file was in the folder when the object was deleted."""
    store = LocalStore(tmp_path)
    await store.put("a/b", b"x")
    link = os.link

    def then_deleted(source: Path, target: Path) -> None:
        try:
            link(source, target)
        finally:
            store._delete(["a/b"])

    monkeypatch.setattr(os, "link", then_deleted)
    assert await store.create("a/b", b"y") is False
    assert list(tmp_path.iterdir()) == []


#: Two tasks of an event loop, each call in a thread: without syncs, so that they meet more often.
_HAMMER = """
import asyncio, os, sys
from penstock.store.local import LocalStore

os.fsync = lambda fd: None

async def hammer(store, name, rounds):
    for n in range(rounds):
        mine = f"jobs/a/{n % 2}/7/{name}"
        await store.put(mine, name.encode())
        assert await store.get(mine) == name.encode()
        await store.copy(mine, f"{mine}-copy")
        won = await store.create("jobs/a/0/one", name.encode())
        assert mine in [key for key, _ in await store.list("jobs/a/")]
        await store.delete([mine, f"{mine}-copy"])
        if won:
            assert await store.get("jobs/a/0/one") == name.encode()
            await store.delete(["jobs/a/0/one"])

async def main():
    store = LocalStore(sys.argv[1])
    await asyncio.gather(*(hammer(store, f"{sys.argv[2]}-{i}", int(sys.argv[3])) for i in range(2)))

asyncio.run(main())
"""


def test_processes_that_write_and_delete_at_the_same_place(tmp_path):
    root = tmp_path / "store"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _HAMMER, str(root), str(n), "200"], stderr=subprocess.PIPE, text=True
        )
        for n in range(2)
    ]
    errors = [process.communicate()[1] for process in running]
    assert errors == ["", ""]
    assert list(root.iterdir()) == []
