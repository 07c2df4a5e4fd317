"""``hybrid``: a table that consists of a bounded history followed by a live stream."""

from penstock.connectors.hybrid.connector import HybridConnector

__all__ = ["HybridConnector"]
