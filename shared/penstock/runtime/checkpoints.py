"""A task's part in a checkpoint: writing the snapshot object, and reading it back.

Small snapshots travel in the acknowledgement; larger ones are objects at
``jobs/<job>/checkpoints/<id>/<vertex>-<subtask>-<attempt>`` (a finished task's last one under
``…/checkpoints/final/``).

A snapshot is whole, or a delta to the last checkpoint that the task knows to be complete (confirmed). If a
checkpoint is aborted or not confirmed yet, the next delta contains its changes, too, because both deltas
build on the same confirmed checkpoint.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.columnar.hashing import key_group_range
from penstock.config import INCREMENTAL, LOCAL_RECOVERY
from penstock.errors import InternalError
from penstock.jobgraph.identity import identities
from penstock.messages.slot import StateHandle, StateLink
from penstock.operators.operator import MIN_WATERMARK
from penstock.snapshots.contract import OperatorSnapshot, PendingBlock, RestoredState
from penstock.snapshots.conversion import convert
from penstock.snapshots.local_copies import LocalCopies
from penstock.snapshots.restoring import SnapshotSet, Source
from penstock.snapshots.writing import Unwanted, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.jobgraph import JobVertex
    from penstock.messages.slot import TaskDescriptor
    from penstock.runtime.environment import Environment
    from penstock.state.epochs import Epochs

INLINE_BYTES = 64 * 1024
#: A state up to this size is always written whole.
WHOLE_BYTES = 64 * 1024
#: The most deltas in a chain; the snapshot after them is whole.
MAX_DELTAS = 8
#: Cut tables are copied on the data thread for this long at a time.
SLICE_S = 0.002
#: The uid of the task's own state, beside the states of its operators.
TASK_UID = "__task__"
_WATERMARKS = "watermarks"


@dataclass(slots=True)
class RestoredVertex:
    """The restored state of one subtask. ``watermarks``: uid → the lowest watermark of all old subtasks."""

    checkpoint_id: int
    operators: dict[str, RestoredState] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)


def task_snapshot(watermarks: Mapping[str, int]) -> OperatorSnapshot:
    """The state of a task itself: the watermark of each operator, by uid."""
    return OperatorSnapshot(unions={_WATERMARKS: [msgspec.json.encode(watermarks)]})


@dataclass(frozen=True, slots=True)
class _Begun:
    """A checkpoint whose barrier has passed. ``epoch``: the last epoch whose changes the snapshot holds;
    ``base``: the snapshot to which it is a delta, None if it is whole."""

    epoch: int
    base: StateHandle | None


class SnapshotWriter:
    """Makes the state handles of a subtask's snapshots, and decides which are deltas.

    For each checkpoint the task calls ``begin`` before the operators cut their tables, ``write`` after it,
    and ``confirmed`` when the checkpoint is complete.
    """

    def __init__(
        self, environment: Environment, vertex: JobVertex, descriptor: TaskDescriptor, epochs: Epochs
    ) -> None:
        self._environment = environment
        self._vertex = vertex
        self._identities = identities(vertex.operators)
        self._descriptor = descriptor
        index = descriptor.subtask_index
        self._key_groups = key_group_range(index, vertex.parallelism, vertex.max_parallelism)
        self._incremental = INCREMENTAL.read(environment.config)
        self._epochs = epochs
        self._begun: dict[int, _Begun] = {}
        self._written: dict[int, StateHandle] = {}
        self._aborted: set[int] = set()
        self._confirmed_epoch = 0
        self._confirmed: StateHandle | None = None
        self._copies = local_copies(environment)
        #: Keys of the objects that the subtask was restored from: their local copies stay until a newer
        #: checkpoint is confirmed.
        self._restored_keys = frozenset(key for handle in descriptor.restore for key in handle.keys)

    def begin(self, checkpoint_id: int, kind: str) -> None:
        """Begins a checkpoint: the next cuts are for it. A savepoint (any ``kind`` except ``checkpoint``) is
        whole, and no delta builds on it, because a savepoint may be moved."""
        base = self._confirmed if kind == "checkpoint" and self._incremental else None
        if base is not None and not _bears_delta(base):
            base = None
        epoch = self._epochs.begin(0 if base is None else self._confirmed_epoch)
        if kind == "checkpoint":
            self._begun[checkpoint_id] = _Begun(epoch, base)

    def confirmed(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint is complete: the next snapshots build on it. A repeated call has no
        effect."""
        handle = self._written.get(checkpoint_id)
        if handle is None:
            return
        self._confirmed, self._confirmed_epoch = handle, self._begun[checkpoint_id].epoch
        self._epochs.confirmed = self._confirmed_epoch
        self._begun = {n: begun for n, begun in self._begun.items() if n > checkpoint_id}
        self._written = {n: handle for n, handle in self._written.items() if n > checkpoint_id}
        self._restored_keys = frozenset()
        self._aborted = {n for n in self._aborted if n > checkpoint_id}

    def aborted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint is aborted: a snapshot that is not written yet will not be written."""
        self._aborted.add(checkpoint_id)

    async def write(
        self, checkpoint_id: int, snapshots: dict[str, OperatorSnapshot], *, final: bool = False
    ) -> StateHandle | None:
        """Copies the cut tables in slices, awaits pending parts of the snapshots, encodes in the helper
        thread, and uploads the object if it is large. Returns None if the checkpoint was aborted
        meanwhile."""

        def wanted() -> bool:
            return final or checkpoint_id not in self._aborted

        await _copy(snapshots, self._environment.time_s, wanted)
        for snapshot in snapshots.values():
            if snapshot.pending is not None:
                snapshot.lists.update(await snapshot.pending)
                snapshot.pending = None

        def encode() -> bytes | None:
            try:
                return write_snapshot(
                    snapshots,
                    checkpoint_id=checkpoint_id,
                    key_groups=self._key_groups,
                    meta=self._meta(),
                    wanted=wanted,
                )
            except Unwanted:
                return None

        data = None
        if wanted():
            # A thread switch costs more than encoding a snapshot without tables.
            large = any(snapshot.keyed for snapshot in snapshots.values())
            data = await self._environment.helper.run(encode) if large else encode()
        if data is None or not wanted():
            _discard(snapshots)
            return None
        # A final snapshot is whole: the checkpoint that a delta would build on may be deleted before the
        # master knows of the delta.
        begun = None if final else self._begun.get(checkpoint_id)
        handle = StateHandle(
            vertex_id=self._vertex.id,
            subtask_index=self._descriptor.subtask_index,
            checkpoint_id=checkpoint_id,
            size_bytes=len(data),
            key_groups=self._key_groups,
            chain=() if begun is None or begun.base is None else _links(begun.base),
        )
        carried = sum(link.size_bytes for link in handle.chain if link.inline is not None)
        if carried + len(data) <= INLINE_BYTES:
            handle = msgspec.structs.replace(handle, inline=data)
        else:
            key = await self._upload(data, "final" if final else str(checkpoint_id))
            handle = msgspec.structs.replace(handle, key=key)
        if begun is not None:
            self._written[checkpoint_id] = handle
        return handle

    async def _upload(self, data: bytes, folder: str) -> str:
        env, vertex = self._environment, self._vertex
        if env.store is None:
            raise InternalError(
                "a snapshot is too large to travel inline and the job has no object store",
                expected=f"at most {INLINE_BYTES} bytes",
                got=f"{len(data)} bytes of {vertex.name}",
            )
        name = f"{vertex.id}-{self._descriptor.subtask_index}-{env.job_attempt}"
        key = f"jobs/{env.job_id}/checkpoints/{folder}/{name}"
        await asyncio.gather(env.store.put(key, data), self._keep_copy(key, data))
        return key

    async def _keep_copy(self, key: str, data: bytes) -> None:
        """Keeps a copy on the local disk, and removes copies that no restore will ask for."""
        copies = self._copies
        if copies is None:
            return
        handles = [*self._written.values(), *([self._confirmed] if self._confirmed else [])]
        keys = self._restored_keys.union({key}, *(handle.keys for handle in handles))

        def keep() -> None:
            copies.save(key, data)
            copies.keep_only(keys, self._subtask)
            copies.sweep()

        await self._environment.helper.run(keep)

    @property
    def _subtask(self) -> str:
        return f"{self._vertex.id}-{self._descriptor.subtask_index}"

    def _meta(self) -> dict[str, Any]:
        env, vertex, task = self._environment, self._vertex, self._descriptor
        return {
            "job_id": env.job_id,
            "vertex_id": vertex.id,
            "vertex": vertex.name,
            "subtask_index": task.subtask_index,
            "parallelism": vertex.parallelism,
            "max_parallelism": vertex.max_parallelism,
            "operators": {node.uid: node.name for node in vertex.operators},
            "identities": self._identities,
        }


def _bears_delta(base: StateHandle) -> bool:
    """Whether one more delta saves work: the whole state is not small, the chain is short, and its deltas
    together are not larger than the whole state."""
    whole = base.chain[-1] if base.chain else base
    if whole.size_bytes <= WHOLE_BYTES or len(base.chain) >= MAX_DELTAS:
        return False
    return base.full_size_bytes - whole.size_bytes <= whole.size_bytes


def _links(base: StateHandle) -> tuple[StateLink, ...]:
    own = StateLink(
        checkpoint_id=base.checkpoint_id, key=base.key, inline=base.inline, size_bytes=base.size_bytes
    )
    return (own, *base.chain)


class _Slice:
    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self.begin()

    def begin(self) -> None:
        self._until = self._time_s() + SLICE_S
        self._begun = False

    def lasts(self) -> bool:
        """Whether another piece may be copied. The first one always may, so that every slice makes
        progress."""
        begun, self._begun = self._begun, True
        return not begun or self._time_s() < self._until


async def _copy(
    snapshots: Mapping[str, OperatorSnapshot], time_s: Callable[[], float], wanted: Callable[[], bool]
) -> None:
    """Copies every cut table, a slice at a time, so that the steps of tasks run in between."""
    piece = _Slice(time_s)
    try:
        for block in _pending(snapshots):
            while wanted() and not block.copy(piece.lasts):
                await asyncio.sleep(0)
                piece.begin()
    except BaseException:
        _discard(snapshots)
        raise


def _pending(snapshots: Mapping[str, OperatorSnapshot]) -> list[PendingBlock]:
    return [b for s in snapshots.values() for b in s.keyed.values() if isinstance(b, PendingBlock)]


def _discard(snapshots: Mapping[str, OperatorSnapshot]) -> None:
    for block in _pending(snapshots):
        block.discard()


def local_copies(environment: Environment) -> LocalCopies | None:
    """The local copies of snapshots of this slot's job; None if the slot keeps no copies."""
    folder = environment.local_state_dir
    if folder is None or not LOCAL_RECOVERY.read(environment.config):
        return None
    return LocalCopies(folder, environment.job_id, environment.log)


