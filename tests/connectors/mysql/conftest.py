from tests.servers.fixtures import own_mariadb, shared_mariadb

__all__ = ["own_mariadb", "shared_mariadb"]
