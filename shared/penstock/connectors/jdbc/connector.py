"""Options and checks of the ``jdbc`` connector. The database is SQLite, by Python's own driver; another
is reached by Spark alone, with a Java driver that the job names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.jdbc.database import PREFIX, check_table, check_types, database_path
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.options import Option, OptionSet, duration_ms, integer, text
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = OptionSet(
    "connector 'jdbc'",
    [
        Option("url", text, None, "The database: jdbc:sqlite:/path/to/file.db; on Spark any with a driver.", required=True),
        Option("table-name", text, None, "The table (or, to read, a view) in it.", required=True),
        Option("driver", text, None, "Java class of the driver (its jar in spark.jars); SQLite needs none."),
        Option("username", text, None, "To log in with; on Spark only."),
        Option("password", text, None, "To log in with; on Spark only."),
        Option("scan.partition.column", text, None, "Parts are read at once, by ranges of this number or time; on Spark only.", role="source"),
        Option("scan.partition.num", integer, None, "How many parts.", role="source"),
        Option("scan.partition.lower-bound", text, None, "Where the second part begins, about.", role="source"),
        Option("scan.partition.upper-bound", text, None, "Where the last one ends, about.", role="source"),
        Option("scan.fetch-size", integer, 4096, "Rows that are read at a time.", role="source"),
        Option("sink.buffer-flush.max-rows", integer, 1000, "Rows that are written at a time at most.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
        Option("sink.max-retries", integer, 3, "How often a failed write is tried again.", role="sink"),
        *LOOKUP_OPTIONS,
    ],
)  # fmt: skip


def only_spark(options: Mapping[str, str]) -> bool:
    """Whether the database is one that only Spark reaches."""
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
    name = "jdbc"
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
