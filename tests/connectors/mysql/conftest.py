from tests.servers.fixtures import own_mariadb, own_mysql, shared_mariadb, shared_mysql

__all__ = ["own_mariadb", "own_mysql", "shared_mariadb", "shared_mysql"]
