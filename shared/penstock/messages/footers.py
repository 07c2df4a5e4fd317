"""What a snapshot object holds, from its footer alone: no Arrow needed (``docs/state-format.md``)."""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.manifest import CheckpointManifest
    from penstock.messages.slot import StateHandle, StateLink
    from penstock.ports import Store

_MAGIC = b"PENSNAP\n"
_TRAILER = struct.Struct("<IIHH8s")
_TAIL_BYTES = 64 * 1024
#: Objects read at the same time.
_PARALLEL = 16
#: Operators of our own: a task's watermarks, rows that a barrier has overtaken.
INTERNAL = "__"


class _Block(msgspec.Struct):
    length: int = 0
    rows: int = 0


class _State(msgspec.Struct):
    name: str
    kind: str
    blocks: list[_Block] = []
    schema: dict[str, Any] = {}


class _Operator(msgspec.Struct):
    uid: str
    states: list[_State] = []


class _Footer(msgspec.Struct):
    version: int
    key_groups: tuple[int, int]
    operators: list[_Operator] = []
    meta: dict[str, Any] = {}


class StateSummary(msgspec.Struct, kw_only=True):
    """One state of one operator over all subtasks. ``schema``: names → SQL types and what else
    the operator says of it; ``size_bytes``: as stored."""

    name: str
    kind: str
    schema: dict[str, Any] = {}
    rows: int = 0
    size_bytes: int = 0


class OperatorSummary(msgspec.Struct, kw_only=True):
    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[StateSummary] = []

    @property
    def rows(self) -> int:
        return sum(state.rows for state in self.states)


async def _tail(store: Store, link: StateHandle | StateLink) -> tuple[bytes, str]:
    if link.inline is not None:
        return link.inline[-_TAIL_BYTES:], "(inline)"
    assert link.key is not None
    length = min(_TAIL_BYTES, link.size_bytes)
    try:
        tail = await store.get_range(link.key, link.size_bytes - length, length)
        footer_bytes = _TRAILER.unpack(tail[-_TRAILER.size :])[0] if len(tail) >= _TRAILER.size else 0
        need = footer_bytes + _TRAILER.size
        if length < need <= link.size_bytes:
            tail = await store.get_range(link.key, link.size_bytes - need, need)
    except KeyError:
        raise SnapshotError(
            "a snapshot object is missing",
            expected=f"an object of {link.size_bytes} bytes",
            got="no such object",
            where=f"snapshot object {link.key}",
            remedy="restore from another checkpoint or savepoint",
        ) from None
    return tail, link.key


def _parse(tail: bytes, name: str) -> _Footer:
    try:
        length, crc, _, _, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        data = tail[-_TRAILER.size - length : -_TRAILER.size]
        if magic != _MAGIC or len(data) != length or zlib.crc32(data) != crc:
            raise ValueError("checksum, length or magic do not fit")
        return msgspec.json.decode(data, type=_Footer)
    except (struct.error, ValueError, msgspec.DecodeError) as err:
        raise SnapshotError(
            "a snapshot object is damaged",
            expected="a footer with a right checksum",
            got=str(err),
            where=f"snapshot object {name}, footer",
            remedy="restore from another checkpoint or savepoint; this one cannot be used",
        ) from err


async def summarise(store: Store, manifest: CheckpointManifest) -> list[OperatorSummary]:
    """Every operator with its states, in the manifest's order. SnapshotError names a damaged or
    missing object."""
    limit = asyncio.Semaphore(_PARALLEL)

    async def read(link: StateHandle | StateLink) -> _Footer:
        async with limit:
            return _parse(*await _tail(store, link))

    found: list[OperatorSummary] = []
    for vertex in manifest.vertices:
        # A chain's older objects hold rows of the same states, not others.
        footers = await asyncio.gather(*(read(handle) for handle in vertex.handles))
        names: dict[str, str] = {}
        for footer in footers:
            names |= footer.meta.get("operators", {})
        uids = list(vertex.uids) + [u for u in _uids(footers) if u not in vertex.uids]
        found += [
            OperatorSummary(
                uid=uid,
                name=names.get(uid, uid),
                vertex=vertex.name,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                states=_states(uid, footers),
            )
            for uid in uids
            if not uid.startswith(INTERNAL)
        ]
    return found


def _uids(footers: Iterable[_Footer]) -> list[str]:
    return list(dict.fromkeys(op.uid for footer in footers for op in footer.operators))


def _states(uid: str, footers: Iterable[_Footer]) -> list[StateSummary]:
    states: dict[str, StateSummary] = {}
    for footer in footers:
        for operator in footer.operators:
            if operator.uid != uid:
                continue
            for state in operator.states:
                known = states.setdefault(
                    state.name, StateSummary(name=state.name, kind=state.kind, schema=state.schema)
                )
                known.schema = known.schema or state.schema
                known.rows += sum(block.rows for block in state.blocks)
                known.size_bytes += sum(block.length for block in state.blocks)
    return list(states.values())
