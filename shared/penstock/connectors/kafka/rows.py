"""Messages to rows: values, keys and metadata, each in its own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.connectors.kafka.settings import METADATA
from penstock.errors import ConnectorError, nearest
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Column, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Message

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.formats.api import Decoder, Format

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class Part:
    """A key or value: its format, the table's columns in it, their names there, and the format's options."""

    format: Format
    columns: tuple[int, ...]
    schema: Schema
    options: Mapping[str, str]

    def check(self) -> None:
        self.format.check(self.schema, self.options)


def _options_of(options: Mapping[str, str], prefix: str, name: str) -> dict[str, str]:
    """Options of the format ``name`` as the format spells them: without ``key.`` or ``value.``."""
    found = {k: v for k, v in options.items() if k.startswith(f"{name}.")} if prefix == "value." else {}
    return found | {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(f"{prefix}{name}.")}


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
        key_options = _options_of(options, "key.", key_format.name)
        key = Part(key_format, tuple(keys), Schema(tuple(fields)), key_options)
    value_format = message_format(read["value.format"] or options.get("format"), where=owner)
    left_out = set(keys) if read["value.fields-include"] == "EXCEPT_KEY" else set()
    columns = tuple(i for i in range(len(schema)) if i not in left_out)
    value_options = _options_of(options, "value.", value_format.name)
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

    A message without a value (a tombstone) is no row of an append-only table.
    """

    def __init__(self, ctx: SourceContext, key: Part | None, value: Part) -> None:
        self._ctx = ctx
        fields = [Field(name, METADATA[name]) for name in ctx.metadata]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *fields))
        # A column that both hold is taken from the value, as in Flink.
        in_key = [c for c in ctx.projection if c not in value.columns]
        self._value = _Side(value, [c for c in ctx.projection if c in value.columns])
        self._key = _Side(key, in_key) if key is not None and in_key else None
        self._loud = self._decoders(ctx.bad_record)
        self._quiet = self._decoders(lambda *_: None)
        self._places = [
            (0, self._value.wanted.index(c)) if c in value.columns else (1, in_key.index(c))
            for c in ctx.projection
        ]

    def _decoders(self, bad_record: Callable[[Exception, bytes | None, str], None]) -> list[Decoder]:
        sides = [self._value] if self._key is None else [self._value, self._key]
        return [side.decoder(bad_record) for side in sides]

    def decode(self, messages: Sequence[Message]) -> Batch:
        found = [m.value() for m in messages]
        values = [v for v in found if v is not None]
        if len(values) < len(found):
            messages = [m for m, v in zip(messages, found, strict=True) if v is not None]
        whole = self._decode(messages, values, self._loud)
        if whole is not None:
            return whole
        # Some were rejected, and reported: each alone, to keep key, value and metadata together.
        rows = [self._decode([m], [v], self._quiet) for m, v in zip(messages, values, strict=True)]
        kept = [row for row in rows if row is not None]
        return Batch.concat(kept) if kept else Batch.empty(self._schema)

    def _decode(
        self, messages: Sequence[Message], values: list[bytes], decoders: list[Decoder]
    ) -> Batch | None:
        """None when one of them was rejected."""

        def where(i: int) -> str:
            return f"topic '{messages[i].topic()}', partition {messages[i].partition()}, offset {messages[i].offset()}"

        parts = [decoders[0].decode(values, where)]
        if len(decoders) > 1:
            keys = [m.key() or b"" for m in messages]
            parts.append(decoders[1].decode(keys, lambda i: f"{where(i)}, key"))
        if any(len(part) != len(messages) for part in parts):
            return None
        times = np.array([m.timestamp()[1] for m in messages], np.int64) * 1000
        columns = [parts[side].columns[i] for side, i in self._places]
        columns += [_metadata(name, messages, times) for name in self._ctx.metadata]
        return Batch(self._schema, columns, times=times, num_rows=len(messages))


@dataclass(slots=True)
class _Side:
    part: Part
    #: Columns of the table to deliver, those of this side.
    wanted: list[int]
    ctx: Any = None

    def decoder(self, bad_record: Callable[[Exception, bytes | None, str], None]) -> Decoder:
        part = self.part
        projection = [part.columns.index(c) for c in self.wanted]
        return part.format.decoder(FormatContext(part.schema, projection, part.options, bad_record))


def _metadata(name: str, messages: Sequence[Message], times: np.ndarray) -> Column:
    kind = METADATA[name]
    match name:
        case "topic":
            return Column(kind, pa.array([m.topic() for m in messages], pa.string()))
        case "partition":
            return Column(kind, np.array([m.partition() for m in messages], np.int32))
        case "offset":
            return Column(kind, np.array([m.offset() for m in messages], np.int64))
        case "timestamp":
            return Column(kind, times)
        case "timestamp-type":
            words = [_TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages]
            return Column(kind, pa.array(words, pa.string()))
        case "leader-epoch":
            return Column.of(kind, [m.leader_epoch() for m in messages])
    # A header may come twice; a MAP keeps the last, as Flink's does.
    return Column.of(kind, [list(dict(m.headers() or []).items()) for m in messages])
