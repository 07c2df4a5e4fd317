"""The options and metadata columns of the ``filesystem`` connector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.errors import SpecError
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
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping


def _name_part(value: str) -> str:
    if "/" in value or (value[:1] in (".", "_") and len(value) == 1):
        raise SpecError("not a part of a file's name", expected="a text without '/'", got=repr(value))
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
