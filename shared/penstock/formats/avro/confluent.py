"""The format ``avro-confluent``: Avro messages behind the id of a schema that a registry holds.

A reader asks the registry for each id once, resolves the writer's schema to the table's columns by Avro's rules,
and decodes. A sink registers the schema of its table, or the one that the user gives, before its first row.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ConnectorError, RecordError
from penstock.formats.api import Decoder, Encoder, Format, FormatContext
from penstock.formats.avro.format import need_library
from penstock.formats.avro.schema import Writer, table_schema, with_references
from penstock.formats.by_kernel import Decoded, with_rest
from penstock.formats.reporting import shorten
from penstock.formats.schema_registry.client import SchemaRegistry, UnknownSchemaError, registry_for
from penstock.formats.schema_registry.settings import read_settings, registry_options
from penstock.formats.schema_registry.wire import HEADER_BYTES, header, schema_id_of
from penstock.options import Option, OptionSet, boolean, text
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from penstock.formats.avro.messages import RecordReader
    from penstock.types.logical import Schema

_NAME = "avro-confluent"
_WHERE = f"format '{_NAME}'"
_KIND = "AVRO"

OPTIONS = OptionSet(
    _WHERE,
    [
        *registry_options(_NAME),
        Option(f"{_NAME}.schema", text, None, "An Avro schema that fits the table; without it the columns give one."),
        Option(f"{_NAME}.timestamp_mapping.legacy", boolean, True, "As of the format avro."),
    ],
    prefixes=(f"{_NAME}.properties.",),
)  # fmt: skip


class AvroConfluentFormat(Format):
    name = _NAME
    options = OPTIONS

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        need_library(_WHERE)
        settings = read_settings(_NAME, OPTIONS.read(options), options)
        if settings.truststore or settings.keystore:
            settings.tls()
        _written(schema, options)

    def topic_options(self, options: Mapping[str, str], topic: str, part: str) -> Mapping[str, str]:
        return {f"{_NAME}.subject": f"{topic}-{part}", **options}

    def decoder(self, ctx: FormatContext) -> AvroConfluentDecoder:
        return AvroConfluentDecoder(ctx, self._registry(ctx.options))

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> AvroConfluentEncoder:
        return AvroConfluentEncoder(schema, options, self._registry(options))

    def _registry(self, options: Mapping[str, str]) -> SchemaRegistry:
        return registry_for(read_settings(_NAME, OPTIONS.read(options), options))


def _given(options: Mapping[str, str]) -> dict[str, Any] | None:
    """The schema that the user gives, parsed."""
    from penstock.formats.avro.given import parse

    found = OPTIONS.read_one(options, f"{_NAME}.schema")
    return None if found is None else parse(found, _WHERE)


def _written(schema: Schema, options: Mapping[str, str]) -> dict[str, Any]:
    """The Avro schema of rows of a table. ConnectorError or UnsupportedError, which names a column, if there is
    none."""
    from penstock.formats.avro.given import check_given

    given = _given(options)
    if given is None:
        legacy = f"{_NAME}.timestamp_mapping.legacy"
        return table_schema(schema, legacy=OPTIONS.read_one(options, legacy), legacy_option=legacy)
    check_given(given, schema, _WHERE)
    return given


class AvroConfluentDecoder(Decoder):
    fetches = True

    def __init__(self, ctx: FormatContext, registry: SchemaRegistry) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record
        self._registry = registry
        self._given = _given(ctx.options)
        self._readers: dict[int, RecordReader] = {}

    def prepare(self, messages: Sequence[bytes]) -> Coroutine[Any, Any, None] | None:
        ids = {bytes(m[1:HEADER_BYTES]) for m in messages if len(m) >= HEADER_BYTES and m[0] == 0}
        missing = {i for i in (int.from_bytes(b, "big") for b in ids) if self._registry.known(i) is None}
        return self._fetch(missing) if missing else None

    async def _fetch(self, ids: set[int]) -> None:
        for schema_id in sorted(ids):
            await self._registry.fetch(schema_id, _KIND)

    def _reader(self, schema_id: int) -> RecordReader:
        """ConnectorError if the schema does not fit the table. UnknownSchemaError if there is no such schema."""
        if (known := self._readers.get(schema_id)) is not None:
            return known
        from penstock.formats.avro.given import check_defaults
        from penstock.formats.avro.messages import RecordReader

        found = self._registry.known(schema_id)
        if isinstance(found, UnknownSchemaError):
            raise found
        where = f"schema id {schema_id}, {self._registry.where}"
        if found is None:
            raise ConnectorError(
                "the schema of a message was not fetched",
                expected="a connector that awaits Decoder.prepare before Decoder.decode",
                got="messages that were not prepared",
                where=where,
                remedy="report it to the author of the connector",
            )
        schema = with_references(json.loads(found.text), [json.loads(r) for r in found.references])
        if self._given is not None:
            check_defaults(self._given, schema, self._schema, where)
        made = RecordReader(schema, self._schema, where)
        self._readers[schema_id] = made
        return made

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        groups: dict[int, list[int]] = {}
        for i, message in enumerate(messages):
            try:
                groups.setdefault(schema_id_of(message), []).append(i)
            except ValueError as err:
                self._bad(message, where(i), _HEADER, str(err), _NO_HEADER)
        parts, order = [], []
        for schema_id, rows in groups.items():
            batch, kept = self._decode_group(schema_id, rows, messages, where)
            parts.append(batch)
            order += kept
        if not parts:
            return Batch.empty(self._schema)
        whole = Batch.concat(parts)
        return whole if len(parts) == 1 else whole.take(np.argsort(np.array(order, np.int64)))

    def _decode_group(
        self, schema_id: int, rows: list[int], messages: Sequence[bytes], where: Callable[[int], str]
    ) -> tuple[Batch, list[int]]:
        """The messages of one schema, and which they were."""
        try:
            reader = self._reader(schema_id)
        except UnknownSchemaError as err:
            for i in rows:
                got = f"schema id {schema_id}: {err}"
                self._bad(messages[i], where(i), f"a schema of {self._registry.where}", got, _NOT_KNOWN)
            return Batch.empty(self._schema), []
        group = messages if len(rows) == len(messages) else [messages[i] for i in rows]

        def rest(numbers: list[int] | None) -> Decoded:
            left = rows if numbers is None else [rows[i] for i in numbers]
            return self._rest(schema_id, reader, left, messages, where)

        done = with_rest(reader.by_kernel(group, HEADER_BYTES), len(group), rest)
        return done.batch, [rows[i] for i in done.rows.tolist()]

    def _rest(
        self,
        schema_id: int,
        reader: RecordReader,
        rows: list[int],
        messages: Sequence[bytes],
        where: Callable[[int], str],
    ) -> Decoded:
        """Messages of one schema, record by record; ``rows`` of the answer: which of these were not rejected."""
        from penstock.formats.avro.columns import to_batch
        from penstock.formats.avro.messages import BROKEN

        bodies = [bytes(messages[i][HEADER_BYTES:]) for i in rows]
        try:
            batch = to_batch(self._schema, reader.writer, [reader.one(body) for body in bodies])
            return Decoded(batch, np.arange(len(rows)))
        except BROKEN:
            good, kept = [], []
            for at, (i, body) in enumerate(zip(rows, bodies, strict=True)):
                try:
                    record = reader.one(body)
                    to_batch(self._schema, reader.writer, [record])
                except BROKEN as err:
                    got = f"{len(body)} bytes behind the header: {type(err).__name__} {err}"
                    expected = f"a record of schema id {schema_id} that fits the table's columns"
                    self._bad(messages[i], where(i), expected, got, _UNFIT)
                    continue
                good.append(record)
                kept.append(at)
            return Decoded(to_batch(self._schema, reader.writer, good), np.array(kept, np.int64))

    def _bad(self, message: bytes, place: str, expected: str, got: str, remedy: str) -> None:
        error = RecordError(
            "the message is no Avro record of the schema registry",
            expected=expected, got=got, where=place, remedy=remedy,
        )  # fmt: skip
        self._bad_record(error, bytes(message), place)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        """Records of one schema, one behind another, each with its header."""
        try:
            reader = self._reader(schema_id_of(data)) if data else None
        except (ValueError, UnknownSchemaError):
            reader = None
        pieces, at = [], 0
        while reader is not None and data[at : at + HEADER_BYTES] == data[:HEADER_BYTES] != b"":
            end = reader.end(data, at + HEADER_BYTES)
            pieces.append(data[at:end])
            at = end
        if at < len(data):
            pieces.append(data[at:])
        return self.decode(pieces, lambda i: f"{where}, record {i + 1}")


_HEADER = "a zero byte, the schema's id in four bytes, and an Avro record"
_NO_HEADER = "read messages without the header with 'format' = 'avro', or set 'on-error'"
_NOT_KNOWN = "point 'avro-confluent.url' at the registry that the writer used, or set 'on-error'"
_UNFIT = "declare the columns as the writer has them, or set 'on-error'"


class AvroConfluentEncoder(Encoder):
    def __init__(self, schema: Schema, options: Mapping[str, str], registry: SchemaRegistry) -> None:
        self._columns = schema
        self._registry = registry
        self._settings = read_settings(_NAME, OPTIONS.read(options), options)
        self._schema = _written(schema, options)
        self._header: bytes | None = None
        subject = OPTIONS.read_one(options, f"{_NAME}.subject")
        if not subject:
            raise ConnectorError(
                f"option '{_NAME}.subject' is missing",
                expected=f"'{_NAME}.subject' = '…', under which the sink registers its schema",
                got="no such option",
                where=_WHERE,
                remedy=f"add '{_NAME}.subject' to the table's WITH clause",
            )
        self._subject: str = subject

    @cached_property
    def _plain(self) -> Any:
        """The schema as fastavro takes it, with numbers for times."""
        import fastavro

        return fastavro.parse_schema(Writer(self._schema, self._columns, _WHERE).plain)

    async def open(self) -> None:
        text = json.dumps(self._schema, ensure_ascii=False)
        register = self._settings.register
        self._header = header(await self._registry.id_of(self._subject, text, _KIND, register=register))

    def encode(self, batch: Batch) -> list[bytes]:
        from penstock.formats.avro.columns import to_records
        from penstock.formats.avro.messages import BROKEN, binary

        if self._header is None:
            raise ConnectorError(
                "the schema of the sink was not registered",
                expected="a connector that awaits Encoder.open before Encoder.encode",
                got="an encoder that was not opened",
                where=f"subject '{self._subject}', {self._registry.where}",
                remedy="report it to the author of the connector",
            )
        out, record = [], None
        try:
            for record in to_records(batch):
                out.append(self._header + binary(self._plain, record))
        except BROKEN as err:
            raise RecordError(
                "a row cannot be written as the Avro schema of the table says",
                expected=shorten(self._schema, 300),
                got=f"{type(err).__name__} {err}, in {shorten(record, 200)}",
                where=f"subject '{self._subject}'",
                remedy="filter such rows, or correct the option 'schema'",
            ) from None
        return out

    def encode_batch(self, batch: Batch) -> bytes:
        return b"".join(self.encode(batch))
