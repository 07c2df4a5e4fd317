"""ORC: files only. Columns are matched by name; only projected ones are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import orc

from penstock.connectors.options import Option, OptionSet, choice
from penstock.errors import UnsupportedError
from penstock.formats.base import Format, unsupported_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import Decoder, Encoder, FormatContext
    from penstock.types import Batch
    from penstock.types.logical import LogicalType, Schema

OPTIONS = OptionSet(
    "format 'orc'",
    [Option("orc.compression", choice("snappy", "zstd", "zlib", "lz4", "none"), "zstd", "Of files written.")],
)
_STRIPE_ROWS = 131_072
#: Types that ORC, or Arrow's ORC, has not.
_MISSING = (
    t.RawType, t.NullType, t.MultisetType, t.TimeType, t.YearMonthIntervalType, t.DayTimeIntervalType,
)  # fmt: skip


class OrcFileWriter:
    """Appends batches to one open file. ``close`` writes the footer."""

    def __init__(self, sink: Any, schema: Schema, options: Mapping[str, str]) -> None:
        from penstock.types.column import external_arrow_type

        codec = OPTIONS.read(options)["orc.compression"]
        self._schema = pa.schema([pa.field(f.name, external_arrow_type(f.type)) for f in schema.fields])
        self._writer = orc.ORCWriter(sink, compression="uncompressed" if codec == "none" else codec)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._written = False

    def write(self, batch: Batch) -> None:
        arrays = [c.to_external_arrow() for c in batch.columns]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += len(batch)
        if self._rows >= _STRIPE_ROWS:
            self._write()

    def close(self) -> None:
        if self._waiting or not self._written:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self._written = [], 0, True


class OrcFormat(Format):
    name = "orc"
    options = OPTIONS
    extension = "orc"

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
