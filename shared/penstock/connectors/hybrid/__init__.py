"""``hybrid``: a table whose rows are a bounded history first, then a live stream."""

from penstock.connectors.hybrid.connector import HybridConnector

__all__ = ["HybridConnector"]
