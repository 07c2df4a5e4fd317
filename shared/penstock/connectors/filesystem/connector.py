"""Options and checks of the ``filesystem`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.filesystem.settings import METADATA, OPTIONS
from penstock.connectors.simple import DeclaredConnector
from penstock.formats import file_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class FilesystemConnector(DeclaredConnector):
    """The connector ``filesystem``: source, sink and lookup of files."""

    name = "filesystem"
    takes_format = True
    runs = "native"
    location = ("path", "partition.keys")
    #: ROW columns may be declared with only the fields that are read.
    nested_projection = True
    overwrites = True
    truncates = True
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
        from penstock.connectors.filesystem.writing import check_writing

        partitioning = Partitioning.of(table)
        if partitioning is not None:
            partitioning.check(table.options["path"])
            schema = partitioning.data
        format_ = file_format(table.options.get("format"), where="connector 'filesystem'")
        format_.check(schema, table.options)
        if role == "sink":
            check_writing(OPTIONS.read(table.options), format_, table.options, partitioning)
        if role == "source" and "source.monitor-interval" not in table.options:
            self._check_there(table)

    def nested_projection_of(self, table: TableInfo) -> bool:
        return True  # Files that hold fields by their order hold their schema, too.

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "path" not in options:
            return options
        from penstock.connectors.filesystem.paths import absolute_path

        return {**options, "path": absolute_path(options["path"], where=f"{where}, option 'path'")}

    def _check_there(self, table: TableInfo) -> None:
        from penstock.connectors.filesystem.opening import open_files
        from penstock.connectors.filesystem.partitions import check_there, listed

        files, path = open_files(table.options["path"], table.options)
        found = listed(table, files, path)
        check_there(table, files, path, found, where="connector 'filesystem', option 'path'")

    def is_bounded(self, table: TableInfo) -> bool:
        return "source.monitor-interval" not in table.options

    def estimated_bytes(self, table: TableInfo) -> int | None:
        from penstock.connectors.filesystem.opening import open_files
        from penstock.connectors.filesystem.partitions import listed

        files, path = open_files(table.options["path"], table.options)
        return sum(file.size for file in listed(table, files, path))

    def partitions(self, table: TableInfo) -> list[tuple[str, bool]]:
        from penstock.connectors.filesystem.partitions import partitions_of

        return partitions_of(table)

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def sink_shuffle(self, table: TableInfo) -> tuple[str, ...] | None:
        from penstock.connectors.filesystem.writing import shuffled_by

        return shuffled_by(OPTIONS.read(table.options), table)

    def sink_not_in_micro_batches(self, table: TableInfo) -> Sequence[str]:
        from penstock.connectors.filesystem.writing import STREAMING_ONLY

        options = OPTIONS.read(table.options)
        return [key for key in STREAMING_ONLY if options[key] != OPTIONS.options[key].default]

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

        overwrite = any(OPTIONS.read_one(table.options, f"sink.{word}") for word in ("overwrite", "truncate"))
        return OverwritingFileSink(table) if overwrite else FileSink(table)
