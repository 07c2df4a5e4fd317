"""Options and checks of the ``jdbc`` connector. The database is SQLite, by Python's own driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.jdbc.database import check_table, database_path
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.options import Option, OptionSet, duration_ms, integer, text
from penstock.connectors.simple import DeclaredConnector

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = OptionSet(
    "connector 'jdbc'",
    [
        Option("url", text, None, "The database: jdbc:sqlite:/path/to/file.db.", required=True),
        Option("table-name", text, None, "The table (or, to read, a view) in it.", required=True),
        Option("driver", text, None, "Taken for Flink's sake: the URL says which driver it is."),
        Option("scan.fetch-size", integer, 4096, "Rows that are read at a time.", role="source"),
        Option("sink.buffer-flush.max-rows", integer, 1000, "Rows that are written at a time at most.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
        Option("sink.max-retries", integer, 3, "How often a failed write is tried again.", role="sink"),
        *LOOKUP_OPTIONS,
    ],
)  # fmt: skip


class JdbcConnector(DeclaredConnector):
    name = "jdbc"
    lookup_caches = ("NONE", "PARTIAL", "FULL")

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        check_table(table.schema, table.options)

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "url" not in options:
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

        return JdbcEnumerator()

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.jdbc.source import JdbcReader

        return JdbcReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.jdbc.lookup import JdbcLookup

        return JdbcLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.jdbc.sink import JdbcWriter

        return JdbcWriter(table)
