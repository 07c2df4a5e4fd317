"""Writes Parquet files: one open file for each partition, closed by size or by a barrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.filesystem.files import CountingFile
from penstock.connectors.lakehouse.table import DataFile, LakeTable, Partition
from penstock.formats.parquet import repeating_columns

if TYPE_CHECKING:
    from collections.abc import Callable

#: The number of rows in a row group.
_GROUP_ROWS = 131_072


@dataclass(slots=True)
class _Open:
    partition: Partition
    path: str
    file: CountingFile
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
        self.closed: list[DataFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows that have the table's columns."""
        for partition, part in self.table.split(rows):
            self._append(partition, part)

    def cut(self, epoch: int) -> list[DataFile]:
        """Close all files; returns the files closed since the last cut, as files of ``epoch``."""
        while self._open:
            self._close(next(iter(self._open)))
        out = [DataFile(epoch, file.path, file.entry) for file in self.closed]
        self.closed = []
        return out

    def discard(self) -> None:
        """Delete the files that no cut has taken."""
        paths = [file.path for file in self.closed]
        for current in self._open.values():
            current.file.close()
            paths.append(current.path)
        self._open, self.closed = {}, []
        for path in paths:
            self.table.delete(path)

    @property
    def busy(self) -> bool:
        """Whether there are rows since the last cut."""
        return bool(self._open or self.closed)

    def _append(self, partition: Partition, rows: pa.RecordBatch) -> None:
        current = self._open.pop(partition.key, None)
        if current is None:
            if len(self._open) >= self._most:
                self._close(next(iter(self._open)))
            path, handle = self.table.new_file(partition, self._name())
            current = _Open(partition, path, CountingFile(handle), None, [])
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
        current.file.close()
        self.table.sync(current.path)
        footer = current.writer.writer.metadata
        self.closed.append(
            DataFile(0, current.path, self.table.entry(current.path, size, current.partition, footer))
        )
