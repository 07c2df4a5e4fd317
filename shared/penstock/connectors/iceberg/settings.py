"""The options of the ``iceberg`` connector, and of a catalog of the type ``iceberg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CATALOG_TYPES = ("rest", "sql", "jdbc")
#: Types that Flink's connector or pyiceberg has; each needs a service that Penstock was never tried with.
_OTHER_TYPES = ("hive", "hadoop", "glue", "dynamodb", "bigquery", "nessie")
#: Prefixes of keys that belong to the catalog and the file system; they are passed to pyiceberg unchanged.
PASSED_ON = ("s3.", "gcs.", "adls.", "hdfs.", "rest.", "header.", "client.", "oauth2-", "sql.")
#: Further keys that are passed on.
_SINGLE = ("credential", "token", "scope", "prefix")


def catalog_type(value: str) -> str:
    """One of ``CATALOG_TYPES``. UnsupportedError for a type that others have."""
    if value.lower() in _OTHER_TYPES:
        raise UnsupportedError(
            f"an Iceberg catalog of the type '{value}'",
            expected=", ".join(CATALOG_TYPES),
            where="option 'catalog-type'",
            remedy="reach its tables through a REST catalog, which Hive, Glue and Nessie offer",
        )
    return choice(*CATALOG_TYPES)(value)


CATALOG_OPTIONS = (
    Option("catalog-type", catalog_type, "rest", "'rest', or 'sql' ('jdbc'): a database that pyiceberg knows."),
    Option("uri", text, None, "Of the REST catalog, or of the database ('sqlite:////folder/catalog.db', 'jdbc:sqlite:…').", required=True),
    Option("warehouse", text, None, "The folder of new tables, or the warehouse's name in a REST catalog."),
    *(Option(key, text, None, "Passed on to pyiceberg.") for key in _SINGLE),
)  # fmt: skip

OPTIONS = OptionSet(
    "connector 'iceberg'",
    [
        Option("catalog-name", text, "default", "The catalog's name; tables of a SQL catalog belong to it."),
        *CATALOG_OPTIONS,
        Option("catalog-database", text, "default", "The namespace; a dot separates its levels."),
        Option("catalog-table", text, None, "The table's name.", required=True),
        Option("write.format.default", choice("parquet"), "parquet", "Format of data files.", role="sink"),
        Option("write.target-file-size-bytes", bytes_size, 128 << 20, "A data file is closed at about this size.", role="sink"),
        Option("write.parquet.compression-codec", choice("zstd", "snappy", "gzip", "lz4", "none"), "zstd", "Of data files.", role="sink"),
        Option("sink.max-open-files", positive, 64, "So many partitions a subtask writes at a time.", role="sink"),
        Option("upsert-enabled", boolean, None, "Rows replace those of their PRIMARY KEY; the default where there is one.", role="sink"),
        Option("write.upsert.enabled", boolean, None, "The same, as Flink's table property.", role="sink"),
        Option("format-version", choice("1", "2"), "2", "Of a new table."),
        Option("flink-maintenance.rewrite.enabled", boolean, False, "Write small files into larger ones now and then, in commits of their own.", role="sink"),
        Option("compaction-enabled", boolean, False, "The same, by its older name.", role="sink"),
        Option("flink-maintenance.rewrite.schedule.commit-count", positive, 10, "So many commits lie between two compactions.", role="sink"),
        Option("flink-maintenance.rewrite.target-file-size-bytes", bytes_size, None, "Files up to this size; without it: write.target-file-size-bytes.", role="sink"),
        Option("flink-maintenance.rewrite.min-input-files", positive, 5, "So many small files of a partition are worth a compaction.", role="sink"),
        Option("streaming", boolean, False, "Go on with each new snapshot.", role="source"),
        Option("monitor-interval", duration_ms, 10_000, "Streaming: how often new snapshots are looked for.", role="source"),
        Option("snapshot-id", integer, None, "Read this snapshot.", role="source"),
        Option("as-of-timestamp", integer, None, "Read the snapshot of that time, ms since 1970.", role="source"),
        Option("start-snapshot-id", integer, None, "Streaming: begin behind this snapshot.", role="source"),
        Option("start-snapshot-timestamp", integer, None, "Streaming: begin with snapshots from this time, ms since 1970.", role="source"),
        Option("streaming-skip-delete-snapshots", boolean, False, "Streaming: leave out snapshots that only delete.", role="source"),
        Option("streaming-skip-overwrite-snapshots", boolean, False, "Streaming: leave out snapshots that replace rows.", role="source"),
        Option("partition.keys", text, None, "What PARTITIONED BY sets: a JSON list of columns."),
        Option("partition.filter", text, None, "What WHERE sets: conditions on partition columns, in JSON.", role="source"),
        Option("sink.row-change", text, None, "What DELETE and UPDATE set: the statement, in JSON.", role="sink"),
        Option("sink.delivery-guarantee", choice("exactly-once"), "exactly-once", "Rows show once their checkpoint completed.", role="sink"),
    ],
    prefixes=PASSED_ON,
)  # fmt: skip


def upserts(options: Mapping[str, Any], primary_key: Sequence[str]) -> bool:
    """Whether a sink with these options (``OPTIONS.read``) replaces rows by their primary key."""
    asked = [options[key] for key in ("upsert-enabled", "write.upsert.enabled") if options[key] is not None]
    return asked[0] if asked else bool(primary_key)
