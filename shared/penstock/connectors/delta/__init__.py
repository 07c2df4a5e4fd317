"""The connector ``delta``: tables of Delta Lake."""

from penstock.connectors.delta.connector import DeltaConnector

__all__ = ["DeltaConnector"]
