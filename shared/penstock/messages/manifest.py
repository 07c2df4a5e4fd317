"""The manifest of a completed checkpoint or savepoint: which object holds what.

A JSON object at ``jobs/<job>/checkpoints/<id>/<epoch>/manifest``; written before the
CheckpointCompleted entry that makes it true. Fields are only added, with defaults; a
``version`` above ours is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ObjectStoreError
from penstock.messages.slot import StateHandle

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1


class VertexState(msgspec.Struct, frozen=True, kw_only=True):
    """All snapshots of one vertex. ``uids``: of its operators, in chain order."""

    vertex_id: str
    name: str
    uids: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    handles: tuple[StateHandle, ...]


class CheckpointManifest(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    job_id: str
    job_name: str
    checkpoint_id: int
    kind: str
    timestamp_ms: int
    job_attempt: int
    epoch: int
    vertices: tuple[VertexState, ...]

    def object_keys(self) -> set[str]:
        """Every object that the manifest names, those of its chains too."""
        return {key for v in self.vertices for h in v.handles for key in h.keys}

    @property
    def size_bytes(self) -> int:
        return sum(h.size_bytes for v in self.vertices for h in v.handles)

    @property
    def full_size_bytes(self) -> int:
        """With what its deltas build on."""
        return sum(h.full_size_bytes for v in self.vertices for h in v.handles)


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode_manifest(data: bytes, key: str) -> CheckpointManifest:
    """ObjectStoreError naming ``key`` when it is no manifest that we can read."""
    try:
        manifest = msgspec.json.decode(data, type=CheckpointManifest)
    except msgspec.DecodeError as err:
        raise ObjectStoreError(
            "the checkpoint's manifest cannot be read",
            expected="a manifest (JSON)",
            got=f"{len(data)} bytes: {err}",
            where=key,
            remedy="restore from another checkpoint or savepoint",
        ) from err
    if manifest.version > VERSION:
        raise ObjectStoreError(
            "the checkpoint was written by a newer version",
            expected=f"manifest version {VERSION} or older",
            got=f"version {manifest.version}",
            where=key,
            remedy="restore it with the version that wrote it, or a newer one",
        )
    return manifest


def handles_by_vertex(
    manifest: CheckpointManifest, vertices: Iterable[tuple[str, tuple[str, ...]]]
) -> tuple[dict[str, tuple[StateHandle, ...]], list[str]]:
    """(vertex id → handles, names of the manifest's vertices that fit nowhere).

    ``vertices``: (id, operator uids) of the job to restore. State goes by operator uid,
    so a vertex chained differently gets the handles of every vertex it shares a uid with.
    """
    found: dict[str, tuple[StateHandle, ...]] = {}
    used: set[str] = set()
    for vertex_id, uids in vertices:
        sources = [state for state in manifest.vertices if set(state.uids) & set(uids)]
        used.update(state.vertex_id for state in sources)
        handles = tuple(handle for state in sources for handle in state.handles)
        if handles:
            found[vertex_id] = handles
    return found, [state.name for state in manifest.vertices if state.vertex_id not in used]
