"""A task's part in a checkpoint: write the snapshot object, and read it back.

Small snapshots travel in the acknowledgement; larger ones are objects at
``jobs/<job>/checkpoints/<id>/<vertex>-<subtask>-<attempt>`` (a finished task's last one
under ``…/checkpoints/final/``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InternalError
from penstock.messages.slot import StateHandle
from penstock.runtime.kernels.hashing import key_group_range
from penstock.runtime.operator import MIN_WATERMARK, OperatorSnapshot, RestoredState
from penstock.runtime.state.snapshot import SnapshotSet, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobVertex
    from penstock.messages.slot import TaskDescriptor
    from penstock.ports import Store
    from penstock.runtime.environment import Environment

INLINE_BYTES = 64 * 1024
#: Where a task's own state lies among its operators'.
TASK_UID = "__task__"
_WATERMARKS = "watermarks"


@dataclass(slots=True)
class RestoredVertex:
    """What one subtask gets back. ``watermarks``: uid → lowest of all old subtasks."""

    checkpoint_id: int
    operators: dict[str, RestoredState] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)


def task_snapshot(watermarks: Mapping[str, int]) -> OperatorSnapshot:
    return OperatorSnapshot(unions={_WATERMARKS: [msgspec.json.encode(watermarks)]})


class SnapshotWriter:
    """Makes the state handle of a subtask's snapshot."""

    def __init__(self, environment: Environment, vertex: JobVertex, descriptor: TaskDescriptor) -> None:
        self._environment = environment
        self._vertex = vertex
        self._descriptor = descriptor
        index = descriptor.subtask_index
        self._key_groups = key_group_range(index, vertex.parallelism, vertex.max_parallelism)

    async def write(
        self, checkpoint_id: int, snapshots: dict[str, OperatorSnapshot], *, final: bool = False
    ) -> StateHandle:
        """Await what is pending, encode in the helper thread, upload if it is large."""
        env, vertex, task = self._environment, self._vertex, self._descriptor
        for snapshot in snapshots.values():
            if snapshot.pending is not None:
                snapshot.lists.update(await snapshot.pending)
                snapshot.pending = None
        meta = {
            "job_id": env.job_id,
            "vertex_id": vertex.id,
            "vertex": vertex.name,
            "subtask_index": task.subtask_index,
            "parallelism": vertex.parallelism,
            "max_parallelism": vertex.max_parallelism,
            "operators": {node.uid: node.name for node in vertex.operators},
        }

        def encode() -> bytes:
            return write_snapshot(
                snapshots, checkpoint_id=checkpoint_id, key_groups=self._key_groups, meta=meta
            )

        # A thread switch costs more than encoding what holds no table.
        large = any(snapshot.keyed for snapshot in snapshots.values())
        data = await env.helper.run(encode) if large else encode()
        handle = StateHandle(
            vertex_id=vertex.id,
            subtask_index=task.subtask_index,
            checkpoint_id=checkpoint_id,
            size_bytes=len(data),
            key_groups=self._key_groups,
        )
        if len(data) <= INLINE_BYTES:
            return msgspec.structs.replace(handle, inline=data)
        if env.store is None:
            raise InternalError(
                "a snapshot is too large to travel inline and the job has no object store",
                expected=f"at most {INLINE_BYTES} bytes",
                got=f"{len(data)} bytes of {vertex.name}",
            )
        folder = "final" if final else str(checkpoint_id)
        name = f"{vertex.id}-{task.subtask_index}-{env.job_attempt}"
        key = f"jobs/{env.job_id}/checkpoints/{folder}/{name}"
        await env.store.put(key, data)
        return msgspec.structs.replace(handle, key=key)


async def restore_vertex(
    descriptor: TaskDescriptor, vertex: JobVertex, store: Store | None
) -> RestoredVertex | None:
    """The subtask's share of its vertex's checkpoint, or None when it starts fresh."""
    if not descriptor.restore:
        return None
    index, parallelism = descriptor.subtask_index, vertex.parallelism
    found = await SnapshotSet.open(descriptor.restore, store)
    out = RestoredVertex(found.checkpoint_id)
    groups = key_group_range(index, parallelism, vertex.max_parallelism)
    for node in vertex.operators:
        state = await found.restore(node.uid, key_groups=groups, subtask_index=index, parallelism=parallelism)
        if state is not None:
            out.operators[node.uid] = state
    task = await found.restore(TASK_UID, key_groups=groups, subtask_index=index, parallelism=parallelism)
    if task is not None:
        for item in task.unions.get(_WATERMARKS, []):
            values = msgspec.json.decode(item, type=dict[str, int])
            for uid, value in values.items():
                out.watermarks[uid] = min(value, out.watermarks.get(uid, value))
        out.watermarks = {u: w for u, w in out.watermarks.items() if w > MIN_WATERMARK}
    return out
