"""Avro messages: one record each, without a header; the schema is the table's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa

from penstock.errors import RecordError
from penstock.formats.api import Decoder, Encoder, FormatContext
from penstock.formats.avro.columns import to_batch, to_records
from penstock.formats.avro.schema import Writer, table_schema
from penstock.formats.avro.sound import check
from penstock.formats.reporting import redact
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.types.logical import Schema

#: What fastavro and Arrow raise for bytes that are no record of the schema.
BROKEN = (
    EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError, ArithmeticError, StopIteration,
    AttributeError, MemoryError, pa.ArrowException,
)  # fmt: skip


class AvroDecoder(Decoder):
    def __init__(self, ctx: FormatContext, options: Mapping[str, Any]) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record
        self._json = options["avro.encoding"] == "json"
        own = table_schema(ctx.schema, legacy=options["avro.timestamp_mapping.legacy"])
        self._writer = Writer(own, self._schema, "format 'avro'")
        self._plain = fastavro.parse_schema(self._writer.plain)
        self._reader = self._writer.reader and fastavro.parse_schema(self._writer.reader)

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        try:
            return to_batch(self._schema, self._writer, [self._one(m) for m in messages])
        except BROKEN:
            return self._one_by_one(messages, where)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        if self._json:
            lines = data.split(b"\n")
            kept = [i for i, line in enumerate(lines) if line.strip()]
            return self.decode([lines[i] for i in kept], lambda i: f"{where}, line {kept[i] + 1}")
        # The records have no length: what follows a broken one cannot be found.
        cuts, at, source = [], 0, io.BytesIO(data)
        while at < len(data):
            try:
                fastavro.schemaless_reader(source, self._plain, None)
                end = source.tell() if source.tell() > at else len(data)
            except BROKEN:
                end = len(data)
            cuts.append(data[at:end])
            at = end
        return self.decode(cuts, lambda i: f"{where}, record {i + 1}")

    def _one(self, message: bytes) -> Any:
        if self._json:
            (record,) = fastavro.json_reader(io.StringIO(str(message, "utf-8")), self._plain)
            return record
        source = io.BytesIO(message)
        record = fastavro.schemaless_reader(source, self._plain, None)
        if source.tell() != len(message):
            raise ValueError(f"the record ends at byte {source.tell()} of {len(message)}")
        check(message, self._plain, record)
        if self._reader is not None:
            source.seek(0)
            record = fastavro.schemaless_reader(source, self._plain, self._reader)
        return record

    def _one_by_one(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        good = []
        for i, message in enumerate(messages):
            try:
                record = self._one(message)
                to_batch(self._schema, self._writer, [record])
                good.append(record)
            except BROKEN as err:
                what = "JSON record" if self._json else "binary record"
                error = RecordError(
                    f"the message is no Avro {what} of the table's schema",
                    expected=f"one {what} with the columns of the table, in their order",
                    got=f"{len(message)} bytes: {type(err).__name__} {err}",
                    where=where(i),
                    remedy="declare the columns as the writer has them, or set 'on-error'"
                    + (f"; it reads (redacted): {redact(message)}" if self._json else ""),
                )
                self._bad_record(error, bytes(message), where(i))
        return to_batch(self._schema, self._writer, good)


class AvroEncoder(Encoder):
    def __init__(self, schema: Schema, options: Mapping[str, Any]) -> None:
        own = table_schema(schema, legacy=options["avro.timestamp_mapping.legacy"])
        self._schema = fastavro.parse_schema(Writer(own, schema, "format 'avro'").plain)
        self._json = options["avro.encoding"] == "json"

    def encode(self, batch: Batch) -> list[bytes]:
        return [self._json_one(r) if self._json else self._one(r) for r in to_records(batch)]

    def encode_batch(self, batch: Batch) -> bytes:
        if self._json:
            return b"".join(message + b"\n" for message in self.encode(batch))
        return b"".join(self.encode(batch))

    def _one(self, record: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, record)
        return out.getvalue()

    def _json_one(self, record: dict[str, Any]) -> bytes:
        out = io.StringIO()
        fastavro.json_writer(out, self._schema, [record])
        return out.getvalue().encode()
