"""The options and metadata columns of the ``filesystem`` connector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.errors import SpecError
from penstock.formats.compressing import COMPRESSIONS
from penstock.options import (
    Option,
    OptionSet,
    boolean,
    bytes_size,
    choice,
    duration_ms,
    positive,
    text,
)
from penstock.time_zones import find_zone
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping


def _name_part(value: str) -> str:
    if "/" in value or (value[:1] in (".", "_") and len(value) == 1):
        raise SpecError("not a part of a file's name", expected="a text without '/'", got=repr(value))
    return value


def _zone(value: str) -> str:
    if find_zone(value) is None:
        raise SpecError("not a time zone", expected="'UTC', 'Europe/Berlin' or 'GMT+08:00'", got=repr(value))
    return value


def _hidden_name(value: str) -> str:
    if "/" in value or not value.startswith(("_", ".")):
        raise SpecError(
            "not the name of a hidden file", expected="a name that begins with '_' or '.': others are read as data",
            got=repr(value),
        )  # fmt: skip
    return value


def _regex(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as err:
        raise SpecError(
            "not a regular expression of Python's module re", expected="one that compiles", got=f"{value!r}: {err}",
            remedy="Java's possessive quantifiers and \\p{…} have other forms in Python",
        ) from err  # fmt: skip


OPTIONS = OptionSet(
    "connector 'filesystem'",
    [
        Option("path", text, None, "A file, a folder, a glob, or such a URL (file:, s3:, gs:, az:).", required=True),
        Option("source.split-size", bytes_size, 64 << 20, "Files of lines are cut into parts of about this size."),
        Option("source.monitor-interval", duration_ms, None, "Look for new files this often: an unbounded source.", role="source"),
        Option("source.path.regex-pattern", _regex, None, "Read only files whose whole path this regular expression matches.", role="source"),
        Option("sink.rolling-policy.file-size", bytes_size, 128 << 20, "A file is closed at about this size.", role="sink"),
        Option("sink.rolling-policy.rollover-interval", duration_ms, None, "A file of lines grows over checkpoints until it is this old.", role="sink"),
        Option("sink.rolling-policy.inactivity-interval", duration_ms, None, "A file of lines grows over checkpoints until no row came for this long.", role="sink"),
        Option("sink.rolling-policy.check-interval", duration_ms, 60_000, "How often the ages of files are looked at between checkpoints.", role="sink"),
        Option("sink.compression", choice("none", *COMPRESSIONS), "none", "How files of lines are compressed.", role="sink"),
        Option("sink.parallelism", positive, None, "Subtasks that write; default: those of the operator before.", role="sink"),
        Option("sink.shuffle-by-partition.enable", boolean, False, "All rows of a partition go to one subtask.", role="sink"),
        Option("auto-compaction", boolean, False, "All rows of a partition go to one subtask and into one file, up to 'compaction.file-size'.", role="sink"),
        Option("compaction.file-size", bytes_size, None, "With 'auto-compaction': a file is closed at about this size.", role="sink"),
        Option("compaction.parallelism", positive, None, "With 'auto-compaction': subtasks that write.", role="sink"),
        Option("sink.partition-commit.trigger", choice("process-time", "partition-time"), "process-time", "The time that makes a partition complete.", role="sink"),
        Option("sink.partition-commit.delay", duration_ms, 0, "A partition is committed so long after its time.", role="sink"),
        Option("sink.partition-commit.watermark-time-zone", _zone, "UTC", "The time zone of partitions' times.", role="sink"),
        Option("sink.partition-commit.policy.kind", text, None, "What a commit does: success-file, custom, or both.", role="sink"),
        Option("sink.partition-commit.policy.class", text, None, "The class of the policy 'custom'.", role="sink"),
        Option("sink.partition-commit.policy.class.parameters", text, None, "What the class is made with, with ';' between.", role="sink"),
        Option("sink.partition-commit.success-file.name", _hidden_name, "_SUCCESS", "The name of the success file.", role="sink"),
        Option("partition.time-extractor.kind", choice("default", "custom"), "default", "How a partition's time is found.", role="sink"),
        Option("partition.time-extractor.class", text, None, "The class of the extractor 'custom'.", role="sink"),
        Option("partition.time-extractor.timestamp-pattern", text, None, "The text of a partition's time, with $column for values.", role="sink"),
        Option("partition.time-extractor.timestamp-formatter", text, None, "The pattern of that text.", role="sink"),
        Option("sink.part-prefix", _name_part, "part", "Begins the names of files.", role="sink"),
        Option("sink.part-suffix", _name_part, "", "Ends the names of files; without one the format does, '.parquet'.", role="sink"),
        Option("sink.overwrite", boolean, False, "What INSERT OVERWRITE sets: at the end the new files take the place of all others.", role="sink"),
        Option("sink.truncate", boolean, False, "What TRUNCATE TABLE sets: at the end all files go.", role="sink"),
        Option("sink.max-open-files", positive, 64, "So many partitions a subtask writes at a time; the file that waits longest is closed for another.", role="sink"),
        Option("sink.static-partition", text, None, "What INSERT OVERWRITE … PARTITION sets: a JSON list of the partition's values.", role="sink"),
        Option("partition.keys", text, None, "What PARTITIONED BY sets: a JSON list of columns whose values are folders 'column=value'."),
        Option("partition.default-name", text, "__DEFAULT_PARTITION__", "The folder's value for NULL and the empty string."),
        Option("partition.filter", text, None, "What WHERE sets: conditions on partition columns, in JSON.", role="source"),
        *LOOKUP_OPTIONS,
        Option("sink.delivery-guarantee", choice("exactly-once"), "exactly-once", "Files show once their checkpoint completed.", role="sink"),
    ],
    prefixes=("fs.", "json.", "csv.", "parquet.", "orc.", "arrow."),
)  # fmt: skip

#: Metadata columns. ``file.path``: the file's whole path; ``row``: the row's number in the file part.
METADATA: Mapping[str, Any] = {
    "file.path": t.VarCharType(nullable=False),
    "file.name": t.VarCharType(nullable=False),
    "file.size": t.BigIntType(nullable=False),
    "file.modification-time": t.TimestampLtzType(3, nullable=False),
    "row": t.BigIntType(nullable=False),
}
