"""Checks whether tables can be followed: server, rights, tables, columns. The checks run at submission, and
again when the job starts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.connectors.cdc.connector import check_key, no_column
from penstock.connectors.postgres_cdc.database import (
    OLDEST,
    Described,
    connect,
    find_tables,
    place,
    rows,
)
from penstock.connectors.postgres_cdc.values import check_type
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.logical import Schema


def check_database(schema: Schema, options: Mapping[str, Any], primary_key: Sequence[str]) -> None:
    """ConnectorError or ExternalError, with a remedy, unless the tables can be read and followed. Changes nothing."""
    with closing(connect(options)) as connection:
        follows = options["scan.startup.mode"] != "snapshot"
        check_server(connection, options, follows=follows)
        for described in find_tables(connection, options):
            _check_columns(schema, described, options)
            check_key(
                described.table.shown,
                [column.name for column in described.table.key],
                primary_key,
                place(options),
            )
            _check_identity(described, options, follows)


def check_server(connection: Any, options: Mapping[str, Any], *, follows: bool) -> None:
    """Check the server's version and settings. ``follows``: changes are read, for which the server must be
    configured."""
    if connection.info.server_version < OLDEST:
        raise ConnectorError(
            "this PostgreSQL is too old",
            expected="version 13 or newer",
            got=f"version {connection.info.server_version // 10000}",
            where=place(options),
        )
    if not follows:
        return
    [(level, standby, may)] = rows(
        connection,
        options,
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
        "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)",
    )
    if level != "logical":
        raise ConnectorError(
            "the server's log does not hold what logical replication needs",
            expected="wal_level = logical",
            got=f"wal_level = {level}",
            where=place(options),
            remedy="ALTER SYSTEM SET wal_level = logical, and restart the server",
        )
    if standby:
        raise ConnectorError(
            "the server is a standby",
            expected="the primary server",
            got="a server in recovery",
            where=place(options),
            remedy="set 'hostname' to the primary",
        )
    if not may:
        raise ConnectorError(
            f"user '{options['username']}' may not read the replication stream",
            expected="a role with REPLICATION",
            got="one without",
            where=place(options),
            remedy=f"ALTER ROLE {options['username']} REPLICATION",
        )


def _check_columns(schema: Schema, described: Described, options: Mapping[str, Any]) -> None:
    there = described.types
    for field in schema.fields:
        if field.name not in there:
            raise no_column(described.table.shown, field.name, there, place(options))
        if field.name in described.table.generated:
            raise ConnectorError(
                f"column '{field.name}' is generated, and the stream of changes has no generated columns",
                expected="columns that are stored by INSERT and UPDATE",
                got="a generated column",
                where=f"{place(options)}, table '{described.table.shown}'",
                remedy="leave it out, and compute it in the query",
            )
        check_type(field.name, field.type, there[field.name])


def _check_identity(described: Described, options: Mapping[str, Any], follows: bool) -> None:
    table = described.table
    if not follows or described.identity == "f":
        return
    if options["changelog-mode"] == "all":
        raise ConnectorError(
            f"table '{table.shown}' does not log the old rows of its changes",
            expected="REPLICA IDENTITY FULL, for 'changelog-mode' = 'all'",
            got={"d": "REPLICA IDENTITY DEFAULT", "n": "REPLICA IDENTITY NOTHING"}.get(
                described.identity, "REPLICA IDENTITY USING INDEX"
            ),
            where=place(options),
            remedy=f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL, or set 'changelog-mode' = 'upsert'",
        )
    if described.identity != "d":
        raise ConnectorError(
            f"table '{table.shown}' does not log the primary keys of its changes",
            expected="REPLICA IDENTITY DEFAULT or FULL",
            got="REPLICA IDENTITY NOTHING or USING INDEX",
            where=place(options),
            remedy=f"ALTER TABLE {table.quoted} REPLICA IDENTITY DEFAULT",
        )
