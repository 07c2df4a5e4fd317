"""The options of the ``delta`` connector."""

from __future__ import annotations

from penstock.errors import SpecError
from penstock.options import (
    Option,
    OptionSet,
    boolean,
    bytes_size,
    choice,
    duration_ms,
    integer,
    positive,
    text,
)


def version_number(value: str) -> int:
    """A version of a table, from 0."""
    number = integer(value)
    if number < 0:
        raise SpecError("not a version of a table", expected="0 or more", got=repr(value))
    return number


def starting_version(value: str) -> int | str:
    """A version of a table, or ``latest``."""
    return value if value == "latest" else version_number(value)


OPTIONS = OptionSet(
    "connector 'delta'",
    [
        Option("table-path", text, None, "The table's folder, a path or URL (file:, s3:, gs:, az:).", required=True),
        Option("mode", choice("batch", "streaming"), "batch", "'streaming': go on with each new version.", role="source"),
        Option("versionAsOf", version_number, None, "Read this version of the table.", role="source"),
        Option("timestampAsOf", text, None, "Read the table as it was then: '2026-01-31 12:00:00', UTC.", role="source"),
        Option("startingVersion", starting_version, None, "Streaming: only what this version and later ones add; 'latest': only what comes.", role="source"),
        Option("updateCheckIntervalMillis", duration_ms, 5_000, "Streaming: how often new versions are looked for.", role="source"),
        Option("ignoreDeletes", boolean, False, "Streaming: leave out versions that only delete.", role="source"),
        Option("ignoreChanges", boolean, False, "Streaming: give what a version adds that also deletes; rows it only rewrote come again.", role="source"),
        Option("sink.file-size", bytes_size, 128 << 20, "A data file is closed at about this size.", role="sink"),
        Option("sink.max-open-files", positive, 64, "So many partitions a subtask writes at a time.", role="sink"),
        Option("sink.compression", choice("snappy", "zstd", "gzip", "lz4", "none"), "zstd", "Of data files.", role="sink"),
        Option("auto-compaction", boolean, False, "Merge small files now and then, in commits of their own.", role="sink"),
        Option("partition.keys", text, None, "What PARTITIONED BY sets: a JSON list of columns."),
        Option("partition.filter", text, None, "What WHERE sets: conditions on partition columns, in JSON.", role="source"),
        Option("sink.row-change", text, None, "What DELETE and UPDATE set: the statement, in JSON.", role="sink"),
        Option("sink.delivery-guarantee", choice("exactly-once"), "exactly-once", "Rows show once their checkpoint completed.", role="sink"),
    ],
    prefixes=("fs.",),
)  # fmt: skip
