"""``nats``: JetStream streams as sources and sinks."""

from penstock.connectors.nats.connector import NatsConnector

__all__ = ["NatsConnector"]
