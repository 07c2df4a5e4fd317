"""Reading one split of a file: an async iterator of blocks of rows.

A block knows how to become a batch (on the data thread, where decoding text belongs) and
where it starts, so that a position is ``{"at": start of block, "skip": rows taken from
there, "row": rows of the split so far}``. Bytes are fetched in the helper thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.base import FormatContext
from penstock.connectors.filesystem.partitions import Partitioning
from penstock.errors import ConnectorError, RecordError
from penstock.formats import get_format
from penstock.formats.arrow import columns_by_name
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.filesystem.paths import Files

BLOCK_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a split. ``at``: where reading may resume (byte offset, row group)."""

    at: int
    decode: Callable[[], Batch]


class PartReader:
    """Opens one file; subclasses give its blocks from ``at`` on."""

    def __init__(self, ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]) -> None:
        self._ctx = ctx
        self._files = files
        self._payload = payload
        self._path: str = payload["path"]
        self._options = table.options
        self._schema = ctx.schema.select(ctx.projection)
        self._format_name = table.options["format"]
        #: ``lines_before``: lines of the file before the block that is being decoded.
        self._extra: dict[str, Any] = {}

    def blocks(self, at: int | None) -> AsyncIterator[Block]:
        raise NotImplementedError

    def _open(self) -> Any:
        try:
            return self._files.open_input(self._path)
        except OSError as err:
            raise ConnectorError(
                f"cannot read '{self._path}'",
                expected="a readable file that stays until the job ends",
                got=str(err),
                remedy="restore the file, or start the job anew without its state",
            ) from err

    def _shrunk(self, position: str, found: str) -> ConnectorError:
        return ConnectorError(
            f"'{self._path}' no longer has the position that is needed",
            expected=f"{position}, as it was when the file was found",
            got=found,
            where=self._path,
            remedy="restore the file, or start the job anew without its state",
        )

    def _damaged(self, kind: str, err: Exception) -> Exception:
        """What to raise when the middle of a file cannot be read; ``err`` itself where it is the
        storage that fails, not the file."""
        if isinstance(err, OSError) and err.errno is not None:
            return err
        return ConnectorError(
            f"'{self._path}' is damaged",
            expected=f"a whole {kind} file",
            got=str(err),
            where=self._path,
            remedy="write or copy the file anew, or move it out of 'path'",
        )

    def _check_columns(self, found: pa.Schema) -> None:
        """ConnectorError naming the column when the file does not have it."""
        try:
            columns_by_name(self._schema, found.empty_table(), self._path)
        except RecordError as err:
            raise ConnectorError(
                err.message, expected=err.expected, got=err.got, where=err.where, remedy=err.remedy
            ) from None

    def _decoder(self) -> Any:
        ctx = self._ctx
        return get_format(self._format_name).decoder(
            FormatContext(ctx.schema, ctx.projection, self._options, ctx.bad_record, self._extra)
        )


class LineReader(PartReader):
    """Bytes [start, end) of a file of lines: those lines that *begin* in it."""

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run, start, end = self._ctx.run, self._payload["start"], self._payload["end"]
        handle = await run(self._open)
        decoder = self._decoder()
        quote = getattr(decoder, "quote", None)
        try:
            header = b""
            if getattr(decoder, "has_header", False):
                header = await run(handle.readline)
                if not header:
                    if end:
                        raise self._shrunk(f"byte {start if at is None else at} of {end}", "it is empty")
                    return  # an empty file has no rows, and no header either
                decoder.set_header(header, self._path)
                start = max(start, len(header))
            offset = start if at is None else max(at, start)
            if at is None and self._payload["start"] > 0:
                offset = await run(partial(_next_line, handle, start))
            # Line numbers are known only when all of the file before was read.
            lines = len(header.splitlines()) if offset == start and self._payload["start"] == 0 else None
            while offset < end:
                data = await run(partial(_whole_lines, handle, offset, end, quote))
                if not data:
                    # Not the end: it had more when it was listed, and that was to be read.
                    raise self._shrunk(f"byte {offset} of {end}", "the file ends before that")
                where = self._path if lines is not None else f"{self._path} from byte {offset}"
                yield Block(offset, partial(self._decode, decoder, data, where, lines))
                offset += len(data)
                if lines is not None:
                    lines += data.count(b"\n")
        finally:
            await run(handle.close)

    def _decode(self, decoder: Any, data: bytes, where: str, lines_before: int | None) -> Batch:
        self._extra["lines_before"] = lines_before or 0
        return decoder.decode_batch(data, where)


