"""The connector of database servers, as helper processes find it. They are needed because the drivers block
and MySQL's driver is pure Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.jdbc.connector import JdbcConnector, exactly_once, truncating
from penstock.connectors.row_changes import row_change

if TYPE_CHECKING:
    from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo


class JdbcServerConnector(JdbcConnector):
    """``jdbc`` for PostgreSQL and MySQL or MariaDB."""

    runs = "helper"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.jdbc.server_source import ServerEnumerator

        return ServerEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.jdbc.server_source import ServerReader

        return ServerReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.jdbc.server_source import ServerLookup

        return ServerLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.jdbc.server_sink import (
            ChangingServer,
            ExactlyOnceWriter,
            ServerWriter,
            TruncatingServer,
        )

        if truncating(table):
            return TruncatingServer(table)
        change = row_change(table.options)
        if change is not None:
            return ChangingServer(table, change)
        return ExactlyOnceWriter(table) if exactly_once(table) else ServerWriter(table)
