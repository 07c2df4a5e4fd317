"""Reads and verifies a whole savepoint: every object that it needs, and the checksum of every block.

Nothing is decoded. Each object that is being read takes up to 8 MiB of memory.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SnapshotError
from penstock.snapshots.footers import Place, missing, read_footer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.slot import StateHandle, StateLink
    from penstock.ports import Store
    from penstock.snapshots.footers import Block, Footer
    from penstock.snapshots.manifest import CheckpointManifest

#: The number of objects that are read at the same time.
_PARALLEL = 4
_PIECE_BYTES = 8 << 20


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was verified. ``bytes``: the size of all blocks."""

    objects: int
    blocks: int
    bytes: int


async def verify(store: Store, manifest: CheckpointManifest, manifest_key: str = "") -> Verified:
    """Verifies all objects of ``manifest``. Raises SnapshotError, which names object, state and block, for
    the first one that is damaged or missing."""
    limit = asyncio.Semaphore(_PARALLEL)

    async def check(link: StateHandle | StateLink, place: Place) -> list[Block]:
        async with limit:
            return await _check(store, link, place)

    found = await asyncio.gather(
        *(
            check(link, Place(manifest=manifest_key, vertex=vertex.name, subtask_index=handle.subtask_index))
            for vertex in manifest.vertices
            for handle in vertex.handles
            for link in _links(handle)
        )
    )
    blocks = [block for of_one in found for block in of_one]
    return Verified(objects=len(found), blocks=len(blocks), bytes=sum(block.length for block in blocks))


def _links(handle: StateHandle) -> tuple[StateHandle | StateLink, ...]:
    return (handle, *handle.chain)


async def _check(store: Store, link: StateHandle | StateLink, place: Place) -> list[Block]:
    labelled = sorted(_blocks(await read_footer(store, link, place)), key=lambda b: b[0].offset)
    for piece in _pieces(labelled):
        start = piece[0][0].offset
        length = piece[-1][0].offset + piece[-1][0].length - start
        data = memoryview(await _read(store, link, place, start, length))
        for block, label in piece:
            stored = data[block.offset - start : block.offset - start + block.length]
            if len(stored) != block.length or zlib.crc32(stored) != block.crc:
                raise SnapshotError(
                    "a snapshot object is damaged",
                    expected=f"{block.length} bytes with crc {block.crc:08x}",
                    got=f"{len(stored)} bytes with crc {zlib.crc32(stored):08x}",
                    where=f"{place.of(link)}, {label}",
                    remedy="restore from another checkpoint or savepoint; this one cannot be used",
                )
    return [block for block, _ in labelled]


async def _read(store: Store, link: StateHandle | StateLink, place: Place, start: int, length: int) -> bytes:
    if link.inline is not None:
        return link.inline[start : start + length]
    assert link.key is not None
    try:
        return await store.get_range(link.key, start, length)
    except KeyError:
        raise missing(link, place) from None


def _blocks(footer: Footer) -> Iterator[tuple[Block, str]]:
    for operator in footer.operators:
        for state in operator.states:
            for kind, blocks in (("block", state.blocks), ("touched block", state.touched)):
                for n, block in enumerate(blocks):
                    yield block, f"{kind} {n} of state '{state.name}' of operator '{operator.uid}'"


def _pieces(blocks: list[tuple[Block, str]]) -> Iterator[list[tuple[Block, str]]]:
    """Groups blocks, sorted by offset, that are read together."""
    piece: list[tuple[Block, str]] = []
    for found in blocks:
        block = found[0]
        if piece and block.offset + block.length - piece[0][0].offset > _PIECE_BYTES:
            yield piece
            piece = []
        piece.append(found)
    if piece:
        yield piece
