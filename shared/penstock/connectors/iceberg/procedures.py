"""Procedures of CALL for Iceberg tables."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.procedures import Parameter, Procedure
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyiceberg.table import Table


def _with(options: Mapping[str, str], use: Callable[[Table], tuple[Any, ...]]) -> tuple[Any, ...]:
    """What ``use`` does to the table, with the catalog open."""
    from contextlib import closing

    from penstock.connectors.iceberg.catalog import open_catalog, place, reached, table_name

    where = place(options)
    with closing(open_catalog(options.get("catalog-name", "default"), options)) as catalog:
        table = reached(lambda: catalog.load_table(table_name(options)), where)
        done: tuple[Any, ...] = reached(lambda: use(table), where)
        return done


def _expire(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    def expire(table: Table) -> tuple[Any, ...]:
        line = list(_ancestors(table))
        kept = {
            *line[: given.get("retain_last", 1)],
            *(ref.snapshot_id for ref in table.metadata.refs.values()),
        }
        until = given["older_than"]
        old = [
            s.snapshot_id for s in table.snapshots() if s.timestamp_ms < until and s.snapshot_id not in kept
        ]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        return (len(old),)

    return _with(options, expire)


def _ancestors(table: Table) -> Iterator[int]:
    """The ids of the current snapshot and those before it, newest first."""
    current = table.current_snapshot()
    while current is not None:
        yield current.snapshot_id
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)


def _rollback(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    def rollback(table: Table) -> tuple[Any, ...]:
        line, wanted = list(_ancestors(table)), given["snapshot_id"]
        if wanted not in line:
            raise ConnectorError(
                "the current snapshot does not descend from the one to roll back to",
                expected="one of " + (", ".join(map(str, line[:5])) or "(the table has none)"),
                got=str(wanted),
                where=f"connector 'iceberg', table '{options['catalog-table']}'",
            )
        table.manage_snapshots().rollback_to_snapshot(wanted).commit()
        return line[0], wanted

    return _with(options, rollback)


def _rewrite(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    import uuid
    from contextlib import closing

    from penstock.connectors.iceberg.compaction import Compaction, compact
    from penstock.connectors.iceberg.settings import OPTIONS
    from penstock.connectors.iceberg.table import IcebergLake

    read = OPTIONS.read({k: v for k, v in options.items() if k in OPTIONS.options})
    _with(options, lambda table: (table.name(),))  # a table that is not there is an error, and is not made
    size = given.get("target_file_size_bytes") or read["write.target-file-size-bytes"]
    how = Compaction(size, least_files=given.get("min_input_files", 5))
    run = f"compaction-{uuid.uuid4().hex}"
    codec = read["write.parquet.compression-codec"]
    with closing(IcebergLake(options, pa.schema([]), (), codec)) as table:
        names = (f"{run}-{number:06d}.parquet" for number in itertools.count(1))
        done = compact(table, how, lambda: next(names), strict=True)
    return done.removed, done.added


def _remove_orphans(options: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    from penstock.connectors.iceberg.orphans import KEPT_MS, remove_orphans

    until = given.get("older_than", time.time_ns() // 1_000_000 - KEPT_MS)
    return _with(options, lambda table: (remove_orphans(table, until, dry_run=given.get("dry_run", False)),))


PROCEDURES = (
    Procedure(
        "rewrite_data_files",
        (Parameter("target_file_size_bytes", "whole number"), Parameter("min_input_files", "whole number")),
        ("rewritten_data_files", "added_data_files"),
        _rewrite,
    ),
    Procedure(
        "remove_orphan_files",
        (Parameter("older_than", "time"), Parameter("dry_run", "boolean")),
        ("orphan_files",),
        _remove_orphans,
    ),
    Procedure(
        "expire_snapshots",
        (Parameter("older_than", "time", required=True), Parameter("retain_last", "whole number")),
        ("deleted_snapshots",),
        _expire,
    ),
    Procedure(
        "rollback_to_snapshot",
        (Parameter("snapshot_id", "whole number", required=True),),
        ("previous_snapshot_id", "current_snapshot_id"),
        _rollback,
    ),
)
