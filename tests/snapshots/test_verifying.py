"""All of a savepoint is read: each damaged byte of each object is found and named."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SnapshotError
from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.footers import summarise
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock.snapshots.verifying import verify
from penstock.snapshots.writing import write_snapshot
from penstock.store import MemoryStore

KEY = "s/manifest"


def snapshot(checkpoint_id: int) -> bytes:
    items = [bytes([checkpoint_id, n]) * 100 for n in range(40)]
    own = OperatorSnapshot(lists={"splits": items[:20]}, unions={"rules": items[20:]})
    return write_snapshot({"u": own}, checkpoint_id=checkpoint_id, key_groups=(0, -1))


async def taken(*, inline: bool) -> tuple[MemoryStore, CheckpointManifest]:
    """Two subtasks, the second with an older object below its newest."""
    store = MemoryStore()

    async def kept(name: str, data: bytes) -> dict:
        if inline:
            return {"inline": data, "size_bytes": len(data)}
        await store.put(name, data)
        return {"key": name, "size_bytes": len(data)}

    old = StateLink(checkpoint_id=3, **await kept("s/3-1", snapshot(3)))
    handles = (
        StateHandle(vertex_id="v", subtask_index=0, checkpoint_id=4, **await kept("s/4-0", snapshot(4))),
        StateHandle(
            vertex_id="v", subtask_index=1, checkpoint_id=4, chain=(old,), **await kept("s/4-1", snapshot(5))
        ),
    )
    vertex = VertexState(
        vertex_id="v", name="Count", uids=("u",), parallelism=2, max_parallelism=128, handles=handles
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=4, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=2,
        vertices=(vertex,),
    )  # fmt: skip
    return store, manifest


@pytest.mark.parametrize("inline", [False, True])
async def test_what_is_whole_is_counted(inline):
    found = await verify(*await taken(inline=inline))
    assert (found.objects, found.blocks) == (3, 6)
    assert found.bytes > 0


@pytest.mark.parametrize("name", ["s/3-1", "s/4-0", "s/4-1"])
async def test_a_changed_byte_of_a_block_is_found_that_the_footers_do_not_tell(name):
    store, manifest = await taken(inline=False)
    data = bytearray(store.objects[name])
    data[20] ^= 1
    await store.put(name, bytes(data))
    await summarise(store, manifest, KEY)
    with pytest.raises(SnapshotError, match="damaged") as refused:
        await verify(store, manifest, KEY)
    where = refused.value.where
    assert where.startswith(
        f"snapshot object {name}, of vertex 'Count', subtask {name[-1]}, block 0 of state"
    )
    assert "of operator 'u'" in where


async def test_a_missing_object_is_named():
    store, manifest = await taken(inline=False)
    await store.delete(["s/3-1"])
    with pytest.raises(SnapshotError, match="missing") as refused:
        await verify(store, manifest, KEY)
    assert refused.value.where == "snapshot object s/3-1, of vertex 'Count', subtask 1"


@pytest.mark.parametrize("read", [summarise, verify])
async def test_state_that_is_kept_inline_is_named_by_manifest_and_subtask(read):
    store, manifest = await taken(inline=True)
    vertex = manifest.vertices[0]
    second = vertex.handles[1]
    damaged = msgspec.structs.replace(second, inline=second.inline[:-30] + bytes(30))
    vertex = msgspec.structs.replace(vertex, handles=(vertex.handles[0], damaged))
    with pytest.raises(SnapshotError, match="damaged") as refused:
        await read(store, msgspec.structs.replace(manifest, vertices=(vertex,)), KEY)
    assert refused.value.where == (
        f"snapshot object kept inline in {KEY}, of vertex 'Count', subtask 1, footer"
    )
