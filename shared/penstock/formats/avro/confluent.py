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
from penstock.formats.avro.row_parts import row_kernel_of
from penstock.formats.avro.schema import Writer, record_in, table_schema, with_references
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
    from penstock.formats.avro.schema import Node
    from penstock.formats.row_kernel import RowKernel
    from penstock.types.logical import Schema

_KIND = "AVRO"


class Registered:
    """The options of a format of registered Avro, typed, and what follows from them.

    Args:
        name: The format, which is the options' prefix.
        options: The table's options.
    """

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self.where = name, f"format '{name}'"
        self._options = option_set(name).read(options)
        self.settings = read_settings(name, self._options, options)

    @property
    def registry(self) -> SchemaRegistry:
        """The registry that the table names."""
        return registry_for(self.settings)

    @cached_property
    def given(self) -> Node | None:
        """The schema that the user gives, parsed: a record, or a union of null and one."""
        from penstock.formats.avro.given import parse

        found = self._options[f"{self.name}.schema"]
        return None if found is None else parse(found, self.where)

    def written(self, schema: Schema, *, in_union: bool = False) -> Node:
        """The Avro schema of rows of ``schema``. ``in_union``: where the user gives none, a union of null and the record.

        Raises ConnectorError or UnsupportedError, which names a column, if there is none.
        """
        from penstock.formats.avro.given import check_given

        if self.given is None:
            option = f"{self.name}.timestamp_mapping.legacy"
            record = table_schema(schema, legacy=self._options[option], legacy_option=option)
            return ["null", record] if in_union else record
        check_given(record_in(self.given, self.where).schema, schema, self.where)
        return self.given

    @property
    def subject(self) -> str:
        """Under which a sink registers its schema. ConnectorError: the table does not say it."""
        found: str | None = self._options[f"{self.name}.subject"]
        if not found:
            raise ConnectorError(
                f"option '{self.name}.subject' is missing",
                expected=f"'{self.name}.subject' = '…', under which the sink registers its schema",
                got="no such option",
                where=self.where,
                remedy=f"add '{self.name}.subject' to the table's WITH clause",
            )
        return found


def option_set(name: str) -> OptionSet:
    """The options of the format ``name``, which is registered Avro."""
    return OptionSet(
        f"format '{name}'",
        [
            *registry_options(name),
            Option(f"{name}.schema", text, None, "An Avro schema that fits the table; without it the columns give one."),
            Option(f"{name}.timestamp_mapping.legacy", boolean, True, "As of the format avro."),
        ],
        prefixes=(f"{name}.properties.",),
    )  # fmt: skip


class RegisteredAvroFormat(Format):
    """A format of Avro messages whose schemas a registry holds."""

    def __init__(self) -> None:
        self.options = option_set(self.name)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        need_library(f"format '{self.name}'")
        registered = Registered(self.name, options)
        if registered.settings.truststore or registered.settings.keystore:
            registered.settings.tls()
        self.check_schema(schema, registered)

    def check_schema(self, schema: Schema, registered: Registered) -> None:
        """ConnectorError or UnsupportedError, which names a column, unless rows of ``schema`` can be written."""
        registered.written(schema)

    def topic_options(self, options: Mapping[str, str], topic: str, part: str) -> Mapping[str, str]:
        return {f"{self.name}.subject": f"{topic}-{part}", **options}


class AvroConfluentFormat(RegisteredAvroFormat):
    name = "avro-confluent"

    def decoder(self, ctx: FormatContext) -> AvroConfluentDecoder:
        return AvroConfluentDecoder(ctx, Registered(self.name, ctx.options))

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> AvroConfluentEncoder:
        return AvroConfluentEncoder(schema, Registered(self.name, options))


