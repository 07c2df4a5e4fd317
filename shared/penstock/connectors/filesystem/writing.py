"""Which options of writing fit each other and the format, and how rows must be spread over the writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.filesystem import partition_commit
from penstock.connectors.filesystem.partition_commit import KIND, TRIGGER
from penstock.connectors.filesystem.partitions import Partitioning
from penstock.connectors.filesystem.rolling import TIMES
from penstock.errors import ConnectorError
from penstock.formats.lines import LineFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import TableInfo
    from penstock.formats import Format

#: Options that need a job that goes on, whose files or partitions outlive checkpoints.
STREAMING_ONLY = (*TIMES, TRIGGER, "sink.partition-commit.delay")
_COMPRESSED_INSIDE = {
    "parquet": "parquet.compression",
    "orc": "orc.compression",
    "avro": "avro.codec",
    "arrow": "arrow.compression",
}


def check_writing(
    options: Mapping[str, Any], format_: Format, given: Mapping[str, str], partitioning: Partitioning | None
) -> None:
    """ConnectorError for options of a sink that do not fit each other. ``options``: typed; ``given``: as text."""
    lines = isinstance(format_.files, LineFiles)
    if options["sink.compression"] != "none" and not lines:
        raise ConnectorError(
            f"option 'sink.compression' with the format '{format_.name}', which compresses inside its files",
            expected="a format of lines: json, csv, raw or one of changes",
            got=f"'sink.compression' = '{options['sink.compression']}'",
            where="connector 'filesystem'",
            remedy=f"use '{_COMPRESSED_INSIDE.get(format_.name, 'an option of the format')}' instead",
        )
    if lines and any(options[key] is not None for key in TIMES):
        assert format_.files is not None
        if given.get("csv.header", "false").lower() == "true":
            raise ConnectorError(
                "a file with a header line cannot grow over checkpoints",
                expected="'csv.header' = 'false' with " + " or ".join(f"'{key}'" for key in TIMES),
                got="'csv.header' = 'true'",
                where="connector 'filesystem'",
                remedy="leave the intervals out: each checkpoint then ends the files",
            )
    partition_commit.check(options, partitioning)


def shuffled_by(options: Mapping[str, Any], table: TableInfo) -> tuple[str, ...] | None:
    """The columns whose equal values must meet in one writer; empty: all rows in one; None: no matter."""
    partitioning = Partitioning.of(table)
    if partitioning is None:
        chosen = options["sink.parallelism"] or options["compaction.parallelism"]
        return () if options["auto-compaction"] and not chosen else None
    by_time = options[KIND] is not None and options[TRIGGER] == "partition-time"
    if options["sink.shuffle-by-partition.enable"] or options["auto-compaction"] or by_time:
        return partitioning.keys
    return None
