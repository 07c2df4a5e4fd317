from tests.servers.fixtures import own_kafka, schema_registry, shared_kafka

__all__ = ["own_kafka", "schema_registry", "shared_kafka"]
