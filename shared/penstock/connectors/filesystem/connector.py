"""Options and checks of the ``filesystem`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.options import (
    Option,
    OptionSet,
    boolean,
    bytes_size,
    choice,
    duration_ms,
    integer,
    text,
)
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, SpecError
from penstock.formats import get_format
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def _positive(value: str) -> int:
    number = integer(value)
    if number < 1:
        raise SpecError("not a positive number", expected="1 or more", got=repr(value))
    return number


OPTIONS = OptionSet(
    "connector 'filesystem'",
    [
        Option("path", text, None, "A file, a folder, a glob, or such a URL (file:, s3:, gs:, az:).", required=True),
        Option("source.split-size", bytes_size, 64 << 20, "Files of lines are cut into parts of about this size."),
        Option("source.monitor-interval", duration_ms, None, "Look for new files this often: an unbounded source.", role="source"),
        Option("sink.rolling-policy.file-size", bytes_size, 128 << 20, "A file is closed at about this size.", role="sink"),
        Option("sink.overwrite", boolean, False, "What INSERT OVERWRITE sets: at the end the new files take the place of all others.", role="sink"),
        Option("sink.max-open-files", _positive, 64, "So many partitions a subtask writes at a time; the file that waits longest is closed for another.", role="sink"),
        Option("sink.static-partition", text, None, "What INSERT OVERWRITE … PARTITION sets: a JSON list of the partition's values.", role="sink"),
        Option("partition.keys", text, None, "What PARTITIONED BY sets: a JSON list of columns whose values are folders 'column=value'."),
        Option("partition.default-name", text, "__DEFAULT_PARTITION__", "The folder's value for NULL and the empty string."),
        Option("partition.filter", text, None, "What WHERE sets: conditions on partition columns, in JSON.", role="source"),
        *LOOKUP_OPTIONS,
        Option("sink.delivery-guarantee", choice("exactly-once"), "exactly-once", "Files show once their checkpoint completed.", role="sink"),
    ],
    prefixes=("fs.", "json.", "csv.", "parquet.", "orc.", "arrow."),
)  # fmt: skip

#: Metadata columns. ``file.path``: the file's name; ``row``: its number in the file part.
METADATA: Mapping[str, Any] = {
    "file.path": t.VarCharType(nullable=False),
    "row": t.BigIntType(nullable=False),
}


class FilesystemConnector(DeclaredConnector):
    name = "filesystem"
    location = ("path", "partition.keys")
    #: ROW columns may be declared with only the fields that are read.
    nested_projection = True
    overwrites = True
    partitioned = True
    #: Files have no index: a lookup join keeps the whole table.
    lookup_caches = ("FULL",)
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        schema = table.schema
        from penstock.connectors.filesystem.partitions import Partitioning

        partitioning = Partitioning.of(table)
        if partitioning is not None:
            partitioning.check(table.options["path"])
            schema = partitioning.data
        get_format(table.options.get("format"), where="connector 'filesystem'").check(schema, table.options)
        if role == "source" and "source.monitor-interval" not in table.options:
            self._check_there(table)

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "path" not in options:
            return options
        from penstock.connectors.filesystem.paths import absolute_path

        return {**options, "path": absolute_path(options["path"], where=f"{where}, option 'path'")}

    def _check_there(self, table: TableInfo) -> None:
        from penstock.connectors.filesystem.paths import open_files

        files, path = open_files(table.options["path"], table.options)
        if not files.list(path):
            raise ConnectorError(
                f"no file at '{table.options['path']}'",
                expected="an existing file, a folder with files, or a glob that matches some",
                got="nothing there",
                where="connector 'filesystem', option 'path'",
                remedy="check the path; it must be readable on every task manager",
            )

    def is_bounded(self, table: TableInfo) -> bool:
        return "source.monitor-interval" not in table.options

    def partitions(self, table: TableInfo) -> list[tuple[str, bool]]:
        from penstock.connectors.filesystem.partitions import partitions_of

        return partitions_of(table)

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.filesystem.source import FileEnumerator

        return FileEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.filesystem.source import FileReader

        return FileReader(table)

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.filesystem.lookup import FileLookup

        return FileLookup(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.filesystem.overwrite import OverwritingFileSink
        from penstock.connectors.filesystem.sink import FileSink

        overwrite = OPTIONS.read_one(table.options, "sink.overwrite")
        return OverwritingFileSink(table) if overwrite else FileSink(table)
