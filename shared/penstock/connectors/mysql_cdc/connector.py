"""Options and checks of ``mysql-cdc``."""

from __future__ import annotations

import re
import zoneinfo
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.away import need_package
from penstock.connectors.mysql_cdc.settings import METADATA, OPTIONS, OWNER, server_id_of, wrong
from penstock.connectors.simple import DeclaredConnector

if TYPE_CHECKING:
    from penstock.connectors.base import SourceEnumerator, SourceMode, SourceReader, TableInfo

_SPECIFIC = "scan.startup.specific-offset"


class MySqlCdcConnector(DeclaredConnector):
    """The connector ``mysql-cdc``: a source of rows and their changes."""

    name = "mysql-cdc"
    roles = ("source",)
    #: Decoding runs Python and NumPy for long, and queries block.
    runs = "helper"
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

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.startup.mode") == "snapshot")

    def source_mode(self, table: TableInfo) -> SourceMode:
        if self.is_bounded(table):
            return "append"
        return "upsert" if OPTIONS.read_one(table.options, "changelog-mode") == "upsert" else "retract"

    def source_guarantee(self, table: TableInfo) -> str:
        return "exactly-once while the table does not change" if self.is_bounded(table) else "exactly-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.mysql_cdc.source import MySqlCdcEnumerator

        return MySqlCdcEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.mysql_cdc.source import MySqlCdcReader

        return MySqlCdcReader(table)


def _check_options(options: dict[str, Any]) -> None:
    server_id_of(options)
    if not options["scan.incremental.snapshot.enabled"]:
        raise wrong(
            "scan.incremental.snapshot.enabled",
            "true: the snapshot is taken in chunks, without a lock",
            "false",
        )
    for key in ("scan.incremental.snapshot.chunk.size", "scan.snapshot.fetch.size"):
        if options[key] < 1:
            raise wrong(key, "1 or more", str(options[key]))
    for key in ("database-name", "table-name"):
        try:
            re.compile(options[key])
        except re.error as err:
            raise wrong(
                key, "a name, or a regular expression for whole names", f"{options[key]!r}: {err}"
            ) from None
    try:
        zoneinfo.ZoneInfo(options["server-time-zone"])
    except (KeyError, ValueError, OSError):
        raise wrong(
            "server-time-zone", "a name like Europe/Berlin, or UTC", repr(options["server-time-zone"])
        ) from None
    mode = options["scan.startup.mode"]
    given = {key for key in options if key.startswith(_SPECIFIC) and options[key] is not None}
    whole = ({f"{_SPECIFIC}.file", f"{_SPECIFIC}.pos"}, {f"{_SPECIFIC}.gtid-set"})
    if (mode == "specific-offset" and given not in whole) or (mode != "specific-offset" and given):
        raise wrong(
            _SPECIFIC,
            "either '….file' and '….pos' or '….gtid-set', for 'scan.startup.mode' = 'specific-offset'",
            ", ".join(sorted(given)) or "none of them",
        )
    at = options["scan.startup.timestamp-millis"]
    if (mode == "timestamp") != (at is not None):
        raise wrong(
            "scan.startup.timestamp-millis",
            "a time with 'scan.startup.mode' = 'timestamp', else none",
            repr(at),
        )
