"""``rabbitmq``: queues and exchanges of RabbitMQ."""

from penstock.connectors.rabbitmq.connector import RabbitMqConnector

__all__ = ["RabbitMqConnector"]
