"""A savepoint's manifest names its objects beside it."""

from __future__ import annotations

import pytest

from penstock.errors import SnapshotError
from penstock.messages.manifest import (
    CheckpointManifest,
    VertexState,
    encode_manifest,
    read_manifest,
    resolved,
    self_contained,
)
from penstock.messages.slot import StateHandle, StateLink
from penstock.store import MemoryStore


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


async def test_what_is_not_there_or_damaged_is_named():
    store = MemoryStore()
    with pytest.raises(SnapshotError, match="not there"):
        await read_manifest(store, "nowhere")
    await store.put("x/manifest", b'{"version": 99')
    with pytest.raises(SnapshotError) as broken:
        await read_manifest(store, "x")
    assert broken.value.where == "x/manifest"
