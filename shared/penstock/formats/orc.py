"""ORC: files only. Columns are matched by name; only projected ones are read."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import orc

from penstock.errors import ConnectorError, UnsupportedError
from penstock.formats.api import Block, FileFormat, Format, SparkFiles
from penstock.formats.arrow_columns import ColumnarReader
from penstock.formats.file_errors import damaged, not_of_kind
from penstock.formats.reporting import unsupported_type
from penstock.options import Option, OptionSet, choice
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import BinaryIO

    from penstock.formats.api import Decoder, Encoder, FileContext, FormatContext, Output
    from penstock.types import Batch
    from penstock.types.logical import LogicalType, Schema

OPTIONS = OptionSet(
    "format 'orc'",
    [Option("orc.compression", choice("snappy", "zstd", "zlib", "lz4", "none"), "zstd", "Of files written.")],
)
_STRIPE_ROWS = 131_072
#: Types that ORC, or Arrow's ORC, does not have.
_MISSING = (
    t.RawType, t.NullType, t.MultisetType, t.TimeType, t.YearMonthIntervalType, t.DayTimeIntervalType,
)  # fmt: skip


class OrcFileWriter:
    """Appends batches to one open file. ``close`` writes the footer."""

    def __init__(self, sink: Any, schema: Schema, options: Mapping[str, str]) -> None:
        from penstock.types.storage import external_arrow_type

        codec = OPTIONS.read(options)["orc.compression"]
        self._schema = pa.schema([pa.field(f.name, external_arrow_type(f.type)) for f in schema.fields])
        self._writer = orc.ORCWriter(sink, compression="uncompressed" if codec == "none" else codec)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._written = False

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""
        arrays = [c.to_external_arrow() for c in batch.columns]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += len(batch)
        if self._rows >= _STRIPE_ROWS:
            self._write()

    def close(self) -> None:
        """Write the footer. Does not close the file beneath."""
        if self._waiting or not self._written:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self._written = [], 0, True


class OrcReader(ColumnarReader):
    """Stripes [first, last) of an ORC file, only the projected columns."""

    kind = "ORC"

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run = self._ctx.run
        handle = await run(self._ctx.open)
        try:
            file = await run(partial(_open_orc, handle, self._ctx.path))
            self._check_columns(file.schema)
            # Without any column Arrow does not give the number of rows, so one column is read.
            names = list(self._schema.names) or file.schema.names[:1]
            for stripe in range(self._ctx.part["first"] if at is None else at, self._ctx.part["last"]):
                rows = await run(partial(self._stripe, file, stripe, names))
                yield Block(stripe, partial(self._to_batch, rows))
        finally:
            await run(handle.close)

    def _stripe(self, file: Any, stripe: int, names: list[str]) -> pa.RecordBatch:
        try:
            return file.read_stripe(stripe, columns=names)
        except (pa.ArrowException, OSError) as err:
            if "out of range for nanosecond" in str(err):
                raise _too_far(self._ctx.path, str(err)) from err
            raise damaged(self._ctx.path, "ORC", err) from err


def _open_orc(handle: Any, path: str) -> orc.ORCFile:
    try:
        return orc.ORCFile(handle)
    except (pa.ArrowException, OSError) as err:
        raise not_of_kind(path, "ORC", "an ORC file", err) from err


def _too_far(path: str, found: str) -> ConnectorError:
    return ConnectorError(
        f"'{path}' has a time that cannot be read from ORC",
        expected="times from 1677-09-21 00:12:44 to 2262-04-11 23:47:16",
        got=found,
        where=path,
        remedy="leave the column out of the table, or write such times as STRING or into Parquet",
    )


class OrcFiles(FileFormat):
    """ORC files, which can be read in runs of stripes."""

    native_writer = True
    # Spark's ORC fails at times before 1970 as Arrow's ORC writes them.
    spark = SparkFiles("orc", row_index=False, timestamps=False, nanoseconds=True)

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        """Runs of stripes of about ``part_bytes``. Arrow gives only the number of stripes, not their sizes."""
        handle = open()
        try:
            stripes = _open_orc(handle, path).nstripes
        finally:
            handle.close()
        count = min(stripes, -(-size // part_bytes) if part_bytes else 1)
        edges = [stripes * i // count for i in range(count + 1)] if count else []
        return [{"first": a, "last": b} for a, b in itertools.pairwise(edges)]

    def reader(self, ctx: FileContext) -> OrcReader:
        return OrcReader(ctx)

    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> OrcFileWriter:
        return OrcFileWriter(sink, schema, options)

    def stored_schema(self, path: str) -> pa.Schema | None:
        try:
            return orc.ORCFile(path).schema
        except (pa.ArrowException, OSError):
            return None


class OrcFormat(Format):
    """The format ``orc``, for files only."""

    name = "orc"
    options = OPTIONS
    messages = False
    extension = "orc"
    files = OrcFiles()

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        for field in schema.fields:
            if not _holds(field.type):
                raise unsupported_type("orc", field.name, field.type)

    def decoder(self, ctx: FormatContext) -> Decoder:
        raise _files_only("read")

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> Encoder:
        raise _files_only("write")


def _holds(type_: LogicalType) -> bool:
    match type_:
        case t.ArrayType(element=element):
            return _holds(element)
        case t.MapType(key=key, value=value):
            return _holds(key) and _holds(value)
        case t.RowType(fields=fields):
            return all(_holds(f.type) for f in fields)
    return not isinstance(type_, _MISSING)


def _files_only(verb: str) -> UnsupportedError:
    return UnsupportedError(
        f"cannot {verb} single messages as ORC",
        expected="a format for messages: json, csv, raw or arrow",
        got="'format' = 'orc'",
        remedy="use 'arrow' for messages, or connector 'filesystem' for ORC files",
    )
