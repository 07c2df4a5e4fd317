"""Turns messages into rows: values, keys and metadata, each in its own format."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.connectors.kafka.blocks import keys_of, offsets_of, times_of, values_of
from penstock.connectors.kafka.settings import METADATA, VALUE
from penstock.connectors.kafka.stored import StoredMessage, told_of
from penstock.connectors.placed import PlacedMessages
from penstock.errors import ConnectorError, nearest
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.formats.by_kernel import JoinedMessages
from penstock.types import Batch, Column, Field, RowKind, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from confluent_kafka import Message

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.formats.api import Decoder, Encoder, Format

    BadRecord = Callable[[Exception, bytes | None, str], None]

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class Part:
    """A key or value: its format, the table's columns in it, their names there, and the format's options."""

    format: Format
    columns: tuple[int, ...]
    schema: Schema
    options: Mapping[str, str]

    def check(self, *, written: bool) -> None:
        """ConnectorError or UnsupportedError unless messages can be read, or written, as the table says."""
        self.format.check(self.schema, self.options)
        if written:
            self.encoder()

    def encoder(self) -> Encoder:
        """An encoder of the part's columns."""
        return self.format.encoder(self.schema, self.options)

    def decoder(
        self,
        wanted: Sequence[int],
        bad_record: BadRecord,
        metadata: Sequence[str] = (),
        unread: Mapping[str, Sequence[str]] | None = None,
    ) -> Decoder:
        """A decoder of the table's columns ``wanted``, which must be columns of the part, followed by the
        format's metadata columns (``metadata``). ``unread``: as of ``FormatContext``."""
        projection = [self.columns.index(c) for c in wanted]
        ctx = FormatContext(
            self.schema, projection, self.options, bad_record, metadata=metadata, unread=unread or {}
        )
        return self.format.decoder(ctx)


def _options_of(
    read: Mapping[str, Any], options: Mapping[str, str], prefix: str, format_: Format
) -> Mapping[str, str]:
    """The options of a format under the format's own names: without ``key.`` or ``value.``."""
    name = format_.name
    found = {k: v for k, v in options.items() if k.startswith(f"{name}.")} if prefix == "value." else {}
    found |= {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(f"{prefix}{name}.")}
    topic = read["topic"]
    one = topic and ";" not in topic
    return format_.topic_options(found, topic, prefix.rstrip(".")) if one else found


def parts_of(
    table: TableInfo, read: Mapping[str, Any], keys: Sequence[int], owner: str
) -> tuple[Part | None, Part]:
    """The key's and the value's part. ``read``: the options, typed; ``keys``: columns of the key."""
    options, schema = table.options, table.schema
    where = f"{owner}, key" if read["key.format"] else owner
    key = None
    prefix = read["key.fields-prefix"]
    if read["key.format"]:
        key_format = message_format(read["key.format"], where=where)
        if key_format.changelog:
            raise ConnectorError(
                f"'key.format' = '{key_format.name}' is a format of changes",
                expected="a format of rows: json, csv, raw, avro",
                got=f"'{key_format.name}'",
                where=owner,
                remedy="choose it for values ('value.format')",
            )
        fields = []
        for i in keys:
            field = schema.fields[i]
            if not field.name.startswith(prefix):
                raise ConnectorError(
                    f"key column '{field.name}' does not begin with 'key.fields-prefix'",
                    expected=f"a name that begins with '{prefix}'",
                    got=repr(field.name),
                    where=owner,
                )
            fields.append(Field(field.name.removeprefix(prefix), field.type))
        key_options = _options_of(read, options, "key.", key_format)
        key = Part(key_format, tuple(keys), Schema(tuple(fields)), key_options)
    value_format = message_format(read["value.format"] or options.get("format"), where=owner)
    left_out = set(keys) if read["value.fields-include"] == "EXCEPT_KEY" else set()
    columns = tuple(i for i in range(len(schema)) if i not in left_out)
    value_options = _options_of(read, options, "value.", value_format)
    return key, Part(value_format, columns, schema.select(columns), value_options)


def key_columns(table: TableInfo, names: str | None, owner: str) -> tuple[int, ...]:
    """The positions of the columns that ``key.fields`` names."""
    found = []
    for name in (n.strip() for n in (names or "").split(";")):
        if not name:
            continue
        if name not in table.schema.names:
            raise ConnectorError(
                f"option 'key.fields' names no column of the table: '{name}'",
                expected="one of " + ", ".join(table.schema.names),
                got=repr(name),
                where=owner,
                remedy=nearest(name, table.schema.names),
            )
        found.append(table.schema.names.index(name))
    return tuple(found)


