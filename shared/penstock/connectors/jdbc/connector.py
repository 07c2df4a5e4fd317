"""Options and checks of the ``jdbc`` connector. SQLite is read and written with Python's own driver;
PostgreSQL, MySQL and MariaDB are reached in helper processes. Only Spark reaches other databases, with a Java
driver that the job names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import (
    Connector,
    LookupSource,
    Runs,
    SinkWriter,
    SourceEnumerator,
    SourceReader,
    TableInfo,
)
from penstock.connectors.jdbc.database import PREFIX, check_table, check_types, database_path
from penstock.connectors.jdbc.servers import is_server
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.row_changes import ChangedBy, row_change
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def only_spark(options: Mapping[str, str]) -> bool:
    """Whether Spark reaches the database with the Java driver that the table names."""
    url = options.get("url", "").lower()
    return (
        not is_server(options)
        and "driver" in options
        and url.startswith("jdbc:")
        and not url.startswith(PREFIX)
    )


def exactly_once(table: TableInfo) -> bool:
    """Whether the sink of ``table`` writes exactly once."""
    return bool(OPTIONS.read_one(table.options, "sink.delivery-guarantee") == "exactly-once")


def truncating(table: TableInfo) -> bool:
    """Whether the sink of ``table`` is TRUNCATE TABLE's, which deletes all rows."""
    return bool(OPTIONS.read_one(table.options, "sink.truncate"))


def _hosted() -> Connector:
    """The connector for database servers, which runs in helper processes."""
    from penstock.connectors.registry import get_connector

    return get_connector("python:penstock.connectors.jdbc.server_parts:JdbcServerConnector")


def _reached_here(table: TableInfo) -> None:
    if only_spark(table.options) and not is_server(table.options):
        raise UnsupportedError(
            "this database on the streaming engine",
            expected=f"{PREFIX}/path/to/file.db, jdbc:postgresql://…, jdbc:mysql://… or jdbc:mariadb://…",
            got=table.options["url"].partition("?")[0],
            where="connector 'jdbc', option 'url'",
            remedy="run the job with execution.engine = spark",
        )


class JdbcConnector(DeclaredConnector):
    """The connector ``jdbc``: source, sink and lookup of a database table."""

    name = "jdbc"
    runs: Runs = "native"
    location = ("table-name", "scan.partition.column")
    truncates = True
    lookup_caches = ("NONE", "PARTIAL", "FULL")

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        if is_server(table.options):
            self._check_server(table, role)
        elif only_spark(table.options):
            check_types(table.schema)
        elif exactly_once(table):
            raise ConnectorError(
                "'sink.delivery-guarantee' = 'exactly-once' of a SQLite database",
                expected="at-least-once; with a primary key a repeated write changes nothing",
                got="'exactly-once'",
                where="connector 'jdbc'",
                remedy="remove the option, or write to PostgreSQL, MySQL or MariaDB",
            )
        else:
            check_table(table.schema, table.options)

    def _check_server(self, table: TableInfo, role: str) -> None:
        from penstock.connectors.jdbc.server_source import partitions
        from penstock.connectors.jdbc.servers import check_server_table, has_client, server_of

        check_types(table.schema)
        if only_spark(table.options) and not has_client(server_of(table.options)):
            return  # Spark has a driver of its own
        partitions(OPTIONS.read(table.options))
        check_server_table(table.schema, table.options, transactional=role == "sink" and exactly_once(table))

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "url" not in options or only_spark(options) or is_server(options):
            return options
        from penstock.connectors.filesystem.paths import absolute_path

        path = database_path(options["url"])
        return {
            **options,
            "url": "jdbc:sqlite:" + absolute_path(path, where=f"{where}, option 'url'"),
        }

    def is_bounded(self, table: TableInfo) -> bool:
        return True

    def estimated_bytes(self, table: TableInfo) -> int | None:
        url = table.options["url"]
        if only_spark(table.options) or is_server(table.options):
            return None
        try:
            return os.path.getsize(database_path(url))
        except OSError:  # reading the table says what is wrong
            return None

    def source_guarantee(self, table: TableInfo) -> str:
        return "exactly-once while the table does not change"

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once" if exactly_once(table) else "at-least-once"

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "upsert")

    def row_changes(self, table: TableInfo) -> ChangedBy | None:
        if only_spark(table.options):
            raise UnsupportedError(
                "DELETE and UPDATE through Spark's JDBC",
                expected="a url of PostgreSQL, MySQL, MariaDB or SQLite",
                got=table.options["url"].partition("?")[0],
                where="connector 'jdbc'",
                remedy="change the rows in the database",
            )
        return ChangedBy()

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.jdbc.source import JdbcEnumerator

        _reached_here(table)
        if is_server(table.options):
            return _hosted().enumerator(table)
        return JdbcEnumerator()

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.jdbc.source import JdbcReader

        if is_server(table.options):
            return _hosted().reader(table)
        return JdbcReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.jdbc.lookup import JdbcLookup

        _reached_here(table)
        if is_server(table.options):
            return _hosted().lookup(table)
        return JdbcLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.jdbc.changing import ChangingFile
        from penstock.connectors.jdbc.sink import JdbcWriter
        from penstock.connectors.jdbc.truncating import TruncatingFile

        _reached_here(table)
        if is_server(table.options):
            return _hosted().writer(table)
        change = row_change(table.options)
        if change is not None:
            return ChangingFile(table, change)
        return TruncatingFile(table) if truncating(table) else JdbcWriter(table)
