"""Avro messages: one record each, without a header; the schema is the table's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa

from penstock.errors import RecordError
from penstock.formats.api import Decoder, Encoder, FormatContext
from penstock.formats.avro.columns import to_batch, to_records
from penstock.formats.avro.kernel import kernel_of
from penstock.formats.avro.row_parts import row_kernel_of
from penstock.formats.avro.schema import Writer, table_schema
from penstock.formats.avro.sound import check
from penstock.formats.by_kernel import Decoded, of_messages, with_rest
from penstock.formats.reporting import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.formats.avro.schema import Node
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

#: The errors of fastavro and Arrow for bytes that are no record of the schema.
BROKEN = (
    EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError, ArithmeticError, StopIteration,
    AttributeError, MemoryError, pa.ArrowException,
)  # fmt: skip


class RecordReader:
    """Single records of one writer's schema, as fastavro gives them, with the wanted fields only.

    ``columns``: those wanted; ``schema``: the writer's, as JSON gives it; ``lead``: the bytes in front of each record,
    which callers take away; ``unread``: as of ``FormatContext``.
    """

    def __init__(
        self,
        schema: Node,
        columns: Schema,
        where: str,
        *,
        as_json: bool = False,
        lead: bytes = b"",
        unread: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.lead = lead
        self.writer = writer = Writer(schema, columns, where)
        self._kernel = None if as_json else kernel_of(writer, schema, columns, unread or {})
        self.what = "JSON record" if as_json else "binary record"
        self._json = as_json
        self.plain = fastavro.parse_schema(writer.plain)
        self._reader = writer.reader and fastavro.parse_schema(writer.reader)

    def by_kernel(self, messages: Sequence[bytes], skip: int = 0) -> Decoded | None:
        """Those messages, each without its first ``skip`` bytes, of which the compiled kernel is sure; None: of none."""
        return None if self._kernel is None else self._kernel.decode(of_messages(messages, skip))

    def one(self, message: bytes) -> Any:
        """The record in ``message``; one of ``BROKEN`` unless it is a record and nothing more."""
        if self._json:
            (record,) = fastavro.json_reader(io.StringIO(str(message, "utf-8")), self.plain)
            return record
        source = io.BytesIO(message)
        record = fastavro.schemaless_reader(source, self.plain, None)
        if source.tell() != len(message):
            raise ValueError(f"the record ends at byte {source.tell()} of {len(message)}")
        check(message, self.plain, record)
        if self._reader is not None:
            source.seek(0)
            record = fastavro.schemaless_reader(source, self.plain, self._reader)
        return record

    def end(self, data: bytes, at: int) -> int:
        """Where the record ends that begins at ``at``; the end of ``data`` where the record is broken."""
        source = io.BytesIO(data)
        source.seek(at)
        try:
            fastavro.schemaless_reader(source, self.plain, None)
        except BROKEN:
            return len(data)
        return source.tell() if source.tell() > at else len(data)

    def cuts(self, data: bytes) -> list[bytes]:
        """The records of ``data``, one behind another, in pieces. They have no length: what follows a broken
        one cannot be found, and is the last piece."""
        found, at = [], 0
        while at < len(data):
            end = self.end(data, at)
            found.append(data[at:end])
            at = end
        return found


class AvroDecoder(Decoder):
    """Decodes messages of one Avro record each."""

    def __init__(self, ctx: FormatContext, options: Mapping[str, Any]) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record
        self._json = options["avro.encoding"] == "json"
        own = table_schema(ctx.schema, legacy=options["avro.timestamp_mapping.legacy"])
        self._records = RecordReader(
            own, self._schema, "format 'avro'", as_json=self._json, unread=ctx.unread
        )

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        def rest(numbers: list[int] | None) -> Decoded:
            if numbers is None:
                return self._rest(messages, where)
            return self._rest([messages[i] for i in numbers], lambda i: where(numbers[i]))

        return with_rest(self._records.by_kernel(messages), len(messages), rest).batch

    def _rest(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Decoded:
        try:
            batch = self._batch([self._records.one(m) for m in messages])
            return Decoded(batch, np.arange(len(messages)))
        except BROKEN:
            return self._one_by_one(messages, where)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        if self._json:
            lines = data.split(b"\n")
            kept = [i for i, line in enumerate(lines) if line.strip()]
            return self.decode([lines[i] for i in kept], lambda i: f"{where}, line {kept[i] + 1}")
        return self.decode(self._records.cuts(data), lambda i: f"{where}, record {i + 1}")

    def _batch(self, records: list[Any]) -> Batch:
        return to_batch(self._schema, self._records.writer, records)

    def _one_by_one(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Decoded:
        good, kept = [], []
        for i, message in enumerate(messages):
            try:
                record = self._records.one(message)
                self._batch([record])
                good.append(record)
                kept.append(i)
            except BROKEN as err:
                what = self._records.what
                error = RecordError(
                    f"the message is no Avro {what} of the table's schema",
                    expected=f"one {what} with the columns of the table, in their order",
                    got=f"{len(message)} bytes: {type(err).__name__} {err}",
                    where=where(i),
                    remedy="declare the columns as the writer has them, or set 'on-error'"
                    + (f"; it reads (redacted): {redact(message)}" if self._json else ""),
                )
                self._bad_record(error, bytes(message), where(i))
        return Decoded(self._batch(good), np.array(kept, np.int64))


def binary(schema: Any, record: dict[str, Any]) -> bytes:
    """A record's bytes. ``schema``: as ``fastavro.parse_schema`` gives it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, record)
    return out.getvalue()


class AvroEncoder(Encoder):
    """Encodes each row as one Avro record."""

    def __init__(self, schema: Schema, options: Mapping[str, Any]) -> None:
        own = table_schema(schema, legacy=options["avro.timestamp_mapping.legacy"])
        plain = Writer(own, schema, "format 'avro'").plain
        self._schema = fastavro.parse_schema(plain)
        self._json = options["avro.encoding"] == "json"
        self._kernel = None if self._json else row_kernel_of(plain, schema)

    def encode(self, batch: Batch) -> list[bytes]:
        if self._kernel is not None and (made := self._kernel.encode(batch)) is not None:
            return made
        return [self._json_one(r) if self._json else self._one(r) for r in to_records(batch)]

    def encode_batch(self, batch: Batch) -> bytes:
        if self._json:
            return b"".join(message + b"\n" for message in self.encode(batch))
        return b"".join(self.encode(batch))

    def _one(self, record: dict[str, Any]) -> bytes:
        return binary(self._schema, record)

    def _json_one(self, record: dict[str, Any]) -> bytes:
        out = io.StringIO()
        fastavro.json_writer(out, self._schema, [record])
        return out.getvalue().encode()