class MessageDecoder:
    """Messages of one partition → a batch: the projection's columns, then metadata columns.

    A message without a value (a tombstone) is no row of an append-only table. ``upserts``: it is a −D of the
    message's key, with NULL in the columns that the key lacks.
    """

    def __init__(self, ctx: SourceContext, key: Part | None, value: Part, *, upserts: bool = False) -> None:
        self._ctx = ctx
        self._upserts = upserts
        told = value.format.metadata
        self._told = [name.removeprefix(VALUE) for name in ctx.metadata if name.startswith(VALUE)]
        fields = [
            Field(name, told[name.removeprefix(VALUE)] if name.startswith(VALUE) else METADATA[name])
            for name in ctx.metadata
        ]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *fields))
        # A column that both hold is taken from the value, as in Flink.
        self._in_value = [c for c in ctx.projection if c in value.columns]
        self._in_key = [c for c in ctx.projection if c not in value.columns]
        self._of_deletes = [c for c in ctx.projection if upserts and key is not None and c in key.columns]
        self._key, self._value = key, value
        self._current: PlacedMessages[Message] = PlacedMessages(_where)
        #: Messages of this batch that were rejected, as far as their places are known.
        self._rejected: list[Message] = []
        self._loud = self._decoders(self._refused)
        self._quiet = self._decoders(lambda *_: None)
        self._fetches = self._loud.fetches
        self._places = [
            (0, self._in_value.index(c)) if c in value.columns else (1, self._in_key.index(c))
            for c in ctx.projection
        ]

    def _decoders(self, bad_record: BadRecord) -> _Decoders:
        key = self._key
        return _Decoders(
            self._value.decoder(self._in_value, bad_record, self._told, self._ctx.pushed.get("unread")),
            key.decoder(self._in_key, bad_record) if key is not None and self._in_key else None,
            key.decoder(self._of_deletes, bad_record) if key is not None and self._of_deletes else None,
        )

    def _refused(self, error: Exception, raw: bytes | None, where: str) -> None:
        """Report a message that cannot be read, with what is needed to read it again."""
        found = self._current.at(where.removesuffix(", key"))
        if found is not None:
            self._rejected.append(found)
        if found is None or self._ctx.bad_message is None:
            self._ctx.bad_record(error, raw, where)
        else:
            self._ctx.bad_message(error, raw, where, told_of(found))

    def prepare(self, messages: Sequence[Message]) -> Coroutine[Any, Any, None] | None:
        """A coroutine that must be awaited before ``decode`` can take these messages; None: there is nothing
        to wait for."""
        if not self._fetches:
            return None
        loud = self._loud
        wanted = [loud.value.prepare([v for v in values_of(messages) if v is not None])]
        if (keys := loud.key or loud.deletes) is not None:
            wanted.append(keys.prepare(keys_of(messages)))
        left = [w for w in wanted if w is not None]
        return _all(left) if left else None

    async def replay(self, told: Sequence[Mapping[str, Any]]) -> Batch:
        """The rows of messages of dead letters, as ``bad_message`` got them."""
        messages: Any = [StoredMessage(message) for message in told]
        missing = self.prepare(messages)
        if missing is not None:
            await missing
        return self.decode(messages)

    def decode(self, messages: Sequence[Message]) -> Batch:
        """The rows of messages, with the columns of key, value and metadata."""
        self._current.are(messages)
        self._rejected.clear()
        values = values_of(messages)
        if not _filled(values) and not self._upserts:  # some are empty, or none at all
            messages = [m for m in messages if m.value() is not None]
            values = [m.value() for m in messages]
        whole = self._decode(messages, values, self._loud)
        if whole is not None:
            return whole
        # Some messages were rejected and reported. The rest is decoded again, so that key, value and metadata stay
        # together.
        rejected = set(map(_where, self._rejected))
        rest = [m for m in messages if _where(m) not in rejected]
        whole = self._decode(rest, values_of(rest), self._quiet)
        if whole is not None:
            return whole
        rows = [self._decode([m], [m.value()], self._quiet) for m in rest]
        kept = [row for row in rows if row is not None]
        return Batch.concat(kept) if kept else Batch.empty(self._schema)

    def _decode(
        self, messages: Sequence[Message], values: Sequence[bytes | None], decoders: _Decoders
    ) -> Batch | None:
        """The rows of the messages; None if a message was rejected."""
        if _filled(values):
            return self._rows(messages, cast("Sequence[bytes]", values), decoders)
        gone = np.array([value is None for value in values], np.bool_)
        if not gone.any():
            return self._rows(messages, [value or b"" for value in values], decoders)
        there, dead = np.flatnonzero(~gone), np.flatnonzero(gone)
        rows = self._rows(
            [messages[i] for i in there.tolist()], [values[i] or b"" for i in there.tolist()], decoders
        )
        deletions = self._deletions([messages[i] for i in dead.tolist()], decoders)
        if rows is None or deletions is None:
            return None
        order = np.empty(len(messages), np.int64)
        order[np.concatenate((there, dead))] = np.arange(len(messages))
        return Batch.concat([rows, deletions]).take(order)

    def _rows(
        self, messages: Sequence[Message], values: Sequence[bytes], decoders: _Decoders
    ) -> Batch | None:
        rows, of = decoders.value.decode_numbered(values, lambda i: _where(messages[i]))
        keys = None if decoders.key is None else _decoded_keys(decoders.key, messages)
        if keys is not None and len(keys) != len(messages):
            return None
        if of is not None:
            messages = [messages[i] for i in of.tolist()]
            keys = None if keys is None else keys.take(of)
        if len(rows) != len(messages):
            return None
        parts = (rows, rows if keys is None else keys)
        columns = [parts[side].columns[i] for side, i in self._places]
        told = rows.columns[len(self._in_value) :]
        return self._batch(messages, columns, told).with_kinds(rows.kinds)

    def _deletions(self, messages: Sequence[Message], decoders: _Decoders) -> Batch | None:
        assert decoders.deletes is not None, "an upsert source was planned without its key"
        keys = _decoded_keys(decoders.deletes, messages)
        if len(keys) != len(messages):
            return None
        types = self._schema.types
        columns = [
            keys.columns[self._of_deletes.index(c)]
            if c in self._of_deletes
            else Column.nulls(types[i], len(keys))
            for i, c in enumerate(self._ctx.projection)
        ]
        return self._batch(messages, columns).with_kinds(np.full(len(keys), RowKind.DELETE, np.uint8))

    def _batch(
        self, messages: Sequence[Message], columns: list[Column], told: Sequence[Column] = ()
    ) -> Batch:
        """``told``: the format's metadata columns, in the order of ``_told``."""
        times = times_of(messages)
        of_format = iter(told)
        columns += [
            next(of_format) if name.startswith(VALUE) else _metadata(name, messages, times)
            for name in self._ctx.metadata
        ]
        return Batch(self._schema, columns, times=times, num_rows=len(messages))


