"""Writing rows into one open file, whatever the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.formats import get_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.types import Batch
    from penstock.types.logical import Schema


class CountingFile:
    """A file object for pyarrow around what a ``Files`` port opened; counts the bytes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._handle.write(data)
        size = memoryview(data).nbytes
        self.written += size
        return size

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """The handle flushes when it is closed."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._handle.close()


class RowFile(Protocol):
    """Rows go in; ``close`` ends the format (footer), not the file beneath."""

    def write(self, batch: Batch) -> None: ...

    def close(self) -> None: ...


class _TextRows:
    def __init__(self, sink: CountingFile, encoder: Any, *, header: bytes) -> None:
        self._sink = sink
        self._encoder = encoder
        if header:
            sink.write(header)

    def write(self, batch: Batch) -> None:
        self._sink.write(self._encoder.encode_batch(batch))

    def close(self) -> None:
        """Lines need no end."""


class _ArrowRows:
    def __init__(self, sink: CountingFile) -> None:
        self._sink = sink
        self._writer: Any = None

    def write(self, batch: Batch) -> None:
        rows = batch.to_external_arrow()
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, rows.schema)
        self._writer.write_batch(rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def row_file(sink: CountingFile, format_name: str, schema: Schema, options: Mapping[str, str]) -> RowFile:
    """The writer of rows for a format."""
    if format_name == "parquet":
        from penstock.formats.parquet import ParquetFileWriter

        return ParquetFileWriter(sink, schema, options)
    if format_name == "orc":
        from penstock.formats.orc import OrcFileWriter

        return OrcFileWriter(sink, schema, options)
    if format_name == "arrow":
        return _ArrowRows(sink)
    format_ = get_format(format_name)
    encoder = format_.encoder(schema, options)
    header = encoder.header() if options.get("csv.header", "").lower() == "true" else b""  # type: ignore[attr-defined]
    return _TextRows(sink, encoder, header=header)
