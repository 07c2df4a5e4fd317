"""``collect``: writes the rows of a SELECT as chunk objects into the job's store, for a client to read.

A chunk is an Arrow IPC stream of external Arrow columns after a ``__kind`` uint8 column,
at ``jobs/<job_id>/results/<job_attempt:06d>-<sequence:012d>``. Its schema metadata say
``offset`` (result rows before this chunk), ``end`` (``true`` on the last one) and ``settled``
(rows before a completed checkpoint; absent without checkpoints). After a restart the new attempt continues
from the offset in its checkpoint. A reader that sees a chunk of a higher attempt with offset k must drop its
rows from row k on; k is never below ``settled``.

A chunk is written when the input runs empty (the first at once, then at most every 50 ms) or at 16k rows. With
``bounded = false`` the writer stays at most 256 chunks ahead of the reader, which acknowledges by writing ``jobs/<job_id>/results-ack/<attempt>-<sequence>``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.cancelling import end_tasks
from penstock.config import CHECKPOINT_INTERVAL_MS
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, InternalError
from penstock.options import Option, OptionSet, boolean
from penstock.types.arrow_buffers import fixed_values
from penstock.types.batch import KIND_FIELD, Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.logical import Schema

#: The external Python values of a row.
Row = tuple[Any, ...]
#: A line of a changelog: (the number of a RowKind, the row).
Change = tuple[int, Row]

CHUNK_ROWS = 16_384
FLUSH_INTERVAL_S = 0.05
MAX_AHEAD_CHUNKS = 256
_ACK_POLL_S = 0.1

OPTIONS = OptionSet(
    "connector 'collect'",
    [Option("bounded", boolean, True, "false: stay at most 256 chunks ahead of the reader.")],
)


def results_prefix(job_id: str) -> str:
    """The folder of a job's result chunks in the object store."""
    return f"jobs/{job_id}/results/"


def acks_prefix(job_id: str) -> str:
    """The folder of the client's acknowledgements in the object store."""
    return f"jobs/{job_id}/results-ack/"


def chunk_name(attempt: int, sequence: int) -> str:
    """The name of a chunk, which sorts by attempt and sequence number."""
    return f"{attempt:06d}-{sequence:012d}"


def parse_chunk_name(key: str) -> tuple[int, int]:
    """(attempt, sequence) of a chunk or acknowledgement key."""
    attempt, sequence = key.rsplit("/", 1)[-1].split("-")
    return int(attempt), int(sequence)


def encode_chunk(batch: Batch, *, offset: int, end: bool, settled: int | None = None) -> bytes:
    """The bytes of a chunk: the kinds as first column, then the rows, with ``offset`` (rows before the chunk)
    and ``end`` as metadata."""
    rows = batch.to_external_arrow()
    kinds = np.zeros(len(batch), np.uint8) if batch.kinds is None else batch.kinds
    fields = [pa.field(KIND_FIELD, pa.uint8()), *rows.schema]
    metadata = {"offset": str(offset), "end": "true" if end else "false"}
    if settled is not None:
        metadata["settled"] = str(settled)
    out = pa.RecordBatch.from_arrays(
        [pa.array(kinds), *rows.columns], schema=pa.schema(fields, metadata=metadata)
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, out.schema) as writer:
        writer.write_batch(out)
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True, slots=True)
class ResultChunk:
    """``rows``: external Arrow columns; ``kinds``: uint8, one a row."""

    attempt: int
    sequence: int
    offset: int
    end: bool
    kinds: np.ndarray
    rows: pa.RecordBatch
    settled: int | None = None


def decode_chunk(key: str, data: bytes) -> ResultChunk:
    """The chunk with this key and these bytes."""
    attempt, sequence = parse_chunk_name(key)
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    metadata = batch.schema.metadata
    kinds = fixed_values(batch.column(0), np.dtype(np.uint8))
    rows = pa.RecordBatch.from_arrays(batch.columns[1:], schema=pa.schema(list(batch.schema)[1:]))
    end, settled = metadata[b"end"] == b"true", metadata.get(b"settled")
    return ResultChunk(
        attempt,
        sequence,
        int(metadata[b"offset"]),
        end,
        kinds,
        rows,
        None if settled is None else int(settled),
    )


