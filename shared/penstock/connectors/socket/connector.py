"""Options and checks of the connector ``socket``."""

from __future__ import annotations

from typing import Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.simple import DeclaredConnector
from penstock.connectors.socket.settings import OPTIONS, OWNER, address
from penstock.errors import ConnectorError
from penstock.formats import message_format


class SocketConnector(DeclaredConnector):
    """The connector ``socket``: source and sink over one TCP connection, in which Penstock is the client."""

    name = "socket"
    takes_format = True
    location = ("hostname", "port")
    nested_projection = True

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        format_ = message_format(table.format, where=OWNER)
        format_.check(table.schema, table.options)
        if role == "sink":
            format_.encoder(table.schema, table.options)
        if format_.name in (
            "avro",
            "protobuf",
            "arrow",
            "msgpack",
            "avro-confluent",
            "debezium-avro-confluent",
        ):
            raise ConnectorError(
                f"records of the format '{format_.name}' cannot be told apart in a stream of bytes",
                expected="a format whose records never hold the delimiter: json, csv, raw",
                got=f"'format' = '{format_.name}'",
                where=OWNER,
                remedy="choose another format, or a connector of messages",
            )

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.bounded.mode") == "end-of-stream")

    def source_guarantee(self, table: TableInfo) -> str:
        return "at-most-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.receiving import SplitsOnce

        place = address(table.options)
        return SplitsOnce(lambda _readers: [Split(place)])

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.socket.source import SocketReader

        return SocketReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.socket.sink import SocketWriter

        return SocketWriter(table)
