"""The connector ``iceberg``: tables of Apache Iceberg."""

from penstock.connectors.iceberg.connector import IcebergConnector

__all__ = ["IcebergConnector"]
