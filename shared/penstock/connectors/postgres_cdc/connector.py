"""Options and checks of ``postgres-cdc``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.postgres_cdc.database import need_client
from penstock.connectors.postgres_cdc.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.connectors.base import SourceEnumerator, SourceMode, SourceReader, TableInfo

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class PostgresCdcConnector(DeclaredConnector):
    """The connector ``postgres-cdc``: a source of rows and their changes."""

    name = "postgres-cdc"
    roles = ("source",)
    #: Decoding runs Python and NumPy for long, and queries block.
    runs = "helper"
    location = ("hostname", "port", "database-name", "schema-name", "table-name", "slot.name")
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        options = OPTIONS.read(table.options)
        self._check_options(options)
        need_client()
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
        if not options["scan.incremental.snapshot.enabled"]:
            raise ConnectorError(
                "option 'scan.incremental.snapshot.enabled' must be true",
                expected="true: the snapshot is taken in chunks, without a lock",
                got="false",
                where=OWNER,
                remedy="remove the option",
            )
        for key in ("scan.incremental.snapshot.chunk.size", "scan.snapshot.fetch.size"):
            if options[key] < 1:
                raise ConnectorError(
                    f"option '{key}' is too small", expected="1 or more", got=str(options[key]), where=OWNER
                )
        for key in ("schema-name", "table-name"):
            try:
                re.compile(options[key])
            except re.error as err:
                raise ConnectorError(
                    f"option '{key}' is no regular expression",
                    expected="a name, or a regular expression for whole names",
                    got=f"{options[key]!r}: {err}",
                    where=OWNER,
                ) from None

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.startup.mode") == "snapshot")

    def source_mode(self, table: TableInfo) -> SourceMode:
        if self.is_bounded(table):
            return "append"
        return "upsert" if OPTIONS.read_one(table.options, "changelog-mode") == "upsert" else "retract"

    def source_guarantee(self, table: TableInfo) -> str:
        return "exactly-once while the table does not change" if self.is_bounded(table) else "exactly-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.postgres_cdc.source import PostgresCdcEnumerator

        return PostgresCdcEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.postgres_cdc.source import PostgresCdcReader

        return PostgresCdcReader(table)
