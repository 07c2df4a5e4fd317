"""Sorted rows on the local disk: a log of waiting rows writes them when memory is short.

A run is written once, block by block, and read from its start; it never changes. The files have no name,
so the system frees their space when the process no longer refers to them, also after a crash.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import InternalError
from penstock.state.row_log import Part
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.types.logical import Schema

#: Runs share a file until it has this size in bytes.
_FILE_BYTES = 256 << 20
#: A block is stored compressed if that makes it smaller than this share.
_PAYS = 0.85
_CODEC = "lz4"


class SpillFile:
    """A file without a name that grows at its end. Bytes that were written do not change."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self.size = 0

    @property
    def full(self) -> bool:
        """Whether the next run goes to another file."""
        return self.size >= _FILE_BYTES

    def append(self, data: pa.Buffer) -> int:
        """Writes ``data`` and returns its offset. Raises OSError if the disk is full."""
        left = memoryview(data)[: data.size]  # Arrow's view of a buffer that shrank is too long
        while left:
            left = left[self._file.write(left) :]  # a full disk is an OSError
        self.size += data.size
        return self.size - data.size

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``. Any thread may call it. Raises InternalError if the file is
        shorter."""
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) != length:
            raise InternalError("a spill file is short", expected=f"{length} bytes", got=f"{len(data)}")
        return data


class SpillFiles:
    """The files of one operator. Only the last one is written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: SpillFile | None = None

    def current(self) -> SpillFile:
        """The file to write to."""
        if self._last is None or self._last.full:
            self._last = SpillFile(self._folder)
        return self._last


@dataclass(frozen=True, slots=True)
class _Block:
    """The place of a block. ``size``: bytes before compression; 0: not compressed."""

    offset: int
    length: int
    size: int


class SpilledRun:
    """A sorted run on disk, written in blocks of ``block_rows`` rows.

    ``rows``: number of rows. ``last_epoch``: the highest epoch of a row. ``start``: the rows before it are
    gone. ``next_time``: the time of the first row that is left, if the run is ordered by time.
    """

    __slots__ = ("_arrow", "_blocks", "_ends", "_file", "_schema", "last_epoch", "next_time", "start")

    def __init__(self, file: SpillFile, part: Part, block_rows: int, next_time: int) -> None:
        """Writes sorted rows."""
        self._file, self._schema = file, part.batch.schema
        rows = _to_arrow(part)
        self._arrow = rows.schema
        n = len(part.ids)
        self._blocks = [self._write(rows.slice(at, block_rows)) for at in range(0, n, block_rows)]
        self._ends = np.append(np.arange(block_rows, n, block_rows), n)
        self.last_epoch = int(part.epochs.max())
        self.start = 0
        self.next_time = next_time

    @property
    def rows(self) -> int:
        return int(self._ends[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 200 * len(self._blocks)

    def blocks(self, start: int) -> Iterator[Part]:
        """The rows from number ``start`` on, block by block."""
        for number in range(int(np.searchsorted(self._ends, start, "right")), len(self._blocks)):
            part = self._read(self._blocks[number])
            first = int(self._ends[number]) - len(part.ids)
            yield part if start <= first else part.slice(start - first, len(part.ids))

    def _write(self, rows: pa.RecordBatch) -> _Block:
        data = rows.serialize()
        packed = pa.compress(data, codec=_CODEC)
        if packed.size < _PAYS * data.size:
            return _Block(self._file.append(packed), packed.size, data.size)
        return _Block(self._file.append(data), data.size, 0)

    def _read(self, block: _Block) -> Part:
        data = pa.py_buffer(self._file.read(block.offset, block.length))
        if block.size:
            data = pa.decompress(data, decompressed_size=block.size, codec=_CODEC)
        return _from_arrow(self._schema, pa.ipc.read_record_batch(data, self._arrow))


def _to_arrow(part: Part) -> pa.RecordBatch:
    """The batch's columns, then number and epoch of each row."""
    rows = part.batch.to_arrow()
    arrays: Sequence[pa.Array] = [*rows.columns, pa.array(part.ids), pa.array(part.epochs)]
    return pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, "id", "epoch"])


def _from_arrow(schema: Schema, rows: pa.RecordBatch) -> Part:
    n = rows.num_columns
    ids, epochs = (rows.column(i).to_numpy() for i in (n - 2, n - 1))
    return Part(Batch.from_arrow(schema, rows.select(range(n - 2))), ids, epochs)
