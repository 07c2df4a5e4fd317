"""Procedures of CALL for Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


PROCEDURES = (
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