def _filled(values: Sequence[bytes | None]) -> bool:
    """Whether none is absent or empty."""
    return isinstance(values, JoinedMessages) or all(values)


def _where(message: Message) -> str:
    return f"topic '{message.topic()}', partition {message.partition()}, offset {message.offset()}"


async def _all(wanted: list[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*wanted)


def _decoded_keys(decoder: Decoder, messages: Sequence[Message]) -> Batch:
    return decoder.decode(keys_of(messages), lambda i: f"{_where(messages[i])}, key")


@dataclass(frozen=True, slots=True)
class _Decoders:
    """The decoders of values, of the columns that only keys hold, and of the keys of deletions."""

    value: Decoder
    key: Decoder | None
    deletes: Decoder | None

    @property
    def fetches(self) -> bool:
        return any(d is not None and d.fetches for d in (self.value, self.key, self.deletes))


def _metadata(name: str, messages: Sequence[Message], times: np.ndarray) -> Column:
    kind = METADATA[name]
    match name:
        case "topic":
            return Column(kind, pa.array([m.topic() for m in messages], pa.string()))
        case "partition":
            return Column(kind, np.array([m.partition() for m in messages], np.int32))
        case "offset":
            return Column(kind, offsets_of(messages))
        case "timestamp":
            return Column(kind, times)
        case "timestamp-type":
            words = [_TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages]
            return Column(kind, pa.array(words, pa.string()))
        case "leader-epoch":
            return Column.of(kind, [m.leader_epoch() for m in messages])
    # A header may occur twice; the MAP keeps the last, as in Flink.
    return Column.of(kind, [list(dict(m.headers() or []).items()) for m in messages])
