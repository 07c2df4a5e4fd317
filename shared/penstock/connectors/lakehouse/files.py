"""Writes Parquet files: one open file for each partition, closed by size or by a barrier.

Where the table does not lie in a local file system, a file is written into a temporary one, and stored whole when it is closed:
a store that is away then costs no rows, because the file can be stored again.
"""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.filesystem.files import CountingFile
from penstock.connectors.lakehouse.schema import fitted
from penstock.connectors.lakehouse.table import DataFile, LakeTable, Partition
from penstock.formats.parquet import repeating_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The number of rows in a row group.
_GROUP_ROWS = 131_072
#: A temporary file is kept in memory up to this size, in bytes.
_IN_MEMORY = 1 << 20


@dataclass(slots=True)
class _Open:
    partition: Partition
    path: str
    file: CountingFile
    #: The temporary file below ``file``, if it must be stored.
    spool: IO[bytes] | None
    writer: pq.ParquetWriter | None
    waiting: list[pa.RecordBatch]
    rows: int = 0


class OpenFiles:
    """The files of one writer. ``name``: gives each new file its name; ``target_bytes``: a file is closed at about
    this size; ``most``: the most files that are open at a time; the file that was written longest ago is
    closed for another."""

    def __init__(self, table: LakeTable, name: Callable[[], str], target_bytes: int, most: int) -> None:
        self.table = table
        self._name = name
        self._target_bytes = target_bytes
        self._most = most
        #: Open files by partition; the file that was written last comes last.
        self._open: dict[str, _Open] = {}
        #: Closed files that are still to be stored.
        self._unstored: deque[tuple[DataFile, IO[bytes]]] = deque()
        self.closed: list[DataFile] = []

    def take(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Append rows, of which columns of the table may be missing. pa.ArrowInvalid if a value would be lost."""
        for rows in batches:
            self.write(fitted(rows, self.table.row_schema))

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows that have the table's columns."""
        for partition, part in self.table.split(rows):
            self._append(partition, part)

    def cut(self, epoch: int) -> list[DataFile]:
        """Close all files; returns the files closed since the last cut, as files of ``epoch``. May be repeated after a
        ServerAwayError."""
        while self._open:
            self._close(next(iter(self._open)))
        self.store()
        out = [DataFile(epoch, file.path, file.entry) for file in self.closed]
        self.closed = []
        return out

    def store(self) -> None:
        """Store the closed files that lie in temporary ones. May be repeated after a ServerAwayError."""
        while self._unstored:
            file, spool = self._unstored[0]
            spool.seek(0)
            self.table.upload(file.path, spool)
            spool.close()
            self._unstored.popleft()
            self.closed.append(file)

    def discard(self) -> None:
        """Delete the files that no cut has taken."""
        paths = [file.path for file in self.closed]
        for current in self._open.values():
            current.file.close()
            if current.spool is None:
                paths.append(current.path)
        for _, spool in self._unstored:
            spool.close()
        self._open, self.closed = {}, []
        self._unstored.clear()
        for path in paths:
            self.table.delete(path)

    @property
    def busy(self) -> bool:
        """Whether there are rows since the last cut."""
        return bool(self._open or self._unstored or self.closed)

    def _append(self, partition: Partition, rows: pa.RecordBatch) -> None:
        current = self._open.pop(partition.key, None)
        if current is None:
            if len(self._open) >= self._most:
                self._close(next(iter(self._open)))
            path, handle = self.table.new_file(partition, self._name())
            spool = tempfile.SpooledTemporaryFile(_IN_MEMORY) if handle is None else None  # noqa: SIM115
            current = _Open(partition, path, CountingFile(handle or spool), spool, None, [])
        self._open[partition.key] = current
        current.waiting.append(rows)
        current.rows += rows.num_rows
        if current.rows >= _GROUP_ROWS:
            self._write_group(current)
            if current.file.written >= self._target_bytes:
                self._close(partition.key)

    def _write_group(self, current: _Open) -> None:
        rows = pa.Table.from_batches(current.waiting, self.table.file_schema)
        if current.writer is None:
            current.writer = pq.ParquetWriter(
                current.file,
                self.table.file_schema,
                use_dictionary=repeating_columns(rows),
                **self.table.parquet,
            )
        current.writer.write_table(rows)
        current.waiting, current.rows = [], 0

    def _close(self, key: str) -> None:
        current = self._open.pop(key)
        if current.waiting:
            self._write_group(current)
        assert current.writer is not None  # a file is opened for rows
        current.writer.close()
        size = current.file.written
        footer = current.writer.writer.metadata
        file = DataFile(0, current.path, self.table.entry(current.path, size, current.partition, footer))
        if current.spool is not None:
            self._unstored.append((file, current.spool))
            return
        current.file.close()
        self.table.sync(current.path)
        self.closed.append(file)