class CollectWriter(SinkWriter):
    """Writes chunks; runs at parallelism 1. Its state is the number of result rows before the barrier."""

    def __init__(self, schema: Schema, *, bounded: bool) -> None:
        self._schema = schema
        self._bounded = bounded
        self._buffer: list[Batch] = []
        self._buffered_rows = 0
        self._offset = 0  # rows in chunks already put
        self._taken = 0  # rows taken so far, those of restored attempts included
        self._sequence = 0
        #: The offset at the barrier of each checkpoint that is not complete yet. The next attribute is that
        #: of the last complete one.
        self._cuts: dict[int, int] = {}
        self._settled: int | None = None
        self._wanted = asyncio.Event()
        self._room = asyncio.Event()
        self._urgent = False
        self._busy = asyncio.Lock()
        self._acked = -1
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        if ctx.store is None:
            raise InternalError("the collect sink has no object store", where=f"operator {ctx.uid}")
        if ctx.parallelism != 1:
            raise InternalError("collect runs at parallelism 1", got=str(ctx.parallelism))
        self._store = ctx.store
        self._offset = self._taken = max((int(item) for item in restored), default=0)
        if CHECKPOINT_INTERVAL_MS.read(ctx.config):
            self._settled = self._offset
        self._room.set()
        self._task = asyncio.create_task(self._pump())

    def write(self, batch: Batch) -> None:
        self._check()
        self._buffer.append(batch)
        self._buffered_rows += len(batch)
        self._taken += len(batch)
        if self._buffered_rows >= CHUNK_ROWS:
            self._urgent = True
            self._wanted.set()
        if self._buffered_rows >= 4 * CHUNK_ROWS:
            self._room.clear()

    def ready(self) -> bool:
        return self._room.is_set() or self._failure is not None

    async def wait_ready(self) -> None:
        await self._room.wait()
        self._check()

    async def flush(self) -> None:
        self._check()
        if self._buffer:
            self._wanted.set()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        offset = self._taken  # stored plus buffered rows would be too few: a chunk may be on its way
        self._cuts[checkpoint_id] = offset

        async def written() -> list[bytes]:
            # Rows before the barrier must be readable before they count as done.
            await self._write_out(offset)
            return [b"%d" % offset]

        return written()

    async def commit(self, checkpoint_id: int) -> None:
        ripe = [i for i in self._cuts if i <= checkpoint_id]
        if ripe and self._settled is not None:
            self._settled = max(self._settled, max(self._cuts[i] for i in ripe))
        for i in ripe:
            del self._cuts[i]

    def needs_commit(self) -> bool:
        """Rows can be read as soon as they are written."""
        return False

    async def finish(self) -> None:
        await self._write_out(None, end=True)

    async def close(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])

    # -- inside ---------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _pump(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                self._urgent = False
                await self._write_out(None)
                if not self._urgent:
                    await asyncio.sleep(FLUSH_INTERVAL_S)
        except Exception as err:
            self._failure = err
            self._room.set()

    async def _write_out(self, until: int | None, *, end: bool = False) -> None:
        """Write the buffered rows (up to row ``until``) in chunks."""
        async with self._busy:
            self._check()  # after a chunk that could not be stored, no further chunk may follow
            while self._buffer and (until is None or self._offset < until):
                await self._put(self._cut(), end=False)
            if end:
                await self._put(Batch.empty(self._schema), end=True)

    def _cut(self) -> Batch:
        taken, rows = [], 0
        while self._buffer and rows < CHUNK_ROWS:
            head = self._buffer.pop(0)
            room = CHUNK_ROWS - rows
            if len(head) > room:
                self._buffer.insert(0, head.slice(room))
                head = head.slice(0, room)
            taken.append(head)
            rows += len(head)
        self._buffered_rows -= rows
        return Batch.concat(taken)

    async def _put(self, batch: Batch, *, end: bool) -> None:
        if not self._bounded:
            await self._wait_for_reader()
        data = encode_chunk(batch, offset=self._offset, end=end, settled=self._settled)
        key = results_prefix(self.ctx.job_id) + chunk_name(self.ctx.attempt, self._sequence)
        self._sequence += 1
        self._offset += len(batch)
        await self._store.put(key, data)
        if self._buffered_rows < 4 * CHUNK_ROWS:
            self._room.set()

    async def _wait_for_reader(self) -> None:
        while self._sequence - self._acked > MAX_AHEAD_CHUNKS:
            for key, _size in await self._store.list(acks_prefix(self.ctx.job_id)):
                attempt, sequence = parse_chunk_name(key)
                if attempt == self.ctx.attempt:
                    self._acked = max(self._acked, sequence)
            if self._sequence - self._acked > MAX_AHEAD_CHUNKS:
                await asyncio.sleep(_ACK_POLL_S)


