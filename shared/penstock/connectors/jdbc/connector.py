"""Options and checks of the ``jdbc`` connector. The database is SQLite, by Python's own driver; only Spark
reaches another database, with a Java driver that the job names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.jdbc.database import PREFIX, check_table, check_types, database_path
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def only_spark(options: Mapping[str, str]) -> bool:
    """Whether only Spark reaches the database."""
    url = options.get("url", "").lower()
    return "driver" in options and url.startswith("jdbc:") and not url.startswith(PREFIX)


def _reached_here(table: TableInfo) -> None:
    if only_spark(table.options):
        raise UnsupportedError(
            "this database on the streaming engine",
            expected=f"{PREFIX}/path/to/file.db",
            got=table.options["url"].partition("?")[0],
            where="connector 'jdbc', option 'url'",
            remedy="run the job with execution.engine = spark; lookups need SQLite",
        )


class JdbcConnector(DeclaredConnector):
    """The connector ``jdbc``: source, sink and lookup of a database table."""

    name = "jdbc"
    runs = "native"
    location = ("table-name", "scan.partition.column")
    lookup_caches = ("NONE", "PARTIAL", "FULL")

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        if only_spark(table.options):
            check_types(table.schema)
        else:
            check_table(table.schema, table.options)

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "url" not in options or only_spark(options):
            return options
        from penstock.connectors.filesystem.paths import absolute_path

        path = database_path(options["url"])
        return {
            **options,
            "url": "jdbc:sqlite:" + absolute_path(path, where=f"{where}, option 'url'"),
        }

    def is_bounded(self, table: TableInfo) -> bool:
        return True

    def source_guarantee(self, table: TableInfo) -> str:
        return "exactly-once while the table does not change"

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "upsert")

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.jdbc.source import JdbcEnumerator

        _reached_here(table)
        return JdbcEnumerator()

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.jdbc.source import JdbcReader

        return JdbcReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.jdbc.lookup import JdbcLookup

        _reached_here(table)
        return JdbcLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.jdbc.sink import JdbcWriter

        _reached_here(table)
        return JdbcWriter(table)
