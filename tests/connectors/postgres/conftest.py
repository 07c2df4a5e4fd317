from tests.servers.fixtures import own_postgres, postgres_database, shared_mariadb, shared_postgres

__all__ = ["own_postgres", "postgres_database", "shared_mariadb", "shared_postgres"]
