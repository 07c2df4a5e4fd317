"""The manifest of a completed checkpoint or savepoint: it names the objects that hold the state.

A JSON object at ``jobs/<job>/checkpoints/<id>/<epoch>/manifest``, written before the CheckpointCompleted
entry that makes it valid. Fields are only added, with defaults. A higher ``version`` than ours is refused.
From version 2 on the last field is a checksum of the rest (``penstock.snapshots.sealing``); a manifest
without it, or with a wrong one, is refused.

A savepoint is a folder with its manifest and copies of all its objects. The manifest names them
``./<name>``, so that the folder may be moved, also to another bucket.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SnapshotError
from penstock.messages.layout import located
from penstock.messages.slot import StateHandle
from penstock.snapshots.sealing import seal, seal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.ports import Store

VERSION = 2
#: The first version that has a checksum.
SEALED_VERSION = 2
#: The kind of a manifest that a backfill wrote: its subtasks are not those of the job (``spark/backfill``).
BACKFILL = "backfill"
_REMEDY = "restore from another checkpoint or savepoint"


class VertexState(msgspec.Struct, frozen=True, kw_only=True):
    """All snapshots of one vertex. ``uids``: those of its operators, in the order of the chain."""

    vertex_id: str
    name: str
    uids: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    handles: tuple[StateHandle, ...]


class CheckpointManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a manifest. ``kind``: checkpoint, savepoint or another kind of ``TriggerSavepoint``, or
    ``BACKFILL``."""

    version: int = VERSION
    job_id: str
    job_name: str
    checkpoint_id: int
    kind: str
    timestamp_ms: int
    job_attempt: int
    epoch: int
    vertices: tuple[VertexState, ...]
    #: The version of Penstock that wrote it.
    written_by: str = ""

    def object_keys(self) -> set[str]:
        """The keys of all objects that the manifest names, including those of chains."""
        return {key for v in self.vertices for h in v.handles for key in h.keys}

    @property
    def size_bytes(self) -> int:
        """Bytes of the newest object of every subtask."""
        return sum(h.size_bytes for v in self.vertices for h in v.handles)

    @property
    def full_size_bytes(self) -> int:
        """Bytes of the objects and of those on which deltas build."""
        return sum(h.full_size_bytes for v in self.vertices for h in v.handles)


#: Keys with this prefix are relative to the manifest's folder.
RELATIVE = "./"


def _renamed(handle: StateHandle, rename: Callable[[str], str]) -> StateHandle:
    return msgspec.structs.replace(
        handle,
        key=None if handle.key is None else rename(handle.key),
        chain=tuple(
            msgspec.structs.replace(link, key=None if link.key is None else rename(link.key))
            for link in handle.chain
        ),
    )


def renamed(manifest: CheckpointManifest, rename: Callable[[str], str]) -> CheckpointManifest:
    """The manifest with each object key replaced by ``rename(key)``."""
    return msgspec.structs.replace(
        manifest,
        vertices=tuple(
            msgspec.structs.replace(v, handles=tuple(_renamed(h, rename) for h in v.handles))
            for v in manifest.vertices
        ),
    )


def self_contained(manifest: CheckpointManifest) -> tuple[CheckpointManifest, dict[str, str]]:
    """(the manifest of a savepoint, key → name in its folder of every object to copy)."""
    names = {key: f"{n:05d}-{key.rpartition('/')[2]}" for n, key in enumerate(sorted(manifest.object_keys()))}
    return renamed(manifest, lambda key: RELATIVE + names[key]), names


def folder_of(path: str) -> str:
    """The folder of a savepoint or checkpoint; ``path`` is the folder or its manifest. (A folder that is
    itself called 'manifest' needs ``folder_at``, which asks the store.)"""
    path = path.rstrip("/")
    return path.removesuffix("/manifest")


async def folder_at(store: Store, path: str) -> str:
    """As ``folder_of``, also for a folder that is called 'manifest'."""
    path = path.rstrip("/")
    if folder_of(path) != path:
        there = {key for key, _ in await store.list(path)}
        if path not in there and f"{path}/manifest" in there:
            return path
    return folder_of(path)


def resolved(manifest: CheckpointManifest, folder: str) -> CheckpointManifest:
    """The manifest with keys that the store knows. ``folder``: the folder of the manifest."""

    def absolute(key: str) -> str:
        return f"{folder}/{key.removeprefix(RELATIVE)}" if key.startswith(RELATIVE) else key

    return renamed(manifest, absolute)


