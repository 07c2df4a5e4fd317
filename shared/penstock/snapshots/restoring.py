"""Restores state from snapshot objects: chains of deltas, and the share of a subtask.

A chain is the object of a checkpoint and the objects on which it builds, newest first. If rows are
identified by slot number, a row counts unless a newer object touched its slot number. If rows are
identified by key, the rows of a key count only in the newest object that has the key.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import InternalError, SnapshotError
from penstock.jobgraph.identity import OperatorIdentity
from penstock.snapshots.by_key import without_keys, without_removed
from penstock.snapshots.contract import BESIDE, RestoredState
from penstock.snapshots.keyed_blocks import SLOT_COLUMN
from penstock.snapshots.packing import unpack
from penstock.snapshots.reading import RestoredRows, SnapshotReader, StoredBlock, rows_of
from penstock.snapshots.writing import BlockInfo, StateInfo, corrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock.log_events import Log
    from penstock.messages.slot import StateHandle, StateLink
    from penstock.ports import Store
    from penstock.snapshots.local_copies import LocalCopies
    from penstock.snapshots.reading import Read, Run

#: The number of reads of one subtask at the same time.
PARALLEL_READS = 8
#: Touched slot numbers are looked up in a mask if it has at most so many bytes, or so many for each slot
#: number.
_MASK_BYTES, _MASK_PER_SLOT = 1 << 20, 64


@dataclass(slots=True)
class Source:
    """Where snapshot objects are read: from local copies if they exist, otherwise from the store. It counts
    the progress.

    ``run``: runs long calls on the helper thread.
    """

    store: Store | None
    copies: LocalCopies | None = None
    run: Run | None = None
    log: Log | None = None
    #: Bytes to read, as far as known; bytes that were read; and those of them from local copies.
    total_bytes: int = 0
    read_bytes: int = 0
    local_bytes: int = 0
    #: Milliseconds for reading and verifying, and for loading the rows into the operators' state.
    read_ms: float = 0.0
    load_ms: float = 0.0
    _limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_READS))

    def remote(self, key: str, missing: str) -> Read:
        """Reads the object ``key`` from the store. ``missing``: text for the error if it does not exist."""
        store = self.store

        async def read(start: int, length: int) -> bytes:
            assert store is not None
            async with self._limit:
                try:
                    data = await store.get_range(key, start, length)
                except KeyError:
                    raise SnapshotError(
                        "a snapshot object is missing",
                        expected=missing,
                        got="no such object",
                        where=f"snapshot object {key}",
                        remedy="restore from an earlier checkpoint or savepoint",
                    ) from None
            self.read_bytes += len(data)
            return data

        return read

    def local(self, path: Path) -> Read:
        """Reads the local copy at ``path``."""
        copies = self.copies

        async def read(start: int, length: int) -> memoryview:
            assert copies is not None
            async with self._limit:
                if self.run is None:
                    data = copies.read(path, start, length)
                else:
                    data = await self.run(lambda: copies.read(path, start, length))
            self.read_bytes += len(data)
            self.local_bytes += len(data)
            return data

        return read

    def damaged(self, path: Path, key: str, err: Exception) -> None:
        """Logs that the local copy failed its checksum, and removes it."""
        path.unlink(missing_ok=True)
        if self.log is not None:
            self.log("warning", "local_copy_damaged", key=key, error=err)


class SnapshotChain:
    """A snapshot and the snapshots on which it builds. ``readers``: of one former subtask, newest first; the
    last is a base."""

    def __init__(self, readers: Sequence[SnapshotReader]) -> None:
        self.readers = list(readers)

    @property
    def newest(self) -> SnapshotReader:
        """The reader of the newest object."""
        return self.readers[0]

    @classmethod
    async def open(cls, handle: StateHandle, source: Source) -> SnapshotChain:
        """Opens all objects of a chain. Raises SnapshotError, which names the object, if one is damaged or
        missing."""
        links: list[StateHandle | StateLink] = [handle, *handle.chain]
        return cls(await asyncio.gather(*(_open(handle, link, source) for link in links)))

    async def keyed(self, uid: str, name: str, key_groups: tuple[int, int]) -> RestoredRows:
        """The rows of a keyed state in the inclusive range of key groups, oldest object first, so that
        appended rows keep their order. All blocks are read and verified now, and each is decoded when it
        is used."""
        links = self._links(uid, name)
        fetched = await asyncio.gather(*(reader.keyed(uid, state, key_groups) for reader, state in links))
        newest = links[0][1]
        if newest.identity == "key":
            batches = await self.newest.run(lambda: _newest_of_each_key(newest, fetched))
            return RestoredRows([(batch.num_rows, partial(_same, batch)) for batch in batches])
        if not newest.identity:
            return RestoredRows([(block.stop - block.start, block.rows) for block in fetched[0]])
        kept: list[RestoredRows] = []
        touched: list[np.ndarray] = []
        for found, (reader, state) in zip(fetched, links, strict=True):
            newer = _Touched(touched) if touched else None
            kept.append(
                RestoredRows(
                    [(block.stop - block.start, partial(_untouched, block, newer)) for block in found]
                )
            )
            if state.delta:
                touched.append(await reader.touched(uid, state))
        return sum(reversed(kept), RestoredRows())

    def _links(self, uid: str, name: str) -> list[tuple[SnapshotReader, StateInfo]]:
        """The objects that hold a part of the state, newest first, down to a whole one."""
        links: list[tuple[SnapshotReader, StateInfo]] = []
        for reader in self.readers:
            found = next((s for s in reader.footer.states(uid) if s.name == name), None)
            if found is None:
                break
            links.append((reader, found))
            if not found.delta:
                return links
        raise corrupt(
            self.readers[-1].name, f"state '{name}' of operator '{uid}'", "a whole state", "only deltas to it"
        )


def _newest_of_each_key(state: StateInfo, links: Sequence[Sequence[StoredBlock]]) -> list[pa.RecordBatch]:
    """``links``: the blocks of each object of a chain, newest first. A key in a newer object hides all its
    rows in older ones."""
    out: list[pa.RecordBatch] = []
    newer: list[pa.RecordBatch] = []
    for blocks in links:
        batches = [block.rows() for block in blocks]
        out += [without_removed(without_keys(batch, newer, state.schema)) for batch in batches]
        newer += batches
    return [batch for batch in out if batch.num_rows]


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class _Touched:
    """The slot numbers that newer objects of a chain touched."""

    def __init__(self, slots: Sequence[np.ndarray]) -> None:
        every = np.concatenate(slots)
        high = int(every.max()) + 1 if len(every) else 0
        self._mask: np.ndarray | None = None
        if high <= max(_MASK_BYTES, _MASK_PER_SLOT * len(every)):
            self._mask = np.zeros(
                high + 1, np.bool_
            )  # the last entry stands for all higher numbers: untouched
            self._mask[every] = True
        else:
            self._slots = np.unique(every)

    def holds(self, slots: np.ndarray) -> np.ndarray:
        if self._mask is not None:
            return self._mask.take(slots, mode="clip")
        at = np.searchsorted(self._slots, slots)
        return self._slots.take(at, mode="clip") == slots


def _overlaps(
    reader: SnapshotReader, state: StateInfo, block: BlockInfo, key_groups: tuple[int, int]
) -> bool:
    start, stop = rows_of(reader.footer, state, block, key_groups)
    return stop > start


def _untouched(block: StoredBlock, newer: _Touched | None) -> pa.RecordBatch:
    """The rows whose slot numbers no newer object touched, without the column of slot numbers."""
    packed = block.packed()
    last = packed.num_columns - 1
    if packed.schema.names[-1] != SLOT_COLUMN:
        raise InternalError(
            "rows identified by slot number have no slot numbers", got=str(packed.schema.names)
        )
    rows = unpack(packed, range(last))
    if newer is None:
        return rows
    gone = newer.holds(unpack(packed, [last]).column(0).to_numpy())
    return rows.take(pa.array(np.flatnonzero(~gone))) if gone.any() else rows


async def _open(handle: StateHandle, link: StateHandle | StateLink, source: Source) -> SnapshotReader:
    where = f"of {handle.vertex_id}:{handle.subtask_index} at checkpoint {link.checkpoint_id}"
    if link.inline is not None:
        return await SnapshotReader.of_bytes(link.inline, f"(inline, {where})")
    key, size = link.key, link.size_bytes
    if key is None or source.store is None:
        raise InternalError(f"state handle {where} has neither bytes nor a store to read from")
    remote = source.remote(key, f"an object of {size} bytes {where}")
    path = source.copies.find(key, size) if source.copies is not None else None
    reader = None
    if path is not None:
        reader = await _open_copy(path, remote, size, key, source)
    if reader is None:
        reader = await SnapshotReader.open(remote, size, key)
    if source.run is not None:
        reader.run = source.run
    return reader


async def _open_copy(path: Path, remote: Read, size: int, key: str, source: Source) -> SnapshotReader | None:
    """A reader of the local copy that falls back to the store; None if the copy is damaged."""

    def instead(err: Exception) -> Read:
        source.damaged(path, key, err)
        return remote

    try:
        reader = await SnapshotReader.open(source.local(path), size, key)
    except (SnapshotError, OSError) as err:
        source.damaged(path, key, err)
        return None
    reader.spare = instead
    return reader


class SnapshotSet:
    """All snapshot objects of one vertex at one checkpoint, opened once.

    ``chains`` are ordered by subtask index. ``restore`` is called for each operator.
    """

    def __init__(self, chains: Sequence[SnapshotChain], checkpoint_id: int) -> None:
        self._chains = list(chains)
        self.checkpoint_id = checkpoint_id

    @classmethod
    async def open(cls, handles: Iterable[StateHandle], source: Source) -> SnapshotSet:
        """Opens the objects of ``handles``. Raises SnapshotError, which names the object, if one is damaged
        or missing."""
        ordered = sorted(handles, key=lambda h: h.subtask_index)
        chains = await asyncio.gather(*(SnapshotChain.open(handle, source) for handle in ordered))
        return cls(chains, max((h.checkpoint_id for h in ordered), default=0))

    def identity(self, uid: str) -> OperatorIdentity | None:
        """The identity that the operator had when its state was written; None if a version without identities
        wrote it."""
        for chain in self._chains:
            found = chain.newest.footer.meta.get("identities", {}).get(uid)
            if found is not None:
                return msgspec.convert(found, OperatorIdentity)
        return None

    def uids(self) -> set[str]:
        """The uids of all operators with state."""
        return {op.uid for chain in self._chains for op in chain.newest.footer.operators}

    async def restore(
        self, uid: str, *, key_groups: tuple[int, int], subtask_index: int, parallelism: int
    ) -> RestoredState | None:
        """The state of operator ``uid`` for subtask ``subtask_index`` of ``parallelism``; None if the
        checkpoint does not have the operator. Raises SnapshotError if an object is damaged.

        List items are dealt out round robin in the order (subtask, index). Unions are whole.
        """
        if uid not in self.uids():
            return None
        out = RestoredState(self.checkpoint_id)
        found: dict[str, RestoredRows] = {}
        lists: dict[str, list[bytes]] = {}
        keyed = await self._keyed(uid, key_groups)
        for chain in self._chains:
            newest = chain.newest
            for state in newest.footer.states(uid):
                if state.kind == "keyed":
                    rows = keyed[chain, state.name]
                    found[state.name] = found.get(state.name, RestoredRows()) + rows
                    out.schemas.setdefault(state.name, []).extend([_schema(newest, uid, state)] * len(rows))
                elif state.kind == "list":
                    lists.setdefault(state.name, []).extend(await newest.items(uid, state))
                elif state.kind == "union":
                    out.unions.setdefault(state.name, []).extend(await newest.items(uid, state))
                else:
                    raise corrupt(
                        newest.name, f"state '{state.name}'", "kind keyed | list | union", state.kind
                    )
        out.keyed.update(found)
        out.lists = {name: items[subtask_index::parallelism] for name, items in lists.items()}
        return out

    async def _keyed(
        self, uid: str, key_groups: tuple[int, int]
    ) -> dict[tuple[SnapshotChain, str], RestoredRows]:
        """The rows of every keyed state of every chain, read at the same time."""
        wanted = [
            (chain, state.name)
            for chain in self._chains
            for state in chain.newest.footer.states(uid)
            if state.kind == "keyed"
        ]
        found = await asyncio.gather(*(chain.keyed(uid, name, key_groups) for chain, name in wanted))
        return dict(zip(wanted, found, strict=True))

    def bytes_of(self, key_groups: tuple[int, int]) -> int:
        """The stored bytes of the keyed blocks with rows in the inclusive range."""
        return sum(
            block.length
            for chain in self._chains
            for reader in chain.readers
            for operator in reader.footer.operators
            for state in operator.states
            for block in state.blocks
            if state.kind == "keyed" and _overlaps(reader, state, block, key_groups)
        )


def _schema(reader: SnapshotReader, uid: str, state: StateInfo) -> dict[str, Any]:
    """The schema of a state as it was written. For state that functions declare it also names the other keyed
    states."""
    if "key_types" not in state.schema:
        return state.schema
    beside = [other.name for other in reader.footer.states(uid) if other.kind == "keyed"]
    return {BESIDE: beside, **state.schema}


async def restore(
    handles: Iterable[StateHandle],
    uid: str,
    key_groups: tuple[int, int],
    subtask_index: int,
    parallelism: int,
    store: Store | None = None,
) -> RestoredState | None:
    """The state of a single operator; see ``SnapshotSet.restore``."""
    opened = await SnapshotSet.open(handles, Source(store))
    return await opened.restore(
        uid, key_groups=key_groups, subtask_index=subtask_index, parallelism=parallelism
    )
