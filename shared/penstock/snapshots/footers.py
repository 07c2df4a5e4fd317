"""The content of a snapshot object, read from its footer without Arrow (``docs/state-format.md``)."""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SnapshotError
from penstock.jobgraph.identity import OperatorIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.slot import StateHandle, StateLink
    from penstock.ports import Store
    from penstock.snapshots.manifest import CheckpointManifest, VertexState

_MAGIC = b"PENSNAP\n"
_TRAILER = struct.Struct("<IIHH8s")
_TAIL_BYTES = 64 * 1024
#: The number of objects that are read at the same time.
_PARALLEL = 16
#: The prefix of uids of internal state: a task's watermarks, and rows that a barrier has overtaken.
INTERNAL = "__"


class Block(msgspec.Struct):
    """One block: its place in the object in bytes, its CRC-32, and its number of rows."""

    offset: int = 0
    length: int = 0
    crc: int = 0
    rows: int = 0


class State(msgspec.Struct):
    """One state of one operator in one object."""

    name: str
    kind: str
    blocks: list[Block] = []
    touched: list[Block] = []
    schema: dict[str, Any] = {}


class Operator(msgspec.Struct):
    """The states of one operator in one object."""

    uid: str
    states: list[State] = []


class Footer(msgspec.Struct):
    """The parts of an object's footer that are needed without Arrow."""

    version: int
    key_groups: tuple[int, int]
    operators: list[Operator] = []
    meta: dict[str, Any] = {}


class StateSummary(msgspec.Struct, kw_only=True):
    """One state of one operator over all subtasks. ``schema``: names → SQL types, and what else describes the
    state; ``size_bytes``: as stored."""

    name: str
    kind: str
    schema: dict[str, Any] = {}
    rows: int = 0
    size_bytes: int = 0


class OperatorSummary(msgspec.Struct, kw_only=True):
    """The state of one operator over all subtasks. ``identity``: None in savepoints of the version before
    identities, and in those that tools wrote."""

    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[StateSummary] = []
    identity: OperatorIdentity | None = None

    @property
    def rows(self) -> int:
        """The number of rows of all states."""
        return sum(state.rows for state in self.states)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a snapshot object belongs, for errors. ``manifest``: the key of the manifest that names it."""

    manifest: str
    vertex: str
    subtask_index: int

    def of(self, link: StateHandle | StateLink) -> str:
        """The object ``link`` as text."""
        kept = f"kept inline in {self.manifest or 'the manifest'}" if link.key is None else link.key
        return f"snapshot object {kept}, of vertex '{self.vertex}', subtask {self.subtask_index}"


async def _tail(store: Store, link: StateHandle | StateLink, place: Place) -> bytes:
    if link.inline is not None:
        return link.inline[-_TAIL_BYTES:]
    assert link.key is not None
    length = min(_TAIL_BYTES, link.size_bytes)
    try:
        tail = await store.get_range(link.key, link.size_bytes - length, length)
        footer_bytes = _TRAILER.unpack(tail[-_TRAILER.size :])[0] if len(tail) >= _TRAILER.size else 0
        need = footer_bytes + _TRAILER.size
        if length < need <= link.size_bytes:
            tail = await store.get_range(link.key, link.size_bytes - need, need)
    except KeyError:
        raise missing(link, place) from None
    return tail


def missing(link: StateHandle | StateLink, place: Place) -> SnapshotError:
    """The error for an object that does not exist."""
    return SnapshotError(
        "a snapshot object is missing",
        expected=f"an object of {link.size_bytes} bytes",
        got="no such object",
        where=place.of(link),
        remedy="restore from another checkpoint or savepoint",
    )


async def read_footer(store: Store, link: StateHandle | StateLink, place: Place) -> Footer:
    """The footer of a snapshot object. Raises SnapshotError if the object is missing or its footer is
    damaged."""
    tail = await _tail(store, link, place)
    try:
        length, crc, _, _, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        data = tail[-_TRAILER.size - length : -_TRAILER.size]
        if magic != _MAGIC or len(data) != length or zlib.crc32(data) != crc:
            raise ValueError("checksum, length or magic do not fit")
        return msgspec.json.decode(data, type=Footer)
    except (struct.error, ValueError, msgspec.DecodeError) as err:
        raise SnapshotError(
            "a snapshot object is damaged",
            expected="a footer with a right checksum",
            got=str(err),
            where=f"{place.of(link)}, footer",
            remedy="restore from another checkpoint or savepoint; this one cannot be used",
        ) from err


async def summarise(
    store: Store, manifest: CheckpointManifest, manifest_key: str = ""
) -> list[OperatorSummary]:
    """Every operator with its states, in the manifest's order. Raises SnapshotError, which names the object,
    if one is damaged or missing. An inline object is named by its manifest and subtask."""
    limit = asyncio.Semaphore(_PARALLEL)

    async def read(vertex: VertexState, handle: StateHandle) -> Footer:
        place = Place(manifest=manifest_key, vertex=vertex.name, subtask_index=handle.subtask_index)
        async with limit:
            return await read_footer(store, handle, place)

    found: list[OperatorSummary] = []
    for vertex in manifest.vertices:
        # The older objects of a chain hold rows of the same states only, so the newest one is enough.
        footers = await asyncio.gather(*(read(vertex, handle) for handle in vertex.handles))
        names: dict[str, str] = {}
        identities: dict[str, OperatorIdentity] = {}
        for footer in footers:
            names |= footer.meta.get("operators", {})
            for uid, identity in footer.meta.get("identities", {}).items():
                if uid not in identities:
                    identities[uid] = msgspec.convert(identity, OperatorIdentity)
        uids = list(vertex.uids) + [u for u in _uids(footers) if u not in vertex.uids]
        found += [
            OperatorSummary(
                uid=uid,
                name=names.get(uid, uid),
                vertex=vertex.name,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.max_parallelism,
                states=_states(uid, footers),
                identity=identities.get(uid),
            )
            for uid in uids
            if not uid.startswith(INTERNAL)
        ]
    return found


def _uids(footers: Iterable[Footer]) -> list[str]:
    return list(dict.fromkeys(op.uid for footer in footers for op in footer.operators))


def _states(uid: str, footers: Iterable[Footer]) -> list[StateSummary]:
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
