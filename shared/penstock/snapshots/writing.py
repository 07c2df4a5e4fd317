"""The snapshot object: one per subtask and checkpoint, self-describing and versioned.

``docs/state-format.md`` is the format's definition; in short::

    magic · block … block · footer (JSON) · trailer (footer length, footer crc, version, magic)

A block is an Arrow IPC stream, packed (``packing.py``) and compressed as a whole where that
pays, with a CRC-32 in the footer.
Blocks of keyed state hold whole runs of rows in key-group order; the footer says which
key groups, with how many rows each, so that a reader of any key-group range fetches only
the blocks it needs. A keyed state may be a *delta* to the object before it in a chain; its
rows are often in no order, and who reads some key groups only reads them all.
No I/O is known here: ``SnapshotReader`` (``reading.py``) fetches through an asynchronous
``read``; ``restoring.py`` puts chains and subtasks together.
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
#: footer length, footer crc, version, reserved, magic
_TRAILER = struct.Struct("<IIHH8s")
TRAILER_BYTES = _TRAILER.size
#: Blocks have about this many bytes (before packing), as their key groups allow …
BLOCK_BYTES = 2 << 20
#: … and a key group that alone has more than this is divided.
MAX_BLOCK_BYTES = 16 << 20
#: Alignment of blocks: an uncompressed block is used in place.
_ALIGN = 8
#: Samples, evenly spread, and the bytes of each, that show whether compressing pays: to less than this
#: share.
_SAMPLES, _SAMPLE_BYTES, _PAYS = 4, 8 << 10, 0.85
#: The end of an Arrow IPC stream.
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
#: zstd makes wide rows a third smaller still, at three times the CPU time, which a job would pay with its
#: throughput at every checkpoint. The footer names the codec.
_CODEC = "lz4"


class BlockInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a block lies and what is in it. ``groups``: [key group, rows] runs, ascending (keyed state
    only); ``size``: uncompressed bytes; ``crc``: of the stored bytes; ``raw``: they are not compressed."""

    offset: int
    length: int
    size: int
    crc: int
    rows: int
    groups: list[tuple[int, int]] = []
    raw: bool = False


class HashedBy(msgspec.Struct, kw_only=True):
    """How the key group of a row follows from its leading columns. ``types``: theirs, as JSON."""

    types: list[Any]
    max_parallelism: int


class StateInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One state of one operator. ``kind``: keyed | list | union. ``identity``, ``delta``:
    see ``KeyedBlock``; ``touched``: blocks with a slot delta's slots, as gaps; ``hashed_by``:
    the rows are in no order, and the blocks say nothing of key groups."""

    name: str
    kind: str
    blocks: list[BlockInfo] = []
    schema: dict[str, Any] = {}
    identity: str = ""
    delta: bool = False
    touched: list[BlockInfo] = []
    hashed_by: HashedBy | None = None


class OperatorInfo(msgspec.Struct, kw_only=True):
    uid: str
    states: list[StateInfo] = []


class Footer(msgspec.Struct, kw_only=True):
    """The index. ``key_groups``: inclusive range of the subtask that wrote it."""

    version: int
    checkpoint_id: int
    key_groups: tuple[int, int]
    codec: str = _CODEC
    meta: dict[str, Any] = {}
    operators: list[OperatorInfo] = []

    def states(self, uid: str) -> list[StateInfo]:
        """States of one operator; empty if it has none here."""
        for operator in self.operators:
            if operator.uid == uid:
                return operator.states
        return []


# -- writing -------------------------------------------------------------------------------


class Unwanted(Exception):
    """The snapshot is not wanted any more."""


def write_snapshot(
    snapshots: Mapping[str, OperatorSnapshot],
    *,
    checkpoint_id: int,
    key_groups: tuple[int, int],
    meta: Mapping[str, Any] | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> bytes:
    """The object of one subtask. ``meta``: plain JSON (job, vertex, operator names …).
    ``wanted``: asked between the pieces of a state; Unwanted is raised if it is not.

    ``OperatorSnapshot.pending`` must have been awaited and merged into ``lists`` before,
    and every ``PendingBlock`` copied to its end.
    Spends its time in Arrow and its codecs, which release the lock: made for a helper thread.
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
        # Grows in place, and hands over its memory: the object is in memory once.
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
        """Ascending numbers as the differences between them, which compress well."""
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
    """Row ranges [start, stop) of the blocks, with their (key group, rows) runs.

    ``key_groups``: int32, ascending, one for each row; ``nbytes``: of all rows together.
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
        if runs[at][1] > rows_limit:  # a part of a key group, alone
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
    """Whether the codec makes it notably smaller, by samples."""
    size = len(body)
    if size <= _SAMPLES * _SAMPLE_BYTES:
        sample: bytes | pa.Buffer = body
    else:
        step, view = size // _SAMPLES, memoryview(body)
        sample = b"".join(view[at : at + _SAMPLE_BYTES] for at in range(0, step * _SAMPLES, step))
    return pa.compress(sample, codec=_CODEC).size < _PAYS * len(sample)


# -- reading: pure ---------------------------------------------------------------------------


def parse_trailer(tail: bytes | memoryview, name: str) -> tuple[int, int]:
    """(footer length, footer crc) from the object's last bytes."""
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
    if zlib.crc32(data) != crc:
        raise corrupt(name, "footer", f"crc {crc:08x}", f"crc {zlib.crc32(data):08x}")
    try:
        return msgspec.json.decode(data, type=Footer)
    except msgspec.MsgspecError as err:
        raise corrupt(name, "footer", f"a version-{VERSION} footer", str(err)) from err


def check_block(stored: bytes | memoryview, info: BlockInfo, name: str, label: str) -> None:
    """SnapshotError if length or checksum are wrong. ``label`` names the block."""
    if len(stored) != info.length:
        raise corrupt(name, label, f"{info.length} bytes", f"{len(stored)} bytes")
    crc = zlib.crc32(stored)
    if crc != info.crc:
        raise corrupt(name, label, f"crc {info.crc:08x}", f"crc {crc:08x}")


def decode_block(stored: bytes | memoryview, info: BlockInfo, codec: str) -> pa.RecordBatch:
    """Rows of a block that was checked; they may share the memory of ``stored``."""
    raw = pa.py_buffer(stored)
    if not info.raw:
        raw = pa.decompress(raw, decompressed_size=info.size, codec=codec)
    elif raw.address % _ALIGN:
        raw = pa.py_buffer(bytes(stored))
    with pa.ipc.open_stream(raw) as reader:
        return unpack(reader.read_next_batch())


def rows_in_range(info: BlockInfo, key_groups: tuple[int, int]) -> tuple[int, int]:
    """Row range [start, stop) of a keyed block that lies in the inclusive range."""
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
    return SnapshotError(
        "a snapshot object is damaged",
        expected=expected,
        got=got,
        where=f"snapshot object {name}, {part}",
        remedy="restore from an earlier checkpoint or savepoint; this one cannot be used",
    )
