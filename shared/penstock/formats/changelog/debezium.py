"""``debezium-json``: records of Debezium, with the row before and after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.errors import ConnectorError
from penstock.formats.changelog.dialect import LONG, TEXT, Changes, Dialect, before_and_after, millis
from penstock.formats.changelog.format import ChangelogFormat
from penstock.options import Option, boolean
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

_LTZ = t.TimestampLtzType(3)
#: Metadata → the field of the record's ``source``.
_SOURCE: dict[str, tuple[str, t.LogicalType]] = {
    "source.timestamp": ("ts_ms", LONG),
    "source.database": ("db", TEXT),
    "source.schema": ("schema", TEXT),
    "source.table": ("table", TEXT),
}
_WORDS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}


class _Properties(msgspec.Struct):
    source: dict[str, Any] | None = None
    payload: _Payload | None = None


class _Payload(msgspec.Struct):
    source: dict[str, Any] | None = None


class _Described(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"null")


class DebeziumDialect(Dialect):
    metadata = {
        "schema": TEXT,
        "ingestion-timestamp": _LTZ,
        "source.timestamp": _LTZ,
        "source.database": TEXT,
        "source.schema": TEXT,
        "source.table": TEXT,
        "source.properties": t.MapType(t.VarCharType(nullable=False), TEXT),
    }
    more_options = (
        Option("debezium-json.schema-include", boolean, False, "Records are {\"schema\": …, \"payload\": …}."),
    )  # fmt: skip

    def fields(self, row: t.RowType, metadata: Sequence[str]) -> list[t.Field]:
        fields = [t.Field("before", row), t.Field("after", row), t.Field("op", TEXT)]
        if "ingestion-timestamp" in metadata:
            fields.append(t.Field("ts_ms", LONG))
        if wanted := [t.Field(*_SOURCE[key]) for key in metadata if key in _SOURCE]:
            fields.append(t.Field("source", t.RowType(tuple(wanted))))
        if self.options["schema-include"]:
            return [t.Field("payload", t.RowType(tuple(fields)))]
        return fields

    def opened(self, records: Batch) -> tuple[Batch, np.ndarray]:
        if not self.options["schema-include"]:
            return super().opened(records)
        payload = records.column("payload")
        assert isinstance(payload.type, t.RowType)
        schema = t.Schema(payload.type.fields)
        # A record without a payload is kept: it has no ``op``, which is an error.
        columns = [payload.child(i) for i in range(len(schema))]
        return Batch(schema, columns, num_rows=len(records)), np.ones(len(records), np.bool_)

    def changes(self, records: Batch, messages: Sequence[bytes]) -> Changes:
        return before_and_after(
            records, "op", _WORDS,
            "let the database log whole rows (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL)",
        )  # fmt: skip

    def metadata_column(self, key: str, records: Batch, messages: Sequence[bytes]) -> Column:
        match key:
            case "ingestion-timestamp":
                return millis(records.column("ts_ms"))
            case "schema":
                described = [msgspec.json.decode(m, type=_Described).schema for m in messages]
                texts = [bytes(schema).decode() for schema in described]
                return Column.of(TEXT, [None if text == "null" else text for text in texts])
            case "source.properties":
                return Column.of(self.metadata[key], [_properties(m) for m in messages])
        source = records.column("source")
        assert isinstance(source.type, t.RowType)
        name = _SOURCE[key][0]
        column = source.child(next(i for i, f in enumerate(source.type.fields) if f.name == name))
        return millis(column) if key == "source.timestamp" else column

    def check_writing(self) -> None:
        if self.options["schema-include"]:
            raise ConnectorError(
                "option 'debezium-json.schema-include' of a sink",
                expected="records without a schema",
                got="'debezium-json.schema-include' = 'true'",
                where=self.where,
                remedy="leave the option out of a table that is inserted into",
            )

    def written(self, added: bool, *, skips_nulls: bool) -> tuple[bytes, bytes]:
        if added:
            return b'{"after":' if skips_nulls else b'{"before":null,"after":', b',"op":"c"}'
        return b'{"before":', b',"op":"d"}' if skips_nulls else b',"after":null,"op":"d"}'


def _properties(message: bytes) -> list[tuple[str, str | None]] | None:
    record = msgspec.json.decode(message, type=_Properties)
    source = record.source if record.payload is None else record.payload.source
    if source is None:
        return None
    return [(name, value if value is None else _text(value)) for name, value in source.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class DebeziumJsonFormat(ChangelogFormat):
    name = "debezium-json"
    dialect_of = DebeziumDialect
