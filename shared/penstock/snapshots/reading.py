"""Reads a snapshot object: its footer, and those of its blocks that are wanted.

Blocks are read and verified first. They are decoded only when their rows are used: the bytes are then in
the processor's cache, and the memory of one decoded block is free for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar import hashing
from penstock.errors import SnapshotError
from penstock.snapshots.packing import unpack
from penstock.snapshots.writing import (
    MAGIC,
    TRAILER_BYTES,
    BlockInfo,
    Footer,
    HashedBy,
    StateInfo,
    check_block,
    corrupt,
    decode_block,
    parse_footer,
    parse_trailer,
    rows_in_range,
)
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Two blocks are read together if the gap between them has at most so many bytes, up to about so many bytes a
#: read.
READ_GAP_BYTES, READ_BYTES = 256 * 1024, 8 << 20
#: The size of the first read, from the end of the object. It holds trailer and footer of nearly every object.
_TAIL_BYTES = 64 * 1024

#: ``await read(start, length)`` returns these bytes of the object.
Read = Callable[[int, int], Awaitable["bytes | memoryview"]]
#: Runs a long call on the slot's helper thread, and returns its result.
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


async def _here(call: Callable[[], Any]) -> Any:
    return call()


class Within:
    """Selects the rows of an inclusive range of key groups by the hash of their keys."""

    def __init__(self, hashed_by: HashedBy, key_groups: tuple[int, int]) -> None:
        self._types = [t.type_from_json(x) for x in hashed_by.types]
        self._max_parallelism = hashed_by.max_parallelism
        self._range = key_groups

    def of(self, packed: pa.RecordBatch) -> pa.RecordBatch:
        """The selected rows of a packed batch, packed."""
        keys = unpack(packed, range(len(self._types)))
        columns = [Column.from_arrow(type_, keys.column(i)) for i, type_ in enumerate(self._types)]
        groups = hashing.key_groups(hashing.hash_columns(columns), self._max_parallelism)
        first, last = self._range
        wanted = (groups >= first) & (groups <= last)
        return packed if wanted.all() else packed.take(pa.array(np.flatnonzero(wanted)))


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block that was read and verified. ``start`` and ``stop``: the range of wanted rows. ``within``:
    selects among these the rows of some key groups by their keys."""

    info: BlockInfo
    stored: bytes | memoryview
    codec: str
    start: int
    stop: int
    within: Within | None = None

    def packed(self) -> pa.RecordBatch:
        """The wanted rows, decoded. Their columns may still be packed."""
        found = decode_block(self.stored, self.info, self.codec).slice(self.start, self.stop - self.start)
        return found if self.within is None else self.within.of(found)

    def rows(self) -> pa.RecordBatch:
        """The wanted rows, decoded and unpacked."""
        return unpack(self.packed())


