"""Fixtures of real servers; the tests that ask for one skip where it was not fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers import (
    cache,
    iceberg_rest_server,
    mariadb_server,
    mosquitto_server,
    mysql_server,
    object_servers,
    postgres_server,
    rabbitmq_server,
)
from tests.servers.apicurio_server import ApicurioServer
from tests.servers.iceberg_rest_server import IcebergRestServer
from tests.servers.kafka_server import KafkaServer
from tests.servers.mariadb_server import MariaDbServer
from tests.servers.mosquitto_server import MosquittoServer
from tests.servers.mysql_server import MySqlServer
from tests.servers.object_servers import AzuriteServer, MinioServer
from tests.servers.opensearch_server import OpenSearchServer
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.servers.redis_server import RedisServer

S = TypeVar("S", MariaDbServer, AzuriteServer, MinioServer, IcebergRestServer)


@pytest.fixture(scope="session")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker for the tests that make topics of their own and leave the rest alone."""
    yield from _broker(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker for one test, which may kill it."""
    yield from _broker(tmp_path / "kafka")


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioServer]:
    """One schema registry for the tests that use subjects of their own and leave the rest alone."""
    if why := cache.missing("apicurio"):
        pytest.skip(why)
    server = ApicurioServer(tmp_path_factory.mktemp("registry"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Valkey for the tests that use keys of their own and leave the rest alone."""
    yield from _redis(tmp_path_factory.mktemp("redis"))


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Valkey for one test, which may kill it."""
    yield from _redis(tmp_path / "redis")


def _redis(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_rabbitmq() -> Iterator[RabbitMqServer]:
    """One RabbitMQ for the tests that use queues of their own. A start takes 6 s of CPU time, so a test that kills it starts
    it again instead of having its own."""
    if why := rabbitmq_server.missing():
        pytest.skip(why)
    server = RabbitMqServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_mosquitto() -> Iterator[MosquittoServer]:
    """One Mosquitto for the tests that use topics of their own and leave the rest alone."""
    yield from _mosquitto()


@pytest.fixture
def own_mosquitto() -> Iterator[MosquittoServer]:
    """A Mosquitto for one test, which may end it."""
    yield from _mosquitto()


def _mosquitto() -> Iterator[MosquittoServer]:
    if why := mosquitto_server.missing():
        pytest.skip(why)
    server = MosquittoServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """One MinIO for the tests that use keys of their own and leave the rest alone."""
    yield from _minio(tmp_path_factory.mktemp("minio"))


@pytest.fixture
def own_minio(tmp_path: Path) -> Iterator[MinioServer]:
    """A MinIO for one test, which may kill it."""
    yield from _minio(tmp_path / "minio")


def _minio(folder: Path) -> Iterator[MinioServer]:
    if why := object_servers.missing("minio"):
        pytest.skip(why)
    yield from _started(MinioServer(folder))


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRestServer]:
    """One REST catalog for the tests that use namespaces of their own. A start takes seconds, so a test that kills it
    starts it again instead of having its own."""
    if why := iceberg_rest_server.missing():
        pytest.skip(why)
    yield from _started(IcebergRestServer(tmp_path_factory.mktemp("iceberg-rest")))


@pytest.fixture(scope="session")
def shared_azurite() -> Iterator[AzuriteServer]:
    """One Azurite for the tests that use keys of their own and leave the rest alone."""
    if why := object_servers.missing("azurite-blob"):
        pytest.skip(why)
    yield from _started(AzuriteServer())


@pytest.fixture(scope="session")
def shared_opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearchServer]:
    """One search server for the tests that use indices of their own and leave the rest alone."""
    yield from _opensearch(tmp_path_factory.mktemp("opensearch"))


@pytest.fixture
def own_opensearch(tmp_path: Path) -> Iterator[OpenSearchServer]:
    """A search server for one test, which may kill it."""
    yield from _opensearch(tmp_path / "opensearch")


def _opensearch(folder: Path) -> Iterator[OpenSearchServer]:
    if why := cache.missing("opensearch"):
        pytest.skip(why)
    server = OpenSearchServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _broker(folder: Path) -> Iterator[KafkaServer]:
    if why := cache.missing("kafka"):
        pytest.skip(why)
    server = KafkaServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for the tests that make databases of their own and leave the rest alone."""
    yield from _postgres()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for one test, which may kill it."""
    yield from _postgres()


@pytest.fixture
def postgres_database(shared_postgres: PostgresServer) -> Iterator[str]:
    """A database of its own; its slots go with it."""
    name = shared_postgres.database()
    yield name
    shared_postgres.drop(name)


def _postgres() -> Iterator[PostgresServer]:
    if why := postgres_server.missing():
        pytest.skip(why)
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_mariadb() -> Iterator[MariaDbServer]:
    """One MariaDB for the tests that make databases of their own and leave the rest alone."""
    yield from _mariadb()


@pytest.fixture
def own_mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB for one test, which may kill it."""
    yield from _mariadb()


def _mariadb() -> Iterator[MariaDbServer]:
    if why := mariadb_server.missing():
        pytest.skip(why)
    yield from _started(MariaDbServer())


@pytest.fixture(scope="session")
def shared_mysql() -> Iterator[MySqlServer]:
    """One MySQL for the tests that make databases of their own and leave the rest alone."""
    yield from _mysql()


@pytest.fixture
def own_mysql() -> Iterator[MySqlServer]:
    """A MySQL for one test, which may kill it."""
    yield from _mysql()


def _mysql() -> Iterator[MySqlServer]:
    if why := mysql_server.missing():
        pytest.skip(why)
    server = MySqlServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _started(server: S) -> Iterator[S]:
    try:
        server.start()
        yield server
    finally:
        server.stop()
