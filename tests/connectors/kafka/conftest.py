from tests.servers.fixtures import own_kafka, shared_kafka

__all__ = ["own_kafka", "shared_kafka"]
