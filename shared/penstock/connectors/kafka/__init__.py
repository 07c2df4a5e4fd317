"""``kafka`` and ``upsert-kafka``: topics of an Apache Kafka cluster, by librdkafka."""

from penstock.connectors.kafka.connector import KafkaConnector, UpsertKafkaConnector

__all__ = ["KafkaConnector", "UpsertKafkaConnector"]
