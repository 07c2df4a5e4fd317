"""A savepoint's manifest names its objects beside it."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SnapshotError
from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots.manifest import (
    CheckpointManifest,
    VertexState,
    decode_manifest,
    encode_manifest,
    folder_at,
    key_groups_of,
    read_manifest,
    resolved,
    self_contained,
)
from penstock.store import MemoryStore, open_store


def manifest() -> CheckpointManifest:
    old = StateLink(checkpoint_id=3, key="jobs/j/checkpoints/3/v-0-1", size_bytes=9)
    handles = (
        StateHandle(
            vertex_id="v", subtask_index=0, checkpoint_id=4, key="jobs/j/checkpoints/4/v-0-1", chain=(old,)
        ),
        StateHandle(vertex_id="v", subtask_index=1, checkpoint_id=4, inline=b"small"),
    )
    vertex = VertexState(
        vertex_id="v", name="v", uids=("u",), parallelism=2, max_parallelism=128, handles=handles
    )
    return CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=4, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=2,
        vertices=(vertex,),
    )  # fmt: skip


def test_objects_get_names_of_their_own_and_inline_state_stays():
    own, names = self_contained(manifest())
    assert set(names) == {"jobs/j/checkpoints/3/v-0-1", "jobs/j/checkpoints/4/v-0-1"}
    assert len(set(names.values())) == 2, "the same last part in two folders"
    assert own.object_keys() == {f"./{name}" for name in names.values()}
    assert own.vertices[0].handles[1].inline == b"small"
    found = resolved(own, "s3://other/place")
    assert found.object_keys() == {f"s3://other/place/{name}" for name in names.values()}


@pytest.mark.parametrize("path", ["a/savepoint-1", "a/savepoint-1/", "a/savepoint-1/manifest"])
async def test_it_is_read_by_folder_or_manifest(path):
    store = MemoryStore()
    own, names = self_contained(manifest())
    await store.put("a/savepoint-1/manifest", encode_manifest(own))
    found = await read_manifest(store, path)
    assert found.object_keys() == {f"a/savepoint-1/{name}" for name in names.values()}


@pytest.mark.parametrize("path", ["a/manifest", "a/manifest/", "a/manifest/manifest"])
@pytest.mark.parametrize("kind", ["memory", "folder", "url"])
async def test_its_folder_may_be_called_manifest(tmp_path, kind, path):
    store = MemoryStore() if kind == "memory" else open_store(f"file://{tmp_path}")
    own, names = self_contained(manifest())
    root = f"file://{tmp_path}/x/" if kind == "url" else ""
    await store.put(f"{root}a/manifest/manifest", encode_manifest(own))
    assert await folder_at(store, f"{root}{path}") == f"{root}a/manifest"
    found = await read_manifest(store, f"{root}{path}")
    assert found.object_keys() == {f"{root}a/manifest/{name}" for name in names.values()}
    assert await folder_at(store, "a/other/manifest") == "a/other"


async def test_what_is_not_there_or_damaged_is_named():
    store = MemoryStore()
    with pytest.raises(SnapshotError, match="not there"):
        await read_manifest(store, "nowhere")
    await store.put("x/manifest", b'{"version": 99')
    with pytest.raises(SnapshotError) as broken:
        await read_manifest(store, "x")
    assert broken.value.where == "x/manifest"


def ranged(kind: str = "savepoint", max_parallelism: int = 128) -> CheckpointManifest:
    """With key groups, as tasks write them."""
    whole = manifest()
    vertex = whole.vertices[0]
    handles = tuple(
        msgspec.structs.replace(h, key_groups=key_groups_of(h.subtask_index, 2, 128)) for h in vertex.handles
    )
    vertex = msgspec.structs.replace(vertex, handles=handles, max_parallelism=max_parallelism)
    return msgspec.structs.replace(whole, kind=kind, vertices=(vertex,))


def unsealed(manifest: CheckpointManifest) -> bytes:
    """As version 1 wrote it."""
    return msgspec.json.encode(msgspec.structs.replace(manifest, version=1))


def test_what_was_written_is_read_also_of_the_version_before_checksums():
    whole = ranged()
    assert decode_manifest(encode_manifest(whole), "k") == whole
    assert decode_manifest(encode_manifest(whole) + b"\n", "k") == whole
    old = decode_manifest(unsealed(whole), "k")
    assert old == msgspec.structs.replace(whole, version=1)
    assert decode_manifest(encode_manifest(old), "k") == whole, "what is written anew has a checksum"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"max_parallelism":128', b'"max_parallelism":127'),
        (b'"uids":["u"]', b'"uids":["x"]'),
        (b'"version":2', b'"version":1'),
        (b'"version":2', b'"version":3'),
        (b'"crc32":"', b'"crc33":"'),
        (b',"crc32":', b' ,"crc32":'),
    ],
)
def test_a_changed_one_is_refused_by_name(old, new):
    data = encode_manifest(ranged())
    assert old in data
    with pytest.raises(SnapshotError, match="damaged") as refused:
        decode_manifest(data.replace(old, new), "x/manifest")
    assert refused.value.where == "x/manifest"


def test_no_single_changed_byte_is_read():
    data = encode_manifest(ranged())
    for at in range(len(data)):
        with pytest.raises(SnapshotError):
            decode_manifest(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "k")


def test_taking_the_checksum_off_is_no_way_around_it():
    data = encode_manifest(ranged())
    bare = data[: data.index(b',"crc32"')] + b"}"
    with pytest.raises(SnapshotError, match="damaged") as refused:
        decode_manifest(bare, "k")
    assert "without one" in refused.value.got
    # So does whoever reads it and writes it again, with its fields in another order.
    with pytest.raises(SnapshotError, match="damaged"):
        decode_manifest(msgspec.json.encode(dict(sorted(msgspec.json.decode(data).items()))), "k")


def test_a_newer_one_is_called_that():
    newer = msgspec.structs.replace(ranged(), version=99)
    with pytest.raises(SnapshotError, match="newer version"):
        decode_manifest(encode_manifest(newer), "k")


@pytest.mark.parametrize("theirs", [127, 129, 64, 256])
@pytest.mark.parametrize("kind", ["savepoint", "checkpoint"])
def test_key_groups_agree_with_the_max_parallelism(theirs, kind):
    with pytest.raises(SnapshotError, match="contradicts itself") as refused:
        decode_manifest(unsealed(ranged(kind, theirs)), "k")
    assert "vertex 'v', subtask" in refused.value.where
    decode_manifest(unsealed(ranged(kind)), "k")


def test_a_backfills_own_subtasks_stay_within_the_max_parallelism():
    decode_manifest(unsealed(ranged("backfill", 256)), "k")
    with pytest.raises(SnapshotError, match="contradicts itself"):
        decode_manifest(unsealed(ranged("backfill", 127)), "k")
