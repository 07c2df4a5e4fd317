"""``debezium-avro-confluent``: records of Debezium as Avro, behind the id of a schema that a registry holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.formats.avro.confluent import (
    AvroConfluentDecoder,
    AvroConfluentEncoder,
    Registered,
    RegisteredAvroFormat,
)
from penstock.formats.changelog.debezium import DebeziumDialect
from penstock.formats.changelog.decode import ChangelogDecoder
from penstock.formats.changelog.dialect import TEXT
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from penstock.errors import RecordError
    from penstock.formats.api import FormatContext
    from penstock.formats.avro.schema import Node
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

#: Debezium's names of times that have no logical type of Avro's own → that type.
_TIMES = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
}
_ROWS = ("before", "after")


class _AvroDialect(DebeziumDialect):
    """Records as ``debezium-json`` has them, but for what only JSON says."""

    metadata = {k: v for k, v in DebeziumDialect.metadata.items() if k not in ("schema", "source.properties")}


def envelope(columns: Schema) -> Schema:
    """The record that a sink of a table writes: Flink's, with its nullable fields."""
    row = t.RowType(columns.fields)
    return t.Schema((t.Field("before", row), t.Field("after", row), t.Field("op", TEXT)))


class DebeziumAvroFormat(RegisteredAvroFormat):
    name = "debezium-avro-confluent"
    changelog = True
    metadata: Mapping[str, t.LogicalType] = _AvroDialect.metadata

    def check_schema(self, schema: Schema, registered: Registered) -> None:
        registered.written(envelope(schema), in_union=True)

    def decoder(self, ctx: FormatContext) -> DebeziumAvroDecoder:
        return DebeziumAvroDecoder(ctx, Registered(self.name, ctx.options))

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> _Encoder:
        return _Encoder(envelope(schema), Registered(self.name, options), in_union=True)


class _Records(AvroConfluentDecoder):
    """Records as Avro, with the numbers of those that are none."""

    def __init__(self, ctx: FormatContext, registered: Registered) -> None:
        super().__init__(ctx, registered)
        self.rejected: dict[int, Exception] = {}

    def read(self, messages: Sequence[bytes]) -> Batch:
        self.rejected = {}
        return self.decode(messages, str)

    def reject(self, error: RecordError, message: bytes, place: str) -> None:
        self.rejected[int(place)] = error

    def read_as(self, schema: Node) -> Node:
        rows = {f.name: f.type for f in self._schema.fields if f.name in _ROWS}
        return with_times(schema, rows)


class DebeziumAvroDecoder(ChangelogDecoder):
    """Rows of the projection and then the metadata columns of ``ctx``."""

    fetches = True

    def __init__(self, ctx: FormatContext, registered: Registered) -> None:
        made: list[_Records] = []

        def records(inner: FormatContext) -> _Records:
            made.append(_Records(inner, registered))
            return made[0]

        dialect = _AvroDialect({"schema-include": False}, registered.where)
        super().__init__(ctx, dialect, ignores_errors=False, records=records, is_text=False)
        (self._avro,) = made

    def prepare(self, messages: Sequence[bytes]) -> Coroutine[Any, Any, None] | None:
        return self._avro.prepare(messages)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        return self.decode(self._avro.pieces(data), lambda i: f"{where}, record {i + 1}")


class _Encoder(AvroConfluentEncoder):
    """One record for each row: an old row (−U) as a deletion, a new one (+U) as an insertion, as Flink writes them."""

    plain_rows = False

    def records(self, batch: Batch) -> list[dict[str, Any]]:
        signs = batch.signs()
        added = np.ones(len(batch), np.bool_) if signs is None else signs > 0
        return [
            {"before": None, "after": row, "op": "c"} if new else {"before": row, "after": None, "op": "d"}
            for row, new in zip(super().records(batch), added.tolist(), strict=True)
        ]


def with_times(schema: Node, rows: Mapping[str, t.LogicalType]) -> Node:
    """Debezium's schema with Avro's logical types for those columns of ``rows`` (``before``, ``after``) that are times.

    Debezium writes such a time as a number, and says in ``connect.name`` alone what it means.
    """
    if isinstance(schema, list):
        return [with_times(branch, rows) for branch in schema]
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return schema
    fields = [
        {**f, "type": _row_with_times(f["type"], row)} if (row := rows.get(f["name"])) is not None else f
        for f in schema["fields"]
    ]
    return {**schema, "fields": fields}


def _row_with_times(node: Node, row: t.LogicalType) -> Node:
    # A name refers to the definition in the other of the two rows, which has the same columns.
    if isinstance(node, list):
        return [_row_with_times(branch, row) for branch in node]
    if not isinstance(node, dict) or node.get("type") != "record" or not isinstance(row, t.RowType):
        return node
    times = {f.name for f in row.fields if isinstance(f.type, (*t.TIMESTAMPS, t.DateType, t.TimeType))}
    fields = [{**f, "type": _time(f["type"])} if f["name"] in times else f for f in node["fields"]]
    return {**node, "fields": fields}


def _time(node: Node) -> Node:
    if isinstance(node, list):
        return [_time(branch) for branch in node]
    if (
        isinstance(node, dict)
        and "logicalType" not in node
        and (logical := _TIMES.get(node.get("connect.name", "")))
    ):
        return {**node, "logicalType": logical}
    return node
