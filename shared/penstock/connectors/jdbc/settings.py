"""The options of the ``jdbc`` connector."""

from __future__ import annotations

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.options import Option, OptionSet, duration_ms, integer, text

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