async def read_manifest(store: Store, path: str) -> CheckpointManifest:
    """The manifest of the savepoint or checkpoint at ``path``: its folder, or the manifest itself, as a key,
    a URL or an absolute path. Raises SnapshotError if it does not exist or cannot be read."""
    path = located(path).rstrip("/")
    data = None
    # A path that ends with 'manifest' is nearly always the manifest, but it may be a folder of that name.
    for folder in dict.fromkeys((folder_of(path), path)):
        key = f"{folder}/manifest"
        with contextlib.suppress(KeyError):
            data = await store.get(key)
            break
    if data is None:
        raise SnapshotError(
            "a checkpoint's manifest is not there",
            expected="a savepoint's or checkpoint's folder, with an object 'manifest'",
            got="no such object",
            where=f"{folder_of(path)}/manifest",
            remedy="restore from another checkpoint or savepoint; was the storage folder changed?",
        )
    return resolved(decode_manifest(data, key), folder)


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    """The manifest as JSON with its checksum. A manifest that was read in an older version gets ours."""
    own = msgspec.structs.replace(manifest, version=max(manifest.version, VERSION))
    return seal(msgspec.json.encode(own))


def decode_manifest(data: bytes, key: str) -> CheckpointManifest:
    """The manifest in ``data``. Raises SnapshotError, which names ``key``, if this version cannot read it, or
    if it differs from what was written."""
    if (found := seal_of(data)) == "broken":
        raise SnapshotError(
            "the checkpoint's manifest is damaged",
            expected="the bytes that its checksum was computed of",
            got=f"{len(data)} bytes with another checksum: it was changed since it was written",
            where=key,
            remedy=f"{_REMEDY}; a manifest is not edited",
        )
    try:
        manifest = msgspec.json.decode(data, type=CheckpointManifest)
    except msgspec.DecodeError as err:
        raise SnapshotError(
            "the checkpoint's manifest cannot be read",
            expected="a manifest (JSON)",
            got=f"{len(data)} bytes: {err}",
            where=key,
            remedy=_REMEDY,
        ) from err
    if manifest.version > VERSION:
        raise SnapshotError(
            "the checkpoint was written by a newer version",
            expected=f"manifest version {VERSION} or older",
            got=f"version {manifest.version}",
            where=key,
            remedy="restore it with the version that wrote it, or a newer one",
        )
    if found == "absent" and manifest.version >= SEALED_VERSION:
        raise SnapshotError(
            "the checkpoint's manifest is damaged",
            expected=f"a checksum as its last field (since manifest version {SEALED_VERSION})",
            got=f"version {manifest.version} without one: it was changed since it was written",
            where=key,
            remedy=f"{_REMEDY}; a manifest is not edited",
        )
    check_key_groups(manifest, key)
    return manifest


def key_groups_of(subtask_index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """The first and the last key group (inclusive) of a subtask; first > last if it has none."""
    first = -(-subtask_index * max_parallelism // parallelism)
    return first, -(-(subtask_index + 1) * max_parallelism // parallelism) - 1


def check_key_groups(manifest: CheckpointManifest, key: str) -> None:
    """Raises SnapshotError, which names ``key``, unless every object holds exactly its subtask's share of the
    key groups. Then the shares cover all key groups, and a key is searched in the right object. (A subtask
    without state has no object.)"""
    for vertex in manifest.vertices:
        for handle in vertex.handles:
            first, last = handle.key_groups
            if first > last:  # the object has no key group, such as one that a backfill's driver adds
                continue
            if manifest.kind == BACKFILL:
                fits, expected = 0 <= first <= last < vertex.max_parallelism, "among"
            else:
                own = key_groups_of(handle.subtask_index, vertex.parallelism, vertex.max_parallelism)
                fits = (first, last) == own and 0 <= handle.subtask_index < vertex.parallelism
                expected = f"{own[0]}–{own[1]} of"
            if not fits:
                raise SnapshotError(
                    "the checkpoint's manifest contradicts itself",
                    expected=f"key groups {expected} {vertex.max_parallelism} "
                    f"(parallelism {vertex.parallelism})",
                    got=f"key groups {first}–{last}",
                    where=f"{key}, vertex '{vertex.name}', subtask {handle.subtask_index}",
                    remedy=_REMEDY,
                )


def handles_by_vertex(
    manifest: CheckpointManifest, vertices: Iterable[tuple[str, tuple[str, ...]]]
) -> tuple[dict[str, tuple[StateHandle, ...]], list[str]]:
    """(vertex id → handles, names of the manifest's vertices without a counterpart).

    ``vertices``: (id, uids of its operators) of the job to restore. State belongs to a uid, so a vertex
    with another chain receives the handles of every vertex with which it shares a uid.
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
