"""The format ``raw``: the whole message is the only column (STRING or BYTES)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ConnectorError, RecordError
from penstock.formats.api import Decoder, Encoder, Format, FormatContext
from penstock.formats.lines import LineFiles
from penstock.formats.reporting import redact
from penstock.options import OptionSet
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.types.logical import Schema


class RawDecoder(Decoder):
    """Gives each message as one value. A STRING column takes only valid UTF-8; other messages are bad records."""

    def __init__(self, ctx: FormatContext) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._text = isinstance(ctx.schema.fields[0].type, t.STRINGS)
        self._bad_record = ctx.bad_record
        self._extra = ctx.extra

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        if self._text:
            messages = self._valid_text(messages, where)
        columns = []
        if len(self._schema):
            array = pa.array(messages, pa.binary())
            type_ = self._schema.fields[0].type
            columns = [Column(type_, array.cast(pa.string()) if self._text else array)]
        return Batch(self._schema, columns, num_rows=len(messages))

    def decode_batch(self, data: bytes, where: str) -> Batch:
        lines = data.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        first = self._extra.get("lines_before", 0) + 1
        return self.decode(lines, lambda i: f"{where}, line {first + i}")

    def _valid_text(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Sequence[bytes]:
        kept = []
        for i, message in enumerate(messages):
            try:
                message.decode()
                kept.append(message)
            except UnicodeDecodeError as err:
                error = RecordError(
                    "the message is not UTF-8", expected="UTF-8 text", got=str(err), where=where(i),
                    remedy=f"declare the column BYTES; it reads: {redact(message)}",
                )  # fmt: skip
                self._bad_record(error, bytes(message), where(i))
        return kept


class RawEncoder(Encoder):
    """Writes each value as one message."""

    def encode(self, batch: Batch) -> list[bytes]:
        values = batch.columns[0].to_pylist()
        return [b"" if v is None else v.encode() if isinstance(v, str) else v for v in values]

    def encode_batch(self, batch: Batch) -> bytes:
        return b"".join(message + b"\n" for message in self.encode(batch))


class RawFormat(Format):
    """The format ``raw``, for messages and files of lines. Raises ConnectorError unless the table has exactly
    one column."""

    name = "raw"
    options = OptionSet("format 'raw'", [])
    extension = "txt"

    def __init__(self) -> None:
        self.files = LineFiles(self, cut=True)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        if len(schema) != 1 or not isinstance(schema.fields[0].type, (*t.STRINGS, *t.BINARIES)):
            raise ConnectorError(
                "format 'raw' needs exactly one physical column",
                expected="one column of type STRING or BYTES",
                got=str(schema),
                where="format 'raw'",
                remedy="declare one STRING column and parse it in the query",
            )

    def decoder(self, ctx: FormatContext) -> RawDecoder:
        return RawDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> RawEncoder:
        return RawEncoder()