class AvroConfluentDecoder(Decoder):
    fetches = True

    def __init__(self, ctx: FormatContext, registered: Registered) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record
        self._not_known = f"point '{registered.name}.url' at the registry that the writer used"
        self._registry = registered.registry
        self._given = (
            None if registered.given is None else record_in(registered.given, registered.where).schema
        )
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
        record = record_in(self.read_as(schema), where)
        if self._given is not None:
            check_defaults(self._given, record.schema, self._schema, where)
        made = RecordReader(record.schema, self._schema, where, lead=record.lead)
        self._readers[schema_id] = made
        return made

    def read_as(self, schema: Node) -> Node:
        """The schema with which messages of a writer's ``schema`` are read."""
        return schema

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
                self._bad(messages[i], where(i), f"a schema of {self._registry.where}", got, self._not_known)
            return Batch.empty(self._schema), []
        start = HEADER_BYTES + len(reader.lead)
        if reader.lead:
            rows = self._records(rows, messages, reader.lead, where)
        group = messages if len(rows) == len(messages) else [messages[i] for i in rows]

        def rest(numbers: list[int] | None) -> Decoded:
            left = rows if numbers is None else [rows[i] for i in numbers]
            return self._rest(schema_id, reader, left, messages, where)

        done = with_rest(reader.by_kernel(group, start), len(group), rest)
        return done.batch, [rows[i] for i in done.rows.tolist()]

    def _records(
        self, rows: list[int], messages: Sequence[bytes], lead: bytes, where: Callable[[int], str]
    ) -> list[int]:
        """Those messages of a union that begin with its record's branch; the others are bad records."""
        end = HEADER_BYTES + len(lead)
        kept = [i for i in rows if messages[i][HEADER_BYTES:end] == lead]
        for i in sorted(set(rows) - set(kept)):
            got = f"the bytes {bytes(messages[i][HEADER_BYTES:end]).hex() or 'of the header alone'}: null, or no branch"
            self._bad(messages[i], where(i), "a record behind the header", got, _UNFIT)
        return kept

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

        start = HEADER_BYTES + len(reader.lead)
        bodies = [bytes(messages[i][start:]) for i in rows]
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
        what = "the message is no Avro record of the schema registry"
        self.reject(RecordError(what, expected=expected, got=got, remedy=remedy), bytes(message), place)

    def reject(self, error: RecordError, message: bytes, place: str) -> None:
        """Report a bad record. ``error`` has no place yet."""
        error.where, error.remedy = place, f"{error.remedy}, or set 'on-error'"
        self._bad_record(error, message, place)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        """Records of one schema, one behind another, each with its header."""
        return self.decode(self.pieces(data), lambda i: f"{where}, record {i + 1}")

    def pieces(self, data: bytes) -> list[bytes]:
        """The messages of ``data``, of one schema, one behind another. What follows a broken one is the last piece."""
        try:
            reader = self._reader(schema_id_of(data)) if data else None
        except (ValueError, UnknownSchemaError):
            reader = None
        pieces, at = [], 0
        while reader is not None and data[at : at + HEADER_BYTES] == data[:HEADER_BYTES] != b"":
            end = reader.end(data, at + HEADER_BYTES + len(reader.lead))
            pieces.append(data[at:end])
            at = end
        if at < len(data):
            pieces.append(data[at:])
        return pieces


_HEADER = "a zero byte, the schema's id in four bytes, and an Avro record"
_NO_HEADER = "read messages without the header with 'format' = 'avro'"
_UNFIT = "declare the columns as the writer has them"


class AvroConfluentEncoder(Encoder):
    """Rows as records of one schema.

    ``in_union``: where the user gives no schema, that of a message is a union of null and the record.
    """

    #: Whether a record has the columns of a row and nothing else.
    plain_rows = True

    def __init__(self, columns: Schema, registered: Registered, *, in_union: bool = False) -> None:
        self._columns = columns
        self._where = registered.where
        self._registry = registered.registry
        self._register = registered.settings.register
        self._schema = registered.written(columns, in_union=in_union)
        self._subject = registered.subject
        self._header: bytes | None = None
        self._kernel: RowKernel | None = None
        self._record = record_in(self._schema, registered.where)

    @cached_property
    def _numbers(self) -> Node:
        """The schema with numbers for times."""
        return Writer(self._record.schema, self._columns, self._where).plain

    @cached_property
    def _plain(self) -> Any:
        """The schema as fastavro takes it, with numbers for times."""
        import fastavro

        return fastavro.parse_schema(self._numbers)

    async def open(self) -> None:
        text = json.dumps(self._schema, ensure_ascii=False)
        schema_id = await self._registry.id_of(self._subject, text, _KIND, register=self._register)
        self._header = header(schema_id) + self._record.lead
        if self.plain_rows:
            self._kernel = row_kernel_of(self._numbers, self._columns, self._header)

    def records(self, batch: Batch) -> list[dict[str, Any]]:
        """What is written for each row, in the form that Avro's writer takes."""
        from penstock.formats.avro.columns import to_records

        return to_records(batch)

    def encode(self, batch: Batch) -> list[bytes]:
        from penstock.formats.avro.messages import BROKEN, binary

        if self._header is None:
            raise ConnectorError(
                "the schema of the sink was not registered",
                expected="a connector that awaits Encoder.open before Encoder.encode",
                got="an encoder that was not opened",
                where=f"subject '{self._subject}', {self._registry.where}",
                remedy="report it to the author of the connector",
            )
        if self._kernel is not None and (made := self._kernel.encode(batch)) is not None:
            return made
        out, record = [], None
        try:
            for record in self.records(batch):
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
