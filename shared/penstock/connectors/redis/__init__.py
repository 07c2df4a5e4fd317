"""``redis``: keys of Redis or Valkey, and their streams."""

from penstock.connectors.redis.connector import RedisConnector

__all__ = ["RedisConnector"]
