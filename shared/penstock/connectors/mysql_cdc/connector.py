"""Options and checks of ``mysql-cdc``."""

from __future__ import annotations

import zoneinfo
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.away import need_package
from penstock.connectors.cdc.connector import FollowingConnector, check_options, wrong
from penstock.connectors.mysql_cdc.settings import METADATA, OPTIONS, OWNER, server_id_of

if TYPE_CHECKING:
    from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo

_SPECIFIC = "scan.startup.specific-offset"


class MySqlCdcConnector(FollowingConnector):
    """The connector ``mysql-cdc``: a source of rows and their changes."""

    name = "mysql-cdc"
    location = ("hostname", "port", "database-name", "table-name")
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        options = OPTIONS.read(table.options)
        _check_options(options)
        need_package("pymysql", "pymysql", "mysql-cdc", OWNER)
        from penstock.connectors.mysql_cdc.checks import check_database

        check_database(table.schema, options, table.primary_key)

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.mysql_cdc.source import MySqlCdcEnumerator

        return MySqlCdcEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.mysql_cdc.source import MySqlCdcReader

        return MySqlCdcReader(table)


def _check_options(options: dict[str, Any]) -> None:
    server_id_of(options)
    check_options(options, OWNER, patterns=("database-name", "table-name"))
    try:
        zoneinfo.ZoneInfo(options["server-time-zone"])
    except (KeyError, ValueError, OSError):
        raise wrong(
            OWNER, "server-time-zone", "a name like Europe/Berlin, or UTC", repr(options["server-time-zone"])
        ) from None
    mode = options["scan.startup.mode"]
    given = {key for key in options if key.startswith(_SPECIFIC) and options[key] is not None}
    whole = ({f"{_SPECIFIC}.file", f"{_SPECIFIC}.pos"}, {f"{_SPECIFIC}.gtid-set"})
    if (mode == "specific-offset" and given not in whole) or (mode != "specific-offset" and given):
        raise wrong(
            OWNER,
            _SPECIFIC,
            "either '….file' and '….pos' or '….gtid-set', for 'scan.startup.mode' = 'specific-offset'",
            ", ".join(sorted(given)) or "none of them",
        )
    at = options["scan.startup.timestamp-millis"]
    if (mode == "timestamp") != (at is not None):
        raise wrong(
            OWNER,
            "scan.startup.timestamp-millis",
            "a time with 'scan.startup.mode' = 'timestamp', else none",
            repr(at),
        )
