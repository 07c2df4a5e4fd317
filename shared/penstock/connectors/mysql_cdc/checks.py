"""Checks whether tables can be followed: server, rights, tables, columns. The checks run at submission, and
again when the job starts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.connectors.cdc.connector import check_key, no_column
from penstock.connectors.mysql_cdc.database import (
    Described,
    connect,
    find_tables,
    has_gtids,
    is_mariadb,
    log_end,
    place,
    rows,
    variables,
)
from penstock.connectors.mysql_cdc.types import check_type
from penstock.errors import ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.logical import Schema

_log = EventLog("penstock.connectors.mysql_cdc")

#: Settings without which changes are missing or cannot be read → what they must be.
_NEEDED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "log_bin_compress": "OFF",
    "binlog_transaction_compression": "OFF",
    "binlog_row_value_options": "",
}
#: Settings that remove old files of the log after a time (s, days); 0: never.
_EXPIRY = {"binlog_expire_logs_seconds": 1, "expire_logs_days": 86_400}
#: A log kept for less than this, in seconds, is warned of.
_SHORT_S = 86_400


def check_database(schema: Schema, options: Mapping[str, Any], primary_key: Sequence[str]) -> None:
    """ConnectorError or ExternalError, with a remedy, unless the tables can be read and followed. Changes nothing."""
    with closing(connect(options)) as connection:
        follows = options["scan.startup.mode"] != "snapshot"
        check_server(connection, options, follows=follows)
        for described in find_tables(connection, options):
            check_table(connection, described, options, follows=follows)
            _check_columns(schema, described, options)
            check_key(described.table.shown, described.table.key, primary_key, place(options))


def check_server(connection: Any, options: Mapping[str, Any], *, follows: bool) -> None:
    """Check the server's settings and the user's rights. ``follows``: changes are read, for which the server
    must be configured."""
    if not follows:
        return
    there = variables(connection, options, *_NEEDED, *_EXPIRY)
    for name, value in _NEEDED.items():
        if there.get(name, value).upper() != value:
            raise ConnectorError(
                "the server's binary log does not hold what this source reads",
                expected=f"{name} = {value or repr('')}",
                got=f"{name} = {there[name]}",
                where=place(options),
                remedy=f"set {name} = {value or repr('')} in the server's configuration"
                + (
                    ", and restart it"
                    if name == "log_bin"
                    else f", or SET GLOBAL {name} = {value or repr('')}"
                ),
            )
    log_end(connection, options)  # refused without REPLICATION CLIENT
    if (
        options["scan.startup.mode"] == "initial"
        and not is_mariadb(connection)
        and not has_gtids(connection, options)
    ):
        raise ConnectorError(
            "the server's transactions have no GTIDs, by which the snapshot knows the changes that it has seen",
            expected="gtid_mode = ON",
            got="gtid_mode = OFF, or on its way",
            where=place(options),
            remedy="set enforce_gtid_consistency = ON and gtid_mode = ON in the server's configuration, or another "
            "'scan.startup.mode', without a snapshot",
        )
    kept = [float(there[name]) * unit for name, unit in _EXPIRY.items() if float(there.get(name, 0) or 0)]
    if kept and max(kept) < _SHORT_S:
        _log.warning("mysql_log_is_kept_briefly", where=place(options), kept_s=int(max(kept)))


def check_table(connection: Any, described: Described, options: Mapping[str, Any], *, follows: bool) -> None:
    """ConnectorError for a table of which not every change is in the log, or no chunk can be read."""
    table = described.table
    if described.kind != "BASE TABLE" or (follows and described.engine.upper() != "INNODB"):
        raise ConnectorError(
            f"table '{table.shown}' cannot be followed",
            expected="an ordinary table of the engine InnoDB, whose transactions the snapshot and the log agree on",
            got=f"{described.kind}, ENGINE = {described.engine}",
            where=place(options),
            remedy=f"ALTER TABLE {table.quoted} ENGINE = InnoDB"
            if described.kind == "BASE TABLE"
            else "leave it out of 'table-name'",
        )
    if described.parts:
        raise ConnectorError(
            f"the primary key of table '{table.shown}' holds only the beginning of a column",
            expected="whole columns, since the snapshot is read in their order",
            got=", ".join(described.parts),
            where=place(options),
        )
    for name in table.key:
        if table.column(name).type.base in ("enum", "set", "float", "double", "bit", "time") or (
            table.column(name).type.natural is None
        ):
            raise ConnectorError(
                f"the primary key of table '{table.shown}' has no order in which it can be read",
                expected="columns of integers, DECIMAL, texts, bytes, dates or timestamps",
                got=f"{name} {table.column(name).type.shown}",
                where=place(options),
            )
    cascades = rows(
        connection,
        options,
        "SELECT CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s",
        table.schema,
        table.name,
    )
    for name, deleted, updated in cascades:
        if follows and {deleted, updated} & {"CASCADE", "SET NULL", "SET DEFAULT"}:
            raise ConnectorError(
                f"changes of table '{table.shown}' are missing in the binary log",
                expected="foreign keys with RESTRICT: the engine does not log the rows that a foreign key changes",
                got=f"{name}: ON DELETE {deleted} ON UPDATE {updated}",
                where=place(options),
                remedy="delete and update the rows by statements, or leave the table out",
            )


def _check_columns(schema: Schema, described: Described, options: Mapping[str, Any]) -> None:
    there = {column.name: column for column in described.table.columns}
    for field in schema.fields:
        if field.name not in there:
            raise no_column(described.table.shown, field.name, there, place(options))
        if there[field.name].generated:
            raise ConnectorError(
                f"column '{field.name}' is generated, and not every log of changes has it",
                expected="columns that are stored by INSERT and UPDATE",
                got="a generated column",
                where=f"{place(options)}, table '{described.table.shown}'",
                remedy="leave it out, and compute it in the query",
            )
        check_type(field.name, field.type, there[field.name].type)
    for name in described.table.key:
        natural = there[name].type.natural
        assert natural is not None
        check_type(name, natural, there[name].type)
