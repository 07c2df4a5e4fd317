"""Parquet: files only. Columns are matched by name; only projected ones are read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import UnsupportedError
from penstock.formats.api import Block, FileFormat, Format, SparkFiles
from penstock.formats.arrow_columns import ColumnarReader
from penstock.formats.file_errors import not_of_kind, shrunk
from penstock.formats.reporting import unsupported_type
from penstock.options import Option, OptionSet, choice, integer
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import BinaryIO

    from penstock.formats.api import Decoder, Encoder, FileContext, FormatContext, Output
    from penstock.types import Batch
    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "format 'parquet'",
    [
        Option("parquet.compression", choice("snappy", "zstd", "gzip", "lz4", "none"), "zstd", "Of files written."),
        Option("parquet.row-group-rows", integer, 131_072, "Rows a row group of files written."),
    ],
)  # fmt: skip
#: The number of rows, taken from all batches of the first row group, that decide about dictionaries.
_SAMPLE_ROWS = 8_192


class ParquetFileWriter:
    """Appends batches to one open file. ``close`` writes the footer and does not close the file beneath."""

    def __init__(self, sink: Any, schema: Schema, options: Mapping[str, str]) -> None:
        from penstock.types.storage import external_arrow_type

        typed = OPTIONS.read(options)
        codec = typed["parquet.compression"]
        self._group_rows = typed["parquet.row-group-rows"]
        self._schema = pa.schema(
            [pa.field(f.name, external_arrow_type(f.type), nullable=f.type.nullable) for f in schema.fields]
        )
        self._sink, self._codec = sink, None if codec == "none" else codec
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""
        arrays = [c.to_external_arrow() for c in batch.columns]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += len(batch)
        if self._rows >= self._group_rows:
            self._write_group()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._write_group()
        (self._writer or self._opened(self._schema.empty_table())).close()

    def _write_group(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self._schema)
            self._writer = self._writer or self._opened(rows)
            self._writer.write_table(rows)
            self._waiting, self._rows = [], 0

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """``rows``: the first row group."""
        return pq.ParquetWriter(
            self._sink, self._schema, compression=self._codec, use_dictionary=repeating_columns(rows)
        )


def repeating_columns(rows: pa.Table) -> list[str]:
    """The Parquet paths of the columns that a dictionary is likely to shorten.

    If most values differ, the dictionary would be built, found too large and dropped: a third of the time of
    writing.
    """
    batches = rows.to_batches()
    each = max(1, _SAMPLE_ROWS // max(1, len(batches)))
    sample = pa.Table.from_batches([b.slice(0, each) for b in batches], rows.schema)
    found: list[str] = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        _add_repeating(field.name, column.combine_chunks(), found)
    return found


def _add_repeating(path: str, values: pa.Array, found: list[str]) -> None:
    match values:
        case pa.StructArray():
            for i, field in enumerate(values.type):
                _add_repeating(f"{path}.{field.name}", values.field(i), found)
        case pa.MapArray():
            first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
            _add_repeating(f"{path}.key_value.key", values.keys[first:last], found)
            _add_repeating(f"{path}.key_value.value", values.items[first:last], found)
        case pa.ListArray():
            _add_repeating(f"{path}.list.element", values.flatten(), found)
        case _:
            if 2 * pc.count_distinct(values).as_py() <= len(values) - values.null_count:
                found.append(path)


class ParquetReader(ColumnarReader):
    """Row groups [first, last) of a Parquet file, only the projected columns."""

    kind = "Parquet"

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._ctx.open)
        try:
            file = await run(partial(_open_parquet, handle, self._ctx.path))
            columns = self._columns(file)
            last, there = self._ctx.part["last"], file.metadata.num_row_groups
            if last > there:
                raise shrunk(self._ctx.path, f"row group {last - 1}", f"{there} row groups")
            for group in range(self._ctx.part["first"] if at is None else at, last):
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

    def _columns(self, file: pq.ParquetFile) -> list[str]:
        self._check_columns(file.schema_arrow)
        return [path for f in self._schema.fields for path in _leaves(f.name, f.type)]


def _leaves(name: str, type_: t.LogicalType) -> list[str]:
    """The Parquet paths of a column; of a ROW only the fields of ``type_``."""
    if isinstance(type_, t.RowType) and type_.fields:
        return [path for f in type_.fields for path in _leaves(f"{name}.{f.name}", f.type)]
    return [name]


def _open_parquet(handle: Any, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(handle)
    except (pa.ArrowException, OSError) as err:
        raise not_of_kind(path, "Parquet", "a Parquet file", err) from err


class ParquetFiles(FileFormat):
    """Parquet files, which can be read in runs of row groups."""

    native_writer = True
    spark = SparkFiles("parquet", row_index=True, timestamps=True, nanoseconds=False)

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        """Runs of row groups of about ``part_bytes``."""
        handle = open()
        try:
            meta = _open_parquet(handle, path).metadata
        finally:
            handle.close()
        parts, first, taken = [], 0, 0
        for group in range(meta.num_row_groups):
            taken += meta.row_group(group).total_byte_size
            if taken >= part_bytes or group == meta.num_row_groups - 1:
                parts.append({"first": first, "last": group + 1})
                first, taken = group + 1, 0
        return parts

    def reader(self, ctx: FileContext) -> ParquetReader:
        return ParquetReader(ctx)

    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> ParquetFileWriter:
        return ParquetFileWriter(sink, schema, options)

    def stored_schema(self, path: str) -> pa.Schema | None:
        try:
            return pq.read_schema(path)
        except (pa.ArrowException, OSError):
            return None


class ParquetFormat(Format):
    """The format ``parquet``, for files only."""

    name = "parquet"
    options = OPTIONS
    messages = False
    extension = "parquet"
    files = ParquetFiles()

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        for field in schema.fields:
            if isinstance(field.type, (t.RawType, t.NullType, t.MultisetType)):
                raise unsupported_type("parquet", field.name, field.type)

    def decoder(self, ctx: FormatContext) -> Decoder:
        raise _files_only("read")

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> Encoder:
        raise _files_only("write")


def _files_only(verb: str) -> UnsupportedError:
    return UnsupportedError(
        f"cannot {verb} single messages as Parquet",
        expected="a format for messages: json, csv, raw or arrow",
        got="'format' = 'parquet'",
        remedy="use 'arrow' for messages, or connector 'filesystem' for Parquet files",
    )
