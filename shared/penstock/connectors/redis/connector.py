"""Checks of the connector ``redis``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.redis.client import check_server
from penstock.connectors.redis.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.redis.shape import Shape
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, UnsupportedError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence


class RedisConnector(DeclaredConnector):
    """The connector ``redis``: lookups and sinks of keys, sources and sinks of streams."""

    name = "redis"
    takes_format = True
    location = ("key", "data-type")
    metadata = METADATA
    lookup_caches = ("NONE", "PARTIAL", "FULL")

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        shape = Shape(table)
        self._check_format(table, shape)
        if (shape.options["scan.startup.mode"] == "id") != (shape.options["scan.startup.id"] is not None):
            raise _unfit(
                "'scan.startup.id' belongs to 'scan.startup.mode' = 'id'", "both or neither", "one of them"
            )
        if shape.type in ("hash", "string") and not shape.template.columns:
            raise _unfit(
                f"rows of 'data-type' = '{shape.type}' need a key with columns",
                "'key' = 'customer:{id}'",
                repr(shape.template.text),
            )
        if role == "source" and shape.type == "stream" and shape.template.columns:
            raise _unfit(
                "a stream that is read has one key",
                "'key' = 'orders' or 'orders;returns'",
                repr(shape.template.text),
            )
        if shape.score is not None and not isinstance(
            shape.schema.types[shape.score], (*t.INTEGERS, t.FloatType, t.DoubleType)
        ):
            raise _unfit(
                "the score of a sorted set is a number",
                "an integer, FLOAT or DOUBLE",
                str(shape.schema.types[shape.score]),
            )
        if role == "sink":
            self._check_sink(table, shape)
        check_server(shape.options["url"])

    def _check_format(self, table: TableInfo, shape: Shape) -> None:
        if shape.type_has_fields and shape.formatted:
            raise _unfit(
                f"'data-type' = '{shape.type}' takes no 'format'",
                "a field for each column",
                f"'format' = '{table.options['format']}'",
            )

    def _check_sink(self, table: TableInfo, shape: Shape) -> None:
        if shape.type == "stream" and ";" in shape.options["key"]:
            raise _unfit("a sink writes to one stream", "'key' = 'orders'", repr(shape.options["key"]))
        if not shape.type_has_fields:
            shape.encoder()
        wanted = shape.key_columns()
        if not table.primary_key:
            return
        if wanted is None:
            raise _unfit(
                f"'data-type' = '{shape.type}' takes inserts alone",
                "no PRIMARY KEY",
                ", ".join(table.primary_key),
            )
        if set(table.primary_key) != wanted:
            raise _unfit(
                f"the primary key of 'data-type' = '{shape.type}' is what tells its rows apart",
                "PRIMARY KEY (" + ", ".join(sorted(wanted)) + ")", ", ".join(table.primary_key),
            )  # fmt: skip

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.bounded.mode") != "unbounded")

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert") if Shape(table).key_columns() is not None else ("append",)

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.redis.source import RedisEnumerator

        _only_streams(table)
        return RedisEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.redis.source import RedisReader

        _only_streams(table)
        return RedisReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.redis.lookup import RedisLookup

        return RedisLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.redis.sink import RedisWriter

        return RedisWriter(table)


def _only_streams(table: TableInfo) -> None:
    kind = OPTIONS.read_one(table.options, "data-type")
    if kind != "stream":
        raise UnsupportedError(
            f"reading all keys of 'data-type' = '{kind}'",
            expected="'data-type' = 'stream', or a lookup join (FOR SYSTEM_TIME AS OF a processing time)",
            where=OWNER,
            remedy="join with the table instead",
        )


def _unfit(what: str, expected: str, got: str) -> ConnectorError:
    return ConnectorError(what, expected=expected, got=got, where=OWNER, remedy="correct the table's options")
