"""Options and checks of the ``delta`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.delta.procedures import PROCEDURES
from penstock.connectors.delta.settings import OPTIONS
from penstock.connectors.lakehouse.keys import check_keys
from penstock.connectors.lakehouse.schema import (
    check_all_declared,
    check_schema,
    declared_arrow,
    need_library,
    partition_names,
)
from penstock.connectors.row_changes import ChangedBy, row_change
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WHERE = "connector 'delta'"


class DeltaConnector(DeclaredConnector):
    """The connector ``delta``: source and sink of a Delta Lake table."""

    name = "delta"
    runs = "native"
    location = ("table-path",)
    partitioned = True
    procedures = PROCEDURES

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        need_library("deltalake", "delta", "Delta Lake", _WHERE)
        if role == "source":
            self._check_source(table)
        else:
            self._check_sink(table)

    def _check_source(self, table: TableInfo) -> None:
        from penstock.connectors.delta.source import as_of_time
        from penstock.connectors.delta.stored import arrow_schema, check_readable
        from penstock.connectors.delta.table import open_delta

        options = OPTIONS.read(table.options)
        times = [k for k in ("versionAsOf", "timestampAsOf") if options[k] is not None]
        if len(times) > 1 or (times and options["mode"] == "streaming"):
            raise ConnectorError(
                "the table's version is said twice",
                expected="one of 'versionAsOf', 'timestampAsOf' and 'mode' = 'streaming'",
                got=", ".join(times) + (", 'mode' = 'streaming'" if options["mode"] == "streaming" else ""),
                where=_WHERE,
                remedy="streaming begins at 'startingVersion'",
            )
        if options["mode"] == "batch" and options["startingVersion"] is not None:
            raise ConnectorError(
                "option 'startingVersion' is for streaming",
                expected="'mode' = 'streaming', or 'versionAsOf'",
                got="'mode' = 'batch'",
                where=_WHERE,
            )
        version = options["versionAsOf"]
        stored = open_delta(
            table.options, version if version is not None else as_of_time(options["timestampAsOf"])
        )
        where = f"{_WHERE}, '{options['table-path']}'"
        check_readable(stored, where)
        check_schema(table.schema, arrow_schema(stored), "source", where)

    def _check_sink(self, table: TableInfo) -> None:
        from deltalake import DeltaTable

        from penstock.connectors.delta.rewriting import check_changeable
        from penstock.connectors.delta.stored import arrow_schema
        from penstock.connectors.delta.table import (
            checked_partitions,
            open_delta,
            storage_options,
            table_uri,
        )

        where = f"{_WHERE}, '{table.options['table-path']}'"
        declared = declared_arrow(table.schema, where)
        check_keys(declared, table.primary_key, where)
        names = partition_names(table.options)
        checked_partitions(declared, names, where)
        if not DeltaTable.is_deltatable(table_uri(table.options), storage_options(table.options)):
            return
        stored = open_delta(table.options)
        if table.primary_key:
            check_changeable(stored, where)
        check_schema(table.schema, arrow_schema(stored), "sink", where)
        keys = stored.metadata().partition_columns
        if "partition.keys" in table.options and list(keys) != names:
            raise ConnectorError(
                "the table is partitioned otherwise",
                expected=f"PARTITIONED BY ({', '.join(keys)})" if keys else "no PARTITIONED BY",
                got=f"PARTITIONED BY ({', '.join(names)})",
                where=where,
            )
        checked_partitions(arrow_schema(stored), keys, where)

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        if "table-path" not in options:
            return options
        from penstock.connectors.filesystem.paths import absolute_path

        path = absolute_path(options["table-path"], where=f"{where}, option 'table-path'")
        return {**options, "table-path": path}

    def is_bounded(self, table: TableInfo) -> bool:
        return OPTIONS.read_one(table.options, "mode") == "batch"

    def push_down(
        self, table: TableInfo, *, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        from penstock.connectors.lakehouse.source import equalities

        return equalities(table, equals)

    def partitions(self, table: TableInfo) -> Sequence[tuple[str, bool]]:
        from penstock.connectors.delta.table import open_delta

        found = {"/".join(f"{k}={v}" for k, v in p.items()) for p in open_delta(table.options).partitions()}
        return [(name, True) for name in sorted(found)]

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert") if table.primary_key else ("append",)

    def sink_shuffle(self, table: TableInfo) -> tuple[str, ...] | None:
        return tuple(table.primary_key) or None

    def row_changes(self, table: TableInfo) -> ChangedBy:
        from penstock.connectors.delta.stored import arrow_schema
        from penstock.connectors.delta.table import open_delta

        options = OPTIONS.read(table.options)
        if options["mode"] == "streaming" or options["versionAsOf"] is not None or options["timestampAsOf"]:
            raise UnsupportedError(
                "DELETE and UPDATE of a table with 'mode' = 'streaming', 'versionAsOf' or 'timestampAsOf'",
                expected="the newest version, read as a batch",
                where=_WHERE,
                remedy="leave these options out",
            )
        stored = open_delta(table.options)
        check_all_declared(table.schema, arrow_schema(stored), f"{_WHERE}, '{options['table-path']}'")
        return ChangedBy(whole=True, options={"versionAsOf": str(stored.version())})

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.delta.source import DeltaEnumerator

        return DeltaEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.delta.source import DeltaReader

        return DeltaReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.delta.table import DeltaLake
        from penstock.connectors.lakehouse.replacing import ReplacingLakeWriter
        from penstock.connectors.lakehouse.writer import LakeWriter

        options = OPTIONS.read(table.options)
        declared = declared_arrow(table.schema, _WHERE)
        names = partition_names(table.options)
        codec = options["sink.compression"]
        size, changes = options["sink.file-size"], row_change(table.options)

        def opened(keys: Sequence[str]) -> DeltaLake:
            return DeltaLake(table.options, declared, names, codec, alone=bool(keys), target_bytes=size)

        writer = LakeWriter if changes is None else ReplacingLakeWriter
        return writer(
            f"{_WHERE}, '{options['table-path']}'", opened, size, options["sink.max-open-files"],
            by_key=changes is None,
        )  # fmt: skip
