"""Writes the snapshot object: one for each subtask and checkpoint, self-describing and versioned.

``docs/state-format.md`` defines the format. In short::

    magic · block … block · footer (JSON) · trailer (footer length, footer crc, version, magic)

A block is an Arrow IPC stream, packed (``packing.py``), compressed as a whole where that pays, with a
CRC-32 in the footer. Blocks of keyed state hold rows in key-group order. The footer lists the key groups
of each block with their numbers of rows, so that a reader of some key groups reads only the blocks that it
needs. A keyed state may be a *delta* to the object before it in a chain. Rows of a delta are often in no
order; a reader of some key groups then reads all of them. This module does no I/O: ``SnapshotReader``
(``reading.py``) reads objects, and ``restoring.py`` combines chains and subtasks.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import InternalError, SnapshotError
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot, PendingBlock
from penstock.snapshots.packing import pack, unpack
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MAGIC = b"PENSNAP\n"
VERSION = 4
#: Footer length, footer crc, version, reserved, magic.
_TRAILER = struct.Struct("<IIHH8s")
TRAILER_BYTES = _TRAILER.size
#: The approximate size of a block (before packing). A block holds whole key groups,
BLOCK_BYTES = 2 << 20
#: unless one key group alone has more than this; then it is divided.
MAX_BLOCK_BYTES = 16 << 20
#: The alignment of blocks, so that an uncompressed block can be used in place.
_ALIGN = 8
#: The number of samples, the bytes of each, and the share to which they must shrink for a block to be
#: compressed.
_SAMPLES, _SAMPLE_BYTES, _PAYS = 4, 8 << 10, 0.85
#: The end of an Arrow IPC stream.
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
#: The footer names the codec. zstd would make wide rows another third smaller, but it takes three times the
#: CPU time, which would lower a job's throughput at every checkpoint.
_CODEC = "lz4"


class BlockInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The place and content of a block. ``groups``: (key group, number of rows), ascending (keyed state
    only). ``size``: bytes before compression. ``crc``: of the stored bytes. ``raw``: the stored bytes are
    not compressed."""

    offset: int
    length: int
    size: int
    crc: int
    rows: int
    groups: list[tuple[int, int]] = []
    raw: bool = False


class HashedBy(msgspec.Struct, kw_only=True):
    """How to compute the key group of a row from its leading columns. ``types``: the types of these columns,
    as JSON."""

    types: list[Any]
    max_parallelism: int


class StateInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One state of one operator. ``kind``: keyed, list or union. ``identity`` and ``delta``: see
    ``KeyedBlock``. ``touched``: blocks with the slot numbers of a delta by slot, as differences.
    ``hashed_by``: the rows are in no order, and the blocks list no key groups."""

    name: str
    kind: str
    blocks: list[BlockInfo] = []
    schema: dict[str, Any] = {}
    identity: str = ""
    delta: bool = False
    touched: list[BlockInfo] = []
    hashed_by: HashedBy | None = None


class OperatorInfo(msgspec.Struct, kw_only=True):
    """The states of one operator."""

    uid: str
    states: list[StateInfo] = []


class Footer(msgspec.Struct, kw_only=True):
    """The index of an object. ``key_groups``: the inclusive range of the subtask that wrote it."""

    version: int
    checkpoint_id: int
    key_groups: tuple[int, int]
    codec: str = _CODEC
    meta: dict[str, Any] = {}
    operators: list[OperatorInfo] = []

    def states(self, uid: str) -> list[StateInfo]:
        """The states of one operator; empty if the object has none."""
        for operator in self.operators:
            if operator.uid == uid:
                return operator.states
        return []


# -- writing -------------------------------------------------------------------------------


class Unwanted(Exception):
    """The snapshot is no longer needed."""


def write_snapshot(
    snapshots: Mapping[str, OperatorSnapshot],
    *,
    checkpoint_id: int,
    key_groups: tuple[int, int],
    meta: Mapping[str, Any] | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> bytes:
    """The object of one subtask. ``meta``: plain JSON (job, vertex, operator names …). ``wanted`` is called
    between the pieces of a state; if it returns False, Unwanted is raised.

    ``OperatorSnapshot.pending`` must have been awaited and merged into ``lists`` before, and every
    ``PendingBlock`` must be copied completely. Nearly all time is spent in Arrow and its codecs, which
    release the interpreter's lock, so this runs on a helper thread.
    """
    writer = _Writer(wanted)
    operators = [OperatorInfo(uid=uid, states=writer.operator(snap)) for uid, snap in snapshots.items()]
    footer = Footer(
        version=VERSION,
        checkpoint_id=checkpoint_id,
        key_groups=key_groups,
        meta=dict(meta or {}),
        operators=operators,
    )
    return writer.finish(msgspec.json.encode(footer))


class _Writer:
    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        # A BytesIO grows in place and hands over its memory, so the object is in memory only once.
        self._out = io.BytesIO()
        self._at = self._out.write(MAGIC)

    def operator(self, snapshot: OperatorSnapshot) -> list[StateInfo]:
        states = [self._state(name, block) for name, block in snapshot.keyed.items()]
        for kind, items_by_name in (("list", snapshot.lists), ("union", snapshot.unions)):
            for name, items in items_by_name.items():
                blocks = [self._items(items)] if items else []
                states.append(StateInfo(name=name, kind=kind, blocks=blocks))
        return states

    def _state(self, name: str, block: KeyedBlock | PendingBlock) -> StateInfo:
        pieces = block.pieces() if isinstance(block, PendingBlock) else iter((block,))
        first = next(pieces)
        blocks = list(self._keyed(first))
        for piece in pieces:
            if not self._wanted():
                raise Unwanted
            blocks += self._keyed(piece)
        return StateInfo(
            name=name,
            kind="keyed",
            schema=first.schema,
            blocks=blocks,
            identity=first.identity,
            delta=first.delta,
            touched=[] if first.touched is None else [self._gaps(first.touched)],
            hashed_by=_hashed_by(first),
        )

    def _gaps(self, slots: np.ndarray) -> BlockInfo:
        """Ascending numbers, stored as their differences, which compress well."""
        return self._add(pa.record_batch([pa.array(np.diff(slots, prepend=0))], names=["gap"]), [])

    def _keyed(self, block: KeyedBlock) -> Iterator[BlockInfo]:
        if block.key_groups is None:
            rows, size = block.batch.num_rows, block.batch.nbytes
            step = max(1, -(-rows // max(1, round(size / BLOCK_BYTES))))
            for start in range(0, rows, step):
                yield self._add(block.batch.slice(start, step), [])
            return
        if block.batch.num_rows != len(block.key_groups):
            raise InternalError(
                "keyed block with the wrong number of key groups",
                expected=f"{block.batch.num_rows} (one a row)",
                got=str(len(block.key_groups)),
            )
        for start, stop, groups in cut_blocks(block.key_groups, block.batch.nbytes):
            yield self._add(block.batch.slice(start, stop - start), groups)

    def _items(self, items: Sequence[bytes]) -> BlockInfo:
        return self._add(pa.record_batch([pa.array(items, pa.large_binary())], names=["item"]), [])

    def _add(self, batch: pa.RecordBatch, groups: list[tuple[int, int]]) -> BlockInfo:
        packed = pack(batch)
        parts = [packed.schema.serialize(), packed.serialize(), _END_OF_STREAM]
        size = sum(len(part) for part in parts)
        raw = not _compresses(parts[1])
        if not raw:
            parts = [pa.compress(b"".join(parts), codec=_CODEC)]
        self._at += self._out.write(bytes(-self._at % _ALIGN))
        info = BlockInfo(offset=self._at, length=0, size=size, crc=0, rows=len(batch), groups=groups, raw=raw)
        for part in parts:
            info.length += self._out.write(part)
            info.crc = zlib.crc32(part, info.crc)
        self._at += info.length
        return info

    def finish(self, footer: bytes) -> bytes:
        trailer = _TRAILER.pack(len(footer), zlib.crc32(footer), VERSION, 0, MAGIC)
        self._out.write(footer)
        self._out.write(trailer)
        return self._out.getvalue()


def _hashed_by(block: KeyedBlock) -> HashedBy | None:
    if block.hashed_by is None:
        return None
    types, max_parallelism = block.hashed_by
    return HashedBy(types=[t.type_to_json(x) for x in types], max_parallelism=max_parallelism)


def cut_blocks(key_groups: np.ndarray, nbytes: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """The row range [start, stop) of each block, with its list of (key group, number of rows).

    ``key_groups``: int32, ascending, one for each row; ``nbytes``: the size of all rows. Raises
    InternalError if the key groups are not sorted.
    """
    n = len(key_groups)
    if not n:
        return
    steps = np.diff(key_groups)
    if n > 1 and int(steps.min()) < 0:
        raise InternalError("keyed block is not sorted by key group")
    starts = np.concatenate(([0], np.flatnonzero(steps) + 1))
    counts = np.diff(starts, append=n)
    groups, stops = key_groups[starts].tolist(), starts + counts
    runs = list(zip(groups, counts.tolist(), strict=True))
    blocks = max(1, round(nbytes / BLOCK_BYTES))
    rows_target = -(-n // blocks)
    rows_limit = max(1, MAX_BLOCK_BYTES * n // max(nbytes, 1))
    any_huge = int(counts.max()) > rows_limit
    first = at = 0
    while at < len(runs):
        if runs[at][1] > rows_limit:  # the next block is a part of this key group only
            yield first, first + rows_limit, [(groups[at], rows_limit)]
            first, runs[at] = first + rows_limit, (groups[at], runs[at][1] - rows_limit)
            continue
        end = min(int(np.searchsorted(stops, first + rows_target)) + 1, len(runs))
        if any_huge:
            end = next((i for i in range(at + 1, end) if runs[i][1] > rows_limit), end)
        stop = int(stops[end - 1])
        yield first, stop, runs[at:end]
        first, at = stop, end


def _compresses(body: pa.Buffer) -> bool:
    """Whether compressing makes ``body`` notably smaller, judged by samples."""
    size = len(body)
    if size <= _SAMPLES * _SAMPLE_BYTES:
        sample: bytes | pa.Buffer = body
    else:
        step, view = size // _SAMPLES, memoryview(body)
        sample = b"".join(view[at : at + _SAMPLE_BYTES] for at in range(0, step * _SAMPLES, step))
    return pa.compress(sample, codec=_CODEC).size < _PAYS * len(sample)


# -- reading: pure ---------------------------------------------------------------------------


def parse_trailer(tail: bytes | memoryview, name: str) -> tuple[int, int]:
    """(footer length, footer crc) from the last bytes of an object. Raises SnapshotError if they are damaged,
    or if the object was written by a newer version."""
    if len(tail) < _TRAILER.size:
        raise corrupt(name, "trailer", f"{_TRAILER.size} bytes", f"{len(tail)} bytes: the object is cut off")
    length, crc, version, _, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
    if magic != MAGIC:
        raise corrupt(name, "trailer", f"magic {MAGIC!r}", f"{magic!r}: cut off, or no snapshot")
    if version > VERSION:
        raise SnapshotError(
            "the snapshot was written by a newer Penstock",
            expected=f"format version <= {VERSION}",
            got=f"version {version}",
            where=f"snapshot object {name}",
            remedy="run this job with the Penstock version that wrote it, or a later one",
        )
    return length, crc


def parse_footer(data: bytes | memoryview, crc: int, name: str) -> Footer:
    """The footer in ``data``. Raises SnapshotError if its checksum or its content is wrong."""
    if zlib.crc32(data) != crc:
        raise corrupt(name, "footer", f"crc {crc:08x}", f"crc {zlib.crc32(data):08x}")
    try:
        return msgspec.json.decode(data, type=Footer)
    except msgspec.MsgspecError as err:
        raise corrupt(name, "footer", f"a version-{VERSION} footer", str(err)) from err


def check_block(stored: bytes | memoryview, info: BlockInfo, name: str, label: str) -> None:
    """Raises SnapshotError if the length or the checksum of ``stored`` is wrong. ``label`` names the block."""
    if len(stored) != info.length:
        raise corrupt(name, label, f"{info.length} bytes", f"{len(stored)} bytes")
    crc = zlib.crc32(stored)
    if crc != info.crc:
        raise corrupt(name, label, f"crc {info.crc:08x}", f"crc {crc:08x}")


def decode_block(stored: bytes | memoryview, info: BlockInfo, codec: str) -> pa.RecordBatch:
    """The rows of a verified block. They may share the memory of ``stored``."""
    raw = pa.py_buffer(stored)
    if not info.raw:
        raw = pa.decompress(raw, decompressed_size=info.size, codec=codec)
    elif raw.address % _ALIGN:
        raw = pa.py_buffer(bytes(stored))
    with pa.ipc.open_stream(raw) as reader:
        return unpack(reader.read_next_batch())


def rows_in_range(info: BlockInfo, key_groups: tuple[int, int]) -> tuple[int, int]:
    """The row range [start, stop) of a keyed block that lies in the inclusive range of key groups."""
    first, last = key_groups
    start = stop = at = 0
    for group, rows in info.groups:
        if group < first:
            start = at + rows
        if group <= last:
            stop = at + rows
        at += rows
    return start, max(start, stop)


def corrupt(name: str, part: str, expected: str, got: str) -> SnapshotError:
    """The error for a damaged part of the object ``name``."""
    return SnapshotError(
        "a snapshot object is damaged",
        expected=expected,
        got=got,
        where=f"snapshot object {name}, {part}",
        remedy="restore from an earlier checkpoint or savepoint; this one cannot be used",
    )
