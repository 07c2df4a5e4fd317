"""The options of the ``jdbc`` connector."""

from __future__ import annotations

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer, text

OPTIONS = OptionSet(
    "connector 'jdbc'",
    [
        Option("url", text, None, "The database: jdbc:postgresql://host:port/database, jdbc:mysql://…, jdbc:mariadb://…, jdbc:sqlite:/path/to/file.db; on Spark any with a driver.", required=True),
        Option("table-name", text, None, "The table (or, to read, a view) in it.", required=True),
        Option("driver", text, None, "Java class of the driver, for Spark (its jar in spark.jars); the streaming engine needs none."),
        Option("username", text, None, "To log in with."),
        Option("password", text, None, "To log in with."),
        Option("scan.partition.column", text, None, "Parts are read at once, by ranges of this number; on Spark with a driver also of a time. Not of SQLite.", role="source"),
        Option("scan.partition.num", integer, None, "How many parts.", role="source"),
        Option("scan.partition.lower-bound", text, None, "Where the second part begins, about.", role="source"),
        Option("scan.partition.upper-bound", text, None, "Where the last one ends, about.", role="source"),
        Option("scan.fetch-size", integer, 4096, "Rows that are read at a time.", role="source"),
        Option("sink.buffer-flush.max-rows", integer, 1000, "Rows that are written at a time at most.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
        Option("sink.max-retries", integer, 3, "How often a failed write is tried again.", role="sink"),
        Option("sink.truncate", boolean, False, "What TRUNCATE TABLE sets: at the end all rows are deleted.", role="sink"),
        Option("sink.row-change", text, None, "What DELETE and UPDATE set: the statement, in JSON.", role="sink"),
        Option("sink.delivery-guarantee", choice("at-least-once", "exactly-once"), "at-least-once", "exactly-once: rows show when their checkpoint is complete, in one transaction with a marker. Not of SQLite.", role="sink"),
        *LOOKUP_OPTIONS,
    ],
)  # fmt: skip