async def restore_vertex(
    descriptor: TaskDescriptor, vertex: JobVertex, source: Source
) -> RestoredVertex | None:
    """The subtask's share of its vertex's checkpoint, or None if it starts without state."""
    if not descriptor.restore:
        return None
    index, parallelism = descriptor.subtask_index, vertex.parallelism
    found = await SnapshotSet.open(descriptor.restore, source)
    out = RestoredVertex(found.checkpoint_id)
    groups = key_group_range(index, parallelism, vertex.max_parallelism)
    source.total_bytes = source.read_bytes + found.bytes_of(groups)
    for node in vertex.operators:
        state = await found.restore(node.uid, key_groups=groups, subtask_index=index, parallelism=parallelism)
        if state is not None:
            convert(state, found.identity(node.uid), node.identity)
            out.operators[node.uid] = state
    task = await found.restore(TASK_UID, key_groups=groups, subtask_index=index, parallelism=parallelism)
    if task is not None:
        for item in task.unions.get(_WATERMARKS, []):
            values = msgspec.json.decode(item, type=dict[str, int])
            for uid, value in values.items():
                out.watermarks[uid] = min(value, out.watermarks.get(uid, value))
        out.watermarks = {u: w for u, w in out.watermarks.items() if w > MIN_WATERMARK}
    return out
