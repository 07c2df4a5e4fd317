"""``nexmark``: an auction site's events, made inside the source."""

from penstock.connectors.nexmark.connector import NexmarkConnector

__all__ = ["NexmarkConnector"]