class RestoredRows(Sequence[pa.RecordBatch]):
    """Record batches that are decoded each time they are used. ``parts``: (upper bound of the rows, function
    that makes them)."""

    def __init__(self, parts: Sequence[tuple[int, Callable[[], pa.RecordBatch]]] = ()) -> None:
        self._parts = list(parts)

    @property
    def num_rows(self) -> int:
        """An upper bound of the number of rows. Nothing is decoded for it."""
        return sum(rows for rows, _ in self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return RestoredRows(self._parts[index])
        return self._parts[index][1]()

    def mapped(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> RestoredRows:
        """These batches, each changed by ``change`` when it is decoded. ``change`` must keep the number of
        rows."""

        def changed(make: Callable[[], pa.RecordBatch]) -> Callable[[], pa.RecordBatch]:
            return lambda: change(make())

        return RestoredRows([(rows, changed(make)) for rows, make in self._parts])

    def __add__(self, other: RestoredRows) -> RestoredRows:
        return RestoredRows([*self._parts, *other._parts])


def row_count(batches: Sequence[pa.RecordBatch]) -> int:
    """An upper bound of the number of rows; nothing is decoded for it."""
    if isinstance(batches, RestoredRows):
        return batches.num_rows
    return sum(batch.num_rows for batch in batches)


class SnapshotReader:
    """Reads one object of ``size`` bytes with ``read(start, length)``. ``name`` is for errors.

    ``spare``: makes another source if ``read`` returns damaged bytes (of a local copy). ``run``: runs long
    calls.
    """

    def __init__(self, read: Read, size: int, name: str, footer: Footer) -> None:
        self._read = read
        self.size = size
        self.name = name
        self.footer = footer
        self.spare: Callable[[Exception], Read] | None = None
        self.run: Run = _here

    @classmethod
    async def open(cls, read: Read, size: int, name: str) -> SnapshotReader:
        """Reads the footer of an object of ``size`` bytes. Raises SnapshotError if it is damaged."""
        tail_at = max(0, size - _TAIL_BYTES)
        tail = await read(tail_at, size - tail_at)
        length, crc = parse_trailer(tail, name)
        at = size - TRAILER_BYTES - length
        if at < len(MAGIC):
            raise corrupt(name, "footer", f"{length} bytes before the trailer", f"an object of {size} bytes")
        if at >= tail_at:
            data = tail[at - tail_at : at - tail_at + length]
        else:
            data = await read(at, length)
        return cls(read, size, name, parse_footer(data, crc, name))

    @classmethod
    async def of_bytes(cls, data: bytes, name: str = "(inline)") -> SnapshotReader:
        """A reader of an object in memory. Raises SnapshotError if the object is damaged."""

        async def read(start: int, length: int) -> bytes:
            return data[start : start + length]

        return await cls.open(read, len(data), name)

    async def keyed(self, uid: str, state: StateInfo, key_groups: tuple[int, int]) -> list[StoredBlock]:
        """The blocks of a keyed state with rows in the inclusive range ``key_groups``, in key-group order.
        Raises SnapshotError if a block is damaged."""
        ranges = [rows_of(self.footer, state, block, key_groups) for block in state.blocks]
        wanted = [(i, state.blocks[i]) for i, (start, stop) in enumerate(ranges) if stop > start]
        found = await self._blocks(uid, state, wanted)
        within = None
        if state.hashed_by is not None and not _holds(key_groups, self.footer.key_groups):
            within = Within(state.hashed_by, key_groups)
        return [
            StoredBlock(block, stored, self.footer.codec, *ranges[i], within)
            for (i, block), stored in zip(wanted, found, strict=True)
        ]

    async def items(self, uid: str, state: StateInfo) -> list[bytes]:
        """All items of a list or union state that this subtask wrote."""
        batches = await self._whole(uid, state, state.blocks, "block")
        return [item for batch in batches for item in batch.column(0).to_pylist()]

    async def touched(self, uid: str, state: StateInfo) -> np.ndarray:
        """The slot numbers (int64, ascending) whose older rows a delta by slot replaces or removes."""
        batches = await self._whole(uid, state, state.touched, "touched block")
        if not batches:
            return np.empty(0, np.int64)
        return np.cumsum(np.concatenate([b.column(0).to_numpy() for b in batches]))

    async def _whole(
        self, uid: str, state: StateInfo, blocks: Sequence[BlockInfo], label: str
    ) -> list[pa.RecordBatch]:
        found = await self._blocks(uid, state, list(enumerate(blocks)), label)
        codec = self.footer.codec
        return [
            StoredBlock(block, stored, codec, 0, block.rows).rows()
            for block, stored in zip(blocks, found, strict=True)
        ]

    async def _blocks(
        self, uid: str, state: StateInfo, blocks: Sequence[tuple[int, BlockInfo]], label: str = "block"
    ) -> list[memoryview]:
        """Reads neighbouring blocks together, and all pieces at the same time."""
        pieces = await asyncio.gather(
            *(self._piece(uid, state, piece, label) for piece in _neighbours(blocks))
        )
        return [stored for piece in pieces for stored in piece]

    async def _piece(
        self, uid: str, state: StateInfo, blocks: Sequence[tuple[int, BlockInfo]], label: str
    ) -> list[memoryview]:
        start = blocks[0][1].offset
        end = blocks[-1][1].offset + blocks[-1][1].length
        read = self._read

        def check(data: memoryview) -> list[memoryview]:
            out = []
            for i, block in blocks:
                stored = data[block.offset - start : block.offset - start + block.length]
                check_block(
                    stored, block, self.name, f"{label} {i} of state '{state.name}' of operator '{uid}'"
                )
                out.append(stored)
            return out

        try:
            data = memoryview(await read(start, end - start))
            return await self.run(lambda: check(data))
        except (SnapshotError, OSError) as err:  # OSError: the local copy or its disk is gone
            if read is self._read:
                if self.spare is None:
                    raise
                self._read, self.spare = self.spare(err), None
        return await self._piece(uid, state, blocks, label)


def _holds(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def rows_of(
    footer: Footer, state: StateInfo, block: BlockInfo, key_groups: tuple[int, int]
) -> tuple[int, int]:
    """The rows [start, stop) of a keyed block among which those of the inclusive range are."""
    if state.hashed_by is None:
        return rows_in_range(block, key_groups)
    first, last = footer.key_groups
    return (0, block.rows) if key_groups[0] <= last and first <= key_groups[1] else (0, 0)


def _neighbours(
    blocks: Sequence[tuple[int, BlockInfo]],
) -> Iterator[list[tuple[int, BlockInfo]]]:
    """Groups blocks that are near to one another and small enough together for one read."""
    piece: list[tuple[int, BlockInfo]] = []
    for i, block in blocks:
        if piece:
            first, last = piece[0][1], piece[-1][1]
            end = last.offset + last.length
            if block.offset - end > READ_GAP_BYTES or block.offset - first.offset > READ_BYTES:
                yield piece
                piece = []
        piece.append((i, block))
    if piece:
        yield piece
