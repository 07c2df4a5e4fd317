"""Bounded jobs on Spark through connectors with servers and libraries of their own: what their pages say of Spark."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UnsupportedError
from penstock.spark.engine import SparkJob
from penstock.sql.scripts import plan_script
from tests.connectors.web.tcp import TcpServer
from tests.servers.postgres_server import PASSWORD, USER
from tests.spark.support import on_spark

WANT = [(i, f"name {i}") for i in range(5)]
VALUES = ", ".join(f"({i}, '{name}')" for i, name in WANT)


def script(options: dict[str, str], statement: str, columns: str = "id BIGINT, name STRING") -> Any:
    words = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    text = f"CREATE TABLE t ({columns}) WITH ({words}); {statement}"
    return plan_script(text, {"execution.engine": "streaming"}).job_graph


def lake(name: str, folder: Path) -> dict[str, str]:
    if name == "delta":
        pytest.importorskip("deltalake")
        return {"connector": "delta", "table-path": str(folder / "t")}
    pytest.importorskip("pyiceberg")
    return {
        "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}", "catalog-database": "db", "catalog-table": "t",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_lakehouse_tables_are_written_and_read(spark: Any, tmp_path: Path, name: str) -> None:
    options = lake(name, tmp_path)
    for _ in range(2):
        SparkJob(script(options, f"INSERT INTO t VALUES {VALUES}"), spark).run()
    assert sorted(on_spark(script(options, "SELECT * FROM t WHERE id > 0"), spark)) == sorted(WANT[1:] * 2)


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_rows_of_lakehouse_tables_replace_those_of_their_key(spark: Any, tmp_path: Path, name: str) -> None:
    """Also those of one statement, in whichever task of Spark they come."""
    columns = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    many = ", ".join(f"({i % 3}, 'n')" for i in range(30))
    for values in (many, "(1, 'new'), (7, 'more')"):
        SparkJob(script(lake(name, tmp_path), f"INSERT INTO t VALUES {values}", columns), spark).run()
    found = on_spark(script(lake(name, tmp_path), "SELECT id, name FROM t", columns), spark)
    assert sorted(found) == [(0, "n"), (1, "new"), (2, "n"), (7, "more")]


@pytest.mark.cluster
def test_the_snapshot_of_postgres_is_read(spark: Any, shared_postgres: Any) -> None:
    database = shared_postgres.database()
    try:
        with shared_postgres.connect(database) as connection:
            connection.execute("CREATE TABLE goods (id bigint PRIMARY KEY, name text)")
            connection.execute(f"INSERT INTO goods VALUES {VALUES}")
        options = {
            "connector": "postgres-cdc", "hostname": "127.0.0.1", "port": str(shared_postgres.port),
            "username": USER, "password": PASSWORD, "database-name": database, "table-name": "goods",
            "scan.startup.mode": "snapshot", "scan.incremental.snapshot.chunk.size": "2",
        }  # fmt: skip
        columns = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
        assert sorted(on_spark(script(options, "SELECT id, name FROM t", columns), spark)) == WANT
    finally:
        shared_postgres.drop(database)


@pytest.mark.cluster
def test_redis_is_written_and_its_streams_are_read(spark: Any, shared_redis: Any) -> None:
    word = uuid.uuid4().hex
    stream = {
        "connector": "redis", "url": shared_redis.url, "data-type": "stream", "key": f"{word}-s",
        "scan.bounded.mode": "latest",
    }  # fmt: skip
    written = {key: value for key, value in stream.items() if key != "scan.bounded.mode"}
    SparkJob(script(written, f"INSERT INTO t VALUES {VALUES}"), spark).run()
    assert sorted(on_spark(script(stream, "SELECT * FROM t"), spark)) == WANT
    hashes = {"connector": "redis", "url": shared_redis.url, "data-type": "hash", "key": f"{word}:{{id}}"}
    columns = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    SparkJob(script(hashes, f"INSERT INTO t VALUES {VALUES}", columns), spark).run()
    client = shared_redis.client()
    assert [client.hget(f"{word}:{i}", "name") for i, _ in WANT] == [name for _, name in WANT]


def test_tables_are_truncated(spark: Any, tmp_path: Path) -> None:
    files = {"connector": "filesystem", "path": str(tmp_path / "t"), "format": "json"}
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE goods (id INTEGER, name TEXT)")
    rows = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/x.db", "table-name": "goods"}
    for options in (files, rows):
        SparkJob(script(options, f"INSERT INTO t VALUES {VALUES}"), spark).run()
        assert sorted(on_spark(script(options, "SELECT * FROM t"), spark)) == WANT
        SparkJob(script(options, "TRUNCATE TABLE t"), spark).run()
        SparkJob(script(options, "INSERT INTO t VALUES (9, 'z')"), spark).run()
        assert on_spark(script(options, "SELECT * FROM t"), spark) == [(9, "z")]
    driver = {"connector": "jdbc", "url": "jdbc:h2:mem:x", "table-name": "t", "driver": "org.h2.Driver"}
    with pytest.raises(UnsupportedError, match="TRUNCATE TABLE through Spark's JDBC"):
        SparkJob(script(driver, "TRUNCATE TABLE t"), spark).run()


def test_rows_are_updated_and_deleted(spark: Any, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)")
    rows = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/x.db", "table-name": "goods"}
    for options in (rows, lake("delta", tmp_path)):
        SparkJob(script(options, f"INSERT INTO t VALUES {VALUES}"), spark).run()
        keyed = "id BIGINT, name STRING" + (", PRIMARY KEY (id) NOT ENFORCED" if options is rows else "")
        SparkJob(script(options, "UPDATE t SET name = 'new' WHERE id = 2", keyed), spark).run()
        SparkJob(
            script(options, "DELETE FROM t AS x WHERE x.id = (SELECT MAX(id) FROM t)", keyed), spark
        ).run()
        want = [(i, "new" if i == 2 else name) for i, name in WANT][:-1]
        assert sorted(on_spark(script(options, "SELECT * FROM t"), spark)) == want


@pytest.fixture
def listening() -> Iterator[TcpServer]:
    server = TcpServer("".join(f'{{"id": {i}, "name": "{name}"}}\n' for i, name in WANT).encode())
    yield server
    server.close()


def test_a_socket_is_read_to_its_end(spark: Any, listening: TcpServer) -> None:
    options = {
        "connector": "socket", "hostname": "127.0.0.1", "port": str(listening.port), "format": "json",
        "scan.bounded.mode": "end-of-stream",
    }  # fmt: skip
    assert sorted(on_spark(script(options, "SELECT * FROM t"), spark)) == WANT


def test_a_socket_is_written(spark: Any) -> None:
    server = TcpServer()
    try:
        options = {"connector": "socket", "hostname": "127.0.0.1", "port": str(server.port), "format": "json"}
        SparkJob(script(options, f"INSERT INTO t VALUES {VALUES}"), spark).run()
        assert sorted(server.text().decode().splitlines()) == [f'{{"id":{i},"name":"{n}"}}' for i, n in WANT]
    finally:
        server.close()


@pytest.mark.cluster
@pytest.mark.parametrize("key", [True, False])
def test_documents_are_written(spark: Any, shared_opensearch: Any, key: bool) -> None:
    index = f"i{uuid.uuid4().hex}"
    options = {"connector": "opensearch", "hosts": shared_opensearch.url, "index": index}
    columns = "id BIGINT, name STRING" + ", PRIMARY KEY (id) NOT ENFORCED" * key
    SparkJob(script(options, f"INSERT INTO t VALUES {VALUES}", columns), spark).run()
    found = shared_opensearch.documents(index)
    assert sorted((row["id"], row["name"]) for row in found.values()) == WANT
    assert not key or set(found) == {str(i) for i, _ in WANT}
