"""Reads tables of PostgreSQL and compares them with what their changelog says."""

from __future__ import annotations

from typing import Any

from penstock.connectors.postgres_cdc import PostgresCdcConnector
from penstock.types import Schema
from tests.connectors import replayed
from tests.connectors.replayed import Replayed
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

__all__ = ["Reading", "Replayed", "options"]


def options(server: PostgresServer, database: str, table: str, **more: str) -> dict[str, str]:
    return {
        "connector": "postgres-cdc", "hostname": "127.0.0.1", "port": str(server.port), "username": USER,
        "password": PASSWORD, "database-name": database, "schema-name": "public", "table-name": table,
        "slot.name": f"s_{database}_{table}"[:60], **more,
    }  # fmt: skip


class Reading(replayed.Reading):
    """A reader of ``postgres-cdc``."""

    def __init__(self, schema: Schema, given: dict[str, str], **more: Any) -> None:
        super().__init__(PostgresCdcConnector(), schema, given, **more)