class CollectConnector(DeclaredConnector):
    """The sink ``collect``, which stores the rows of a SELECT for the client."""

    name = "collect"
    location = ()
    roles = ("sink",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "upsert", "retract")

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def writer(self, table: TableInfo) -> CollectWriter:
        return CollectWriter(table.schema, bounded=OPTIONS.read(table.options)["bounded"])


class ResultReader:
    """Follows a collect sink: ``take`` gets its objects (key, bytes) in order and gives their chunks. A
    chunk whose ``offset`` is below ``rows`` (seen so far) replaces everything from that row on."""

    def __init__(self) -> None:
        self._attempt = -1
        self.rows = 0
        self.ended = False
        self.last_key: str | None = None

    def take(self, objects: Iterable[tuple[str, bytes]]) -> list[ResultChunk]:
        """The chunks of (key, bytes) objects, without those of attempts that were replaced."""
        out = []
        for key, data in objects:
            chunk = decode_chunk(key, data)
            self.last_key = key
            if chunk.attempt < self._attempt:
                continue  # a chunk of an attempt that was replaced
            self._attempt = chunk.attempt
            if chunk.offset > self.rows:
                raise ConnectorError(
                    "result rows are missing",
                    expected=f"a chunk that starts at row {self.rows} or before",
                    got=f"{key} starts at row {chunk.offset}",
                    remedy="read the results from the beginning",
                )
            self.rows = chunk.offset + chunk.rows.num_rows
            self.ended = chunk.end
            out.append(chunk)
        return out


def changes_of(chunk: ResultChunk) -> list[Change]:
    """(kind, row) of every row of a chunk."""
    columns = [column.to_pylist() for column in chunk.rows.columns]
    rows = zip(*columns, strict=True) if columns else [()] * chunk.rows.num_rows
    return list(zip(chunk.kinds.tolist(), rows, strict=True))


class MaterializedResult:
    """A changelog turned into its current rows, in order of first appearance.

    ``keys``: columns of the upsert key; None = whole rows retract whole rows.
    """

    def __init__(self, keys: Sequence[int] | None = None) -> None:
        self._keys = None if keys is None else tuple(keys)
        self._log: list[Change] = []
        self._dirty = True
        self._rows: list[Row] = []

    def add(self, chunk: ResultChunk) -> None:
        """Adds a chunk, and drops the rows that it replaces."""
        del self._log[chunk.offset :]
        self._log.extend(changes_of(chunk))
        self._dirty = True

    @property
    def changelog(self) -> list[Change]:
        """(kind, row) of every row so far."""
        return self._log

    def rows(self) -> list[Row]:
        """The current rows; adding and retracting cancel out."""
        if self._dirty:
            self._rows = materialize(self._log, self._keys)
            self._dirty = False
        return self._rows


def materialize(log: Sequence[Change], keys: Sequence[int] | None = None) -> list[Row]:
    """The rows that a changelog of (kind, row) leaves behind."""
    if keys is not None:
        current: dict[str, Row] = {}
        for kind, row in log:
            key = repr([row[i] for i in keys])
            if kind in (0, 2):
                current[key] = row
            elif kind == 3:
                current.pop(key, None)
        return list(current.values())
    if not any(kind in (1, 3) for kind, _ in log):
        return [row for _, row in log]
    # Nested values are lists and dicts, which cannot be hashed; their text identifies them exactly.
    places: dict[str, list[int]] = {}
    out: list[Row | None] = []
    for kind, row in log:
        key = repr(row)
        if kind in (0, 2):
            places.setdefault(key, []).append(len(out))
            out.append(row)
        elif places.get(key):
            out[places[key].pop()] = None
        else:
            raise InternalError("a row is retracted that was never added", got=key[:200])
    return [row for row in out if row is not None]
