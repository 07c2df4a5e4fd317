"""``postgres-cdc``: the rows of PostgreSQL tables, then their changes, by logical replication."""

from penstock.connectors.postgres_cdc.connector import PostgresCdcConnector

__all__ = ["PostgresCdcConnector"]
