"""``faker``: made-up names, addresses and the like."""

from penstock.connectors.faker.connector import FakerConnector

__all__ = ["FakerConnector"]
