"""A savepoint is deleted whole, also a damaged one; nothing else ever is."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SnapshotError
from penstock.messages.slot import StateHandle
from penstock.snapshots.manifest import CheckpointManifest, VertexState, encode_manifest
from penstock.store import MemoryStore
from penstock.store.open import open_store
from penstock_services.dispatcher.disposal import dispose

FOLDER = "savepoints/savepoint-abcdef-3-2"
HANDLES = tuple(
    StateHandle(vertex_id="v", checkpoint_id=3, subtask_index=n, key=f"./{name}", size_bytes=1)
    for n, name in enumerate(("00000-v-0-1", "00001-v-1-1"))
)
MANIFEST = CheckpointManifest(
    job_id="j", job_name="j", checkpoint_id=3, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=2,
    vertices=(
        VertexState(
            vertex_id="v", name="v", uids=("u",), parallelism=2, max_parallelism=128, handles=HANDLES
        ),
    ),
)  # fmt: skip
WHOLE = encode_manifest(MANIFEST)
NEWER = encode_manifest(msgspec.structs.replace(MANIFEST, version=99))


async def lay(store, folder: str, manifest: bytes | None, *more: str) -> None:
    for name in ("00000-v-0-1", "00001-v-1-1", *more):
        await store.put(f"{folder}/{name}", b"x")
    if manifest is not None:
        await store.put(f"{folder}/manifest", manifest)
    await store.put(f"{folder}0/manifest", b"of another one")


async def left(store, folder: str) -> list[str]:
    assert await store.get(f"{folder}0/manifest")
    return [key.removeprefix(f"{folder}/") for key, _ in await store.list(f"{folder}/")]


@pytest.mark.parametrize(
    ("manifest", "more", "says", "stay"),
    [
        (WHOLE, (), None, []),
        (WHOLE, ("notes.txt",), None, ["notes.txt"]),
        (WHOLE, ("plan.json",), None, []),
        (WHOLE[:-9], ("plan.json",), "cannot be read", []),
        (WHOLE[:-9], (), "cannot be read", []),
        (b"", ("notes.txt", "sub/00002-v"), "others were left: notes.txt", ["notes.txt", "sub/00002-v"]),
        (NEWER, (), "written by a newer version", []),
        (None, (), "manifest is not there", []),  # a disposal that was cut short
    ],
)
async def test_what_is_there_goes_and_what_could_not_be_read_is_said(manifest, more, says, stay):
    store = MemoryStore()
    await lay(store, FOLDER, manifest, *more)
    warning = await dispose(store, FOLDER)
    assert await left(store, FOLDER) == stay
    if says is None:
        assert warning is None
    else:
        assert says in warning
        assert FOLDER in warning


async def test_also_in_a_folder_that_a_url_names(tmp_path):
    store = open_store(f"file://{tmp_path}/store")
    folder = f"file://{tmp_path}/elsewhere/savepoint-abcdef-3-2"
    await lay(store, folder, WHOLE[:40])
    assert "were deleted" in await dispose(store, folder)
    assert await left(store, folder) == []


@pytest.mark.parametrize("manifest", [WHOLE, WHOLE[:40]])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("more", [(), ("notes.txt",)])
async def test_its_folder_goes_too_when_it_is_empty(tmp_path, manifest, elsewhere, more):
    store = open_store(f"file://{tmp_path}/store")
    folder = f"file://{tmp_path}/elsewhere/{FOLDER}" if elsewhere else FOLDER
    await lay(store, folder, manifest, *more)
    await dispose(store, folder)
    place = tmp_path / ("elsewhere" if elsewhere else "store") / FOLDER
    assert place.exists() == bool(more)
    assert place.parent.exists()
    assert await left(store, folder) == list(more)


@pytest.mark.parametrize(
    ("folder", "manifest", "names", "message", "remedy"),
    [
        ("savepoints/none", None, (), "is not there", "that `penstock savepoint JOB` printed"),
        ("photos", None, ("a.jpg", "b.jpg"), "is not there", "that `penstock savepoint JOB` printed"),
        ("photos", b"no JSON", ("00001-a.jpg",), "folder is not cleared", "rename the folder to savepoint-"),
        ("photos", None, ("00001-a.jpg",), "folder is not cleared", "rename the folder to savepoint-"),
    ],
)
async def test_what_is_no_savepoint_stays_and_the_remedy_fits(folder, manifest, names, message, remedy):
    store = MemoryStore()
    for name in names:
        await store.put(f"{folder}/{name}", b"x")
    if manifest is not None:
        await store.put(f"{folder}/manifest", manifest)
    before = dict(store.objects)
    with pytest.raises(SnapshotError, match=message) as refused:
        await dispose(store, folder)
    assert remedy in (refused.value.remedy or "")
    assert refused.value.where == folder
    assert store.objects == before
