"""Options and checks of the ``iceberg`` connector."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.iceberg.procedures import PROCEDURES
from penstock.connectors.iceberg.settings import OPTIONS, upserts
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

    from penstock.connectors.iceberg.compaction import Compaction

_WHERE = "connector 'iceberg'"


class IcebergConnector(DeclaredConnector):
    """The connector ``iceberg``: source and sink of an Iceberg table. pyiceberg computes in Python, so it
    runs in helper processes."""

    name = "iceberg"
    runs = "helper"
    location = ("catalog-name", "catalog-database", "catalog-table", "uri", "warehouse")
    partitioned = True
    procedures = PROCEDURES

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        need_library("pyiceberg", "iceberg", "Apache Iceberg", _WHERE)
        if role == "source":
            self._check_source(table)
        else:
            self._check_sink(table)

    def _check_source(self, table: TableInfo) -> None:
        from penstock.connectors.iceberg.catalog import load, place
        from penstock.connectors.iceberg.source import chosen_snapshot, schema_of
        from penstock.connectors.iceberg.table import arrow_schema

        options = OPTIONS.read(table.options)
        _check_times(options)
        stored = load(table.options)
        snapshot = chosen_snapshot(stored, options, place(table.options))
        names = stored.schema().column_names
        if snapshot is not None:
            names = schema_of(stored, table.options, snapshot.snapshot_id).column_names
        check_schema(table.schema, arrow_schema(stored), "source", place(table.options))
        missing = [n for n in table.schema.names if n not in names]
        if missing:
            raise ConnectorError(
                "the snapshot has not all columns",
                expected=", ".join(table.schema.names),
                got=f"without {', '.join(missing)}",
                where=place(table.options),
                remedy="declare the columns of its time, or read a later snapshot",
            )

    def _check_sink(self, table: TableInfo) -> None:
        from penstock.connectors.iceberg.catalog import open_catalog, place, reached, table_name
        from penstock.connectors.iceberg.rewriting import live_files
        from penstock.connectors.iceberg.table import arrow_schema, check_partitions

        where = place(table.options)
        keyed = self._upserts(table)
        if keyed and not table.primary_key:
            raise ConnectorError(
                "upserts into a table without a primary key",
                expected="PRIMARY KEY (…) NOT ENFORCED",
                got="'upsert-enabled' = 'true'",
                where=where,
                remedy="declare the columns by which a row replaces another, or leave the option out: rows are appended",
            )
        check_keys(declared_arrow(table.schema, where), table.primary_key if keyed else (), where)
        with closing(open_catalog(table.options.get("catalog-name", "default"), table.options)) as catalog:
            name = table_name(table.options)
            there = reached(lambda: catalog.table_exists(name), where)
            stored = reached(lambda: catalog.load_table(name), where) if there else None
            if stored is not None and keyed:
                reached(lambda: live_files(stored, where), where)  # refuses what cannot be changed
        if stored is None:
            if "warehouse" not in table.options and table.options.get("catalog-type", "rest") != "rest":
                raise ConnectorError(
                    "there is no such Iceberg table, and no folder to make it in",
                    expected="'warehouse' = 'file:///folder', or a table that exists",
                    got="no option 'warehouse'",
                    where=where,
                )
            return
        check_schema(table.schema, arrow_schema(stored), "sink", where)
        check_partitions(stored, where)
        names = partition_names(table.options)
        transforms = [
            f"{f.transform}({stored.schema().find_column_name(f.source_id)})" for f in stored.spec().fields
        ]
        if "partition.keys" in table.options and transforms != [f"identity({n})" for n in names]:
            raise ConnectorError(
                "the table is partitioned otherwise",
                expected=", ".join(transforms) or "no PARTITIONED BY",
                got=f"PARTITIONED BY ({', '.join(names)})",
                where=where,
                remedy="leave PARTITIONED BY out: the stored table's partitions are used",
            )

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        from penstock.connectors.filesystem.paths import absolute_path

        out = dict(options)
        if "/" in options.get("warehouse", ""):
            out["warehouse"] = absolute_path(options["warehouse"], where=f"{where}, option 'warehouse'")
        return out

    def is_bounded(self, table: TableInfo) -> bool:
        return not OPTIONS.read_one(table.options, "streaming")

    def push_down(
        self, table: TableInfo, *, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        from penstock.connectors.lakehouse.source import equalities

        return equalities(table, equals)

    def partitions(self, table: TableInfo) -> Sequence[tuple[str, bool]]:
        from penstock.connectors.iceberg.catalog import load

        found = load(table.options)
        rows = found.inspect.partitions().to_pylist() if found.spec().fields else []
        return [("/".join(f"{k}={v}" for k, v in row["partition"].items()), True) for row in rows]

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def _upserts(self, table: TableInfo) -> bool:
        options = OPTIONS.read({k: v for k, v in table.options.items() if k in OPTIONS.options})
        return upserts(options, table.primary_key) and row_change(table.options) is None

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert") if table.primary_key and self._upserts(table) else ("append",)

    def sink_shuffle(self, table: TableInfo) -> tuple[str, ...] | None:
        return tuple(table.primary_key) or None if self._upserts(table) else None

    def row_changes(self, table: TableInfo) -> ChangedBy:
        from penstock.connectors.iceberg.catalog import load, place
        from penstock.connectors.iceberg.table import arrow_schema

        options = OPTIONS.read({k: v for k, v in table.options.items() if k in OPTIONS.options})
        if (
            options["streaming"]
            or options["snapshot-id"] is not None
            or options["as-of-timestamp"] is not None
        ):
            raise UnsupportedError(
                "DELETE and UPDATE of a table with 'streaming', 'snapshot-id' or 'as-of-timestamp'",
                expected="the current snapshot, read as a batch",
                where=place(table.options),
                remedy="leave these options out",
            )
        stored = load(table.options)
        check_all_declared(table.schema, arrow_schema(stored), place(table.options))
        snapshot = stored.current_snapshot()
        found = {} if snapshot is None else {"snapshot-id": str(snapshot.snapshot_id)}
        return ChangedBy(whole=True, options=found)

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.iceberg.source import IcebergEnumerator

        return IcebergEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.iceberg.source import IcebergReader

        return IcebergReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.iceberg.catalog import place
        from penstock.connectors.iceberg.table import IcebergLake
        from penstock.connectors.lakehouse.replacing import ReplacingLakeWriter
        from penstock.connectors.lakehouse.writer import LakeWriter

        options = OPTIONS.read({k: v for k, v in table.options.items() if k in OPTIONS.options})
        declared = declared_arrow(table.schema, _WHERE)
        names = partition_names(table.options)
        codec, size = options["write.parquet.compression-codec"], options["write.target-file-size-bytes"]
        changes, compaction = row_change(table.options), _compaction(options)

        def opened(keys: Sequence[str]) -> IcebergLake:
            return IcebergLake(table.options, declared, names, codec, keys=keys, compaction=compaction)

        writer = LakeWriter if changes is None else ReplacingLakeWriter
        return writer(
            place(table.options), opened, size, options["sink.max-open-files"],
            by_key=changes is None and upserts(options, table.schema.names),
        )  # fmt: skip


def _compaction(options: Mapping[str, Any]) -> Compaction | None:
    from penstock.connectors.iceberg.compaction import Compaction

    if not (options["flink-maintenance.rewrite.enabled"] or options["compaction-enabled"]):
        return None
    return Compaction(
        options["flink-maintenance.rewrite.target-file-size-bytes"]
        or options["write.target-file-size-bytes"],
        options["flink-maintenance.rewrite.schedule.commit-count"],
        options["flink-maintenance.rewrite.min-input-files"],
    )


def _check_times(options: Mapping[str, Any]) -> None:
    bounded = [k for k in ("snapshot-id", "as-of-timestamp") if options[k] is not None]
    starts = [k for k in ("start-snapshot-id", "start-snapshot-timestamp") if options[k] is not None]
    streaming = options["streaming"]
    if len(bounded) + len(starts) > 1 or (streaming and bounded) or (starts and not streaming):
        raise ConnectorError(
            "options of time travel that do not go together",
            expected="one of 'snapshot-id' and 'as-of-timestamp', or with 'streaming' = 'true' one of "
            "'start-snapshot-id' and 'start-snapshot-timestamp'",
            got=", ".join([*bounded, *starts]) + f", 'streaming' = '{str(streaming).lower()}'",
            where=_WHERE,
        )
