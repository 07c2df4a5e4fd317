"""``nats-core``: subjects of NATS without JetStream."""

from penstock.connectors.nats_core.connector import NatsCoreConnector

__all__ = ["NatsCoreConnector"]
