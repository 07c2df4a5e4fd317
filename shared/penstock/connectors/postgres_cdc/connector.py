"""Options and checks of ``postgres-cdc``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.away import need_package
from penstock.connectors.cdc.connector import FollowingConnector, check_options
from penstock.connectors.postgres_cdc.settings import METADATA, OPTIONS, OWNER
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class PostgresCdcConnector(FollowingConnector):
    """The connector ``postgres-cdc``: a source of rows and their changes."""

    name = "postgres-cdc"
    location = ("hostname", "port", "database-name", "schema-name", "table-name", "slot.name")
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        options = OPTIONS.read(table.options)
        self._check_options(options)
        need_package("psycopg", "psycopg", "postgres-cdc", OWNER)
        from penstock.connectors.postgres_cdc.checks import check_database

        check_database(table.schema, options, table.primary_key)

    def _check_options(self, options: dict[str, Any]) -> None:
        slot = options["slot.name"]
        if options["scan.startup.mode"] != "snapshot" and (slot is None or not _SLOT_NAME.fullmatch(slot)):
            raise ConnectorError(
                "option 'slot.name' is missing"
                if slot is None
                else "option 'slot.name' is no name of a slot",
                expected="1 to 63 lower-case letters, digits and '_'",
                got="no such option" if slot is None else repr(slot),
                where=OWNER,
                remedy="add 'slot.name', a name of its own for each job and table",
            )
        check_options(options, OWNER, patterns=("schema-name", "table-name"))

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.postgres_cdc.source import PostgresCdcEnumerator

        return PostgresCdcEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.postgres_cdc.source import PostgresCdcReader

        return PostgresCdcReader(table)
