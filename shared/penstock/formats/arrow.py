"""Arrow IPC streams: many rows in each message or file. Columns are matched by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import RecordError
from penstock.formats.api import Block, Decoder, Encoder, FileFormat, Format, FormatContext
from penstock.formats.arrow_columns import ColumnarReader, columns_by_name
from penstock.formats.file_errors import not_of_kind
from penstock.options import Option, OptionSet, choice
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from penstock.formats.api import FileContext, Output
    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "format 'arrow'",
    [
        Option(
            "arrow.compression", choice("none", "lz4", "zstd"), "none", "Of the buffers in messages written."
        )
    ],
)


class ArrowDecoder(Decoder):
    """Decodes messages that are Arrow IPC streams. Raises RecordError for other bytes."""

    def __init__(self, ctx: FormatContext) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        batches = [self.decode_batch(m, where(i)) for i, m in enumerate(messages)]
        return Batch.concat(batches) if batches else Batch.empty(self._schema)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        try:
            try:
                table = pa.ipc.open_stream(data).read_all()
            except (pa.ArrowException, OSError) as err:
                raise RecordError(
                    "not an Arrow IPC stream", expected="an Arrow IPC stream", got=str(err), where=where,
                    remedy="write it with pyarrow.ipc.new_stream",
                ) from err  # fmt: skip
            columns = columns_by_name(self._schema, table, where)
        except RecordError as err:
            self._bad_record(err, None, where)
            return Batch.empty(self._schema)
        return Batch(self._schema, columns, num_rows=table.num_rows)


class ArrowEncoder(Encoder):
    """Encodes a batch as one Arrow IPC stream."""

    def __init__(self, options: Mapping[str, str]) -> None:
        codec = OPTIONS.read(options)["arrow.compression"]
        self._options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)

    def encode(self, batch: Batch) -> list[bytes]:
        return [self.encode_batch(batch.slice(i, 1)) for i in range(len(batch))]

    def encode_batch(self, batch: Batch) -> bytes:
        rows = batch.to_external_arrow()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=self._options) as writer:
            writer.write_batch(rows)
        return sink.getvalue().to_pybytes()


class ArrowReader(ColumnarReader):
    """An Arrow IPC file or stream, record batch by record batch."""

    kind = "Arrow IPC"

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._ctx.open)
        try:
            batches = await run(partial(self._batches, handle))
            index = 0
            while (rows := await run(partial(self._next, batches))) is not None:
                if index >= (at or 0):
                    yield Block(index, partial(self._to_batch, rows))
                index += 1
        finally:
            await run(handle.close)

    def _batches(self, handle: Any) -> Any:
        magic = handle.read(6)
        handle.seek(0)
        try:
            if magic == b"ARROW1":
                reader = pa.ipc.open_file(handle)
                return (reader.get_batch(i) for i in range(reader.num_record_batches))
            return iter(pa.ipc.open_stream(handle))
        except (pa.ArrowException, OSError) as err:
            raise not_of_kind(self._ctx.path, "Arrow IPC", "an Arrow IPC file or stream", err) from err


class ArrowFileWriter:
    """Appends batches to one open file, as an IPC stream."""

    def __init__(self, sink: Output) -> None:
        self._sink = sink
        self._writer: Any = None

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""
        rows = batch.to_external_arrow()
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, rows.schema)
        self._writer.write_batch(rows)

    def close(self) -> None:
        """End the stream. Does not close the file beneath."""
        if self._writer is not None:
            self._writer.close()


class ArrowFiles(FileFormat):
    """Files of Arrow IPC; the reader also takes IPC streams."""

    native_writer = True

    def reader(self, ctx: FileContext) -> ArrowReader:
        return ArrowReader(ctx)

    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> ArrowFileWriter:
        return ArrowFileWriter(sink)


class ArrowFormat(Format):
    """The format ``arrow``, for messages and files."""

    name = "arrow"
    options = OPTIONS
    extension = "arrow"
    files = ArrowFiles()

    def decoder(self, ctx: FormatContext) -> ArrowDecoder:
        return ArrowDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> ArrowEncoder:
        return ArrowEncoder(options)