def _next_line(handle: Any, start: int) -> int:
    """Offset of the first line that begins at or after ``start``."""
    handle.seek(start - 1)
    while chunk := handle.read(64 * 1024):
        found = chunk.find(b"\n")
        if found >= 0:
            return handle.tell() - len(chunk) + found + 1
    return handle.tell()


def _whole_lines(handle: Any, offset: int, end: int, quote: bytes | None) -> bytes:
    """About ``BLOCK_BYTES`` of whole records from ``offset`` (a record's start) on; those
    that begin at or after ``end`` are another split's. With ``quote``, a line end between
    quotes ends no record."""
    handle.seek(offset)
    data = bytes(handle.read(min(BLOCK_BYTES, end - offset)))
    while True:
        cut = _record_end(data, quote)
        at_end = offset + len(data) >= end
        if cut and (not at_end or cut == len(data)):
            return data[:cut]
        chunk = bytes(handle.read(64 * 1024))
        if not chunk:
            return data
        if at_end:  # only the rest of the record that has begun
            for at in _line_ends(chunk):
                if quote is None or (data.count(quote) + chunk[:at].count(quote)) % 2 == 0:
                    return data + chunk[:at]
        data += chunk


def _line_ends(chunk: bytes) -> Iterator[int]:
    at = chunk.find(b"\n")
    while at >= 0:
        yield at + 1
        at = chunk.find(b"\n", at + 1)


def _record_end(data: bytes, quote: bytes | None) -> int:
    """Just behind the last record that is whole in ``data``; 0 when none is."""
    cut = data.rfind(b"\n") + 1
    while quote is not None and cut and data.count(quote, 0, cut) % 2:
        cut = data.rfind(b"\n", 0, cut - 1) + 1
    return cut


class ParquetReader(PartReader):
    """Row groups [first, last) of a Parquet file, only the projected columns."""

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._open)
        try:
            file = await run(partial(self._open_parquet, handle))
            columns = self._columns(file)
            last, there = self._payload["last"], file.metadata.num_row_groups
            if last > there:
                raise self._shrunk(f"row group {last - 1}", f"{there} row groups")
            for group in range(self._payload["first"] if at is None else at, last):
                batches = await run(
                    partial(
                        file.iter_batches,
                        self._ctx.batch_rows,
                        row_groups=[group],
                        columns=columns,
                        use_threads=False,
                    )
                )
                while (rows := await run(partial(self._next, batches))) is not None:
                    yield Block(group, partial(self._to_batch, rows))
        finally:
            await run(handle.close)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except (pa.ArrowException, OSError) as err:
            raise self._damaged("Parquet", err) from err

    def _open_parquet(self, handle: Any) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(handle)
        except (pa.ArrowException, OSError) as err:
            raise ConnectorError(
                f"'{self._path}' is no Parquet file", expected="a Parquet file", got=str(err),
                remedy="check 'format' and 'path'",
            ) from err  # fmt: skip

    def _columns(self, file: pq.ParquetFile) -> list[str]:
        self._check_columns(file.schema_arrow)
        return [path for f in self._schema.fields for path in _leaves(f.name, f.type)]

    def _to_batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch(self._schema, columns_by_name(self._schema, rows, self._path), num_rows=rows.num_rows)


def _leaves(name: str, type_: t.LogicalType) -> list[str]:
    """Parquet paths of a column: of a ROW only the fields that it has here."""
    if isinstance(type_, t.RowType) and type_.fields:
        return [path for f in type_.fields for path in _leaves(f"{name}.{f.name}", f.type)]
    return [name]


class OrcReader(PartReader):
    """Stripes [first, last) of an ORC file, only the projected columns."""

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._open)
        try:
            file = await run(partial(open_orc, handle, self._path))
            self._check_columns(file.schema)
            # Of no column at all Arrow says not even how many rows there are.
            names = list(self._schema.names) or file.schema.names[:1]
            for stripe in range(self._payload["first"] if at is None else at, self._payload["last"]):
                rows = await run(partial(self._stripe, file, stripe, names))
                yield Block(stripe, partial(self._to_batch, rows))
        finally:
            await run(handle.close)

    def _stripe(self, file: Any, stripe: int, names: list[str]) -> pa.RecordBatch:
        try:
            return file.read_stripe(stripe, columns=names)
        except (pa.ArrowException, OSError) as err:
            raise self._damaged("ORC", err) from err

    def _to_batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch(self._schema, columns_by_name(self._schema, rows, self._path), num_rows=rows.num_rows)


def open_orc(handle: Any, path: str) -> Any:
    from pyarrow import orc

    try:
        return orc.ORCFile(handle)
    except (pa.ArrowException, OSError) as err:
        raise ConnectorError(
            f"'{path}' is no ORC file",
            expected="an ORC file",
            got=str(err),
            remedy="check 'format' and 'path'",
        ) from err


class ArrowReader(PartReader):
    """An Arrow IPC file or stream, record batch by record batch."""

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._open)
        try:
            batches = await run(partial(self._batches, handle))
            index = 0
            while (rows := await run(partial(self._next, batches))) is not None:
                if index >= (at or 0):
                    yield Block(index, partial(self._to_batch, rows))
                index += 1
        finally:
            await run(handle.close)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except (pa.ArrowException, OSError) as err:
            raise self._damaged("Arrow IPC", err) from err

    def _batches(self, handle: Any) -> Any:
        magic = handle.read(6)
        handle.seek(0)
        try:
            if magic == b"ARROW1":
                reader = pa.ipc.open_file(handle)
                return (reader.get_batch(i) for i in range(reader.num_record_batches))
            return iter(pa.ipc.open_stream(handle))
        except (pa.ArrowException, OSError) as err:
            raise ConnectorError(
                f"'{self._path}' is no Arrow IPC file", expected="an Arrow IPC file or stream", got=str(err),
                remedy="check 'format' and 'path'",
            ) from err  # fmt: skip

    def _to_batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch(self._schema, columns_by_name(self._schema, rows, self._path), num_rows=rows.num_rows)


class PartitionReader:
    """A file of a partitioned table: what the file has, and the values of its partition."""

    def __init__(self, ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]) -> None:
        partitioning = Partitioning.of(table)
        assert partitioning is not None
        path = payload["path"]
        self._partitioning = partitioning
        self._values = partitioning.values(tuple(payload["partition"]), path.rpartition("/")[0])
        self._schema = ctx.schema.select(ctx.projection)
        # The columns as this query reads them: of a ROW maybe some fields only.
        data = t.Schema(tuple(f for f in ctx.schema.fields if f.name in partitioning.data.names))
        # Without any column a file does not tell its rows.
        read = tuple(data.index(n) for n in self._schema.names if n in data.names) or (0,)
        self._reader = _file_reader(replace(ctx, schema=data, projection=read), table, files, payload)

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        async for block in self._reader.blocks(at):
            yield Block(block.at, partial(self._decode, block))

    def _decode(self, block: Block) -> Batch:
        return self._partitioning.with_values(self._schema, block.decode(), self._values)


def part_reader(
    ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]
) -> PartReader | PartitionReader:
    """The reader of a split."""
    if "partition" in payload:
        return PartitionReader(ctx, table, files, payload)
    return _file_reader(ctx, table, files, payload)


def _file_reader(ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]) -> PartReader:
    """The reader for the table's format."""
    kinds = {"parquet": ParquetReader, "orc": OrcReader, "arrow": ArrowReader}
    kind = kinds.get(table.options["format"], LineReader)
    return kind(ctx, table, files, payload)
