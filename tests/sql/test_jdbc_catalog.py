"""Catalogs of the type 'jdbc': a live PostgreSQL, MariaDB and SQLite file, shown, read and written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from tests.servers.mariadb_server import MariaDbServer
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

POSTGRES = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE kinds (id bigint, part int, s smallint NOT NULL, r real, d double precision, n numeric(12, 2), free numeric,
  ok boolean, t text, v varchar(9), c char(3), u uuid, m mood, b bytea, day date, tm time(3), ts timestamp(3), tz timestamptz,
  PRIMARY KEY (part, id));
CREATE TABLE orders (id bigint PRIMARY KEY, cents int NOT NULL);
INSERT INTO orders VALUES (1, 10), (2, 20);
CREATE VIEW big AS SELECT * FROM orders WHERE cents > 10;
CREATE TABLE odd (id int, what jsonb);
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id bigint PRIMARY KEY, note text);
INSERT INTO sales.orders VALUES (1, 'one');
"""
KINDS = [
    ("id", "BIGINT", "FALSE"), ("part", "INT", "FALSE"), ("s", "SMALLINT", "FALSE"), ("r", "FLOAT", "TRUE"),
    ("d", "DOUBLE", "TRUE"), ("n", "DECIMAL(12, 2)", "TRUE"), ("free", "DECIMAL(38, 18)", "TRUE"),
    ("ok", "BOOLEAN", "TRUE"), ("t", "STRING", "TRUE"), ("v", "VARCHAR(9)", "TRUE"), ("c", "CHAR(3)", "TRUE"),
    ("u", "STRING", "TRUE"), ("m", "STRING", "TRUE"), ("b", "BYTES", "TRUE"), ("day", "DATE", "TRUE"),
    ("tm", "TIME(3)", "TRUE"), ("ts", "TIMESTAMP(3)", "TRUE"), ("tz", "TIMESTAMP_LTZ(6)", "TRUE"),
]  # fmt: skip


def rows(session: SqlSession, text: str) -> list[Any]:
    """The rows of a statement about the catalog, or of a query that is run."""
    found = session.execute(text)
    if found.job is not None:
        return sorted(run_graph(found.job.job_graph).rows)
    got = list(found.rows or ())
    return [row[0] for row in got] if got and len(got[0]) == 1 else got


def declared(url: str, database: str, name: str = "house", **more: str) -> str:
    options = {"type": "jdbc", "base-url": url, "default-database": database, **more}
    given = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    return f"CREATE CATALOG {name} WITH ({given})"


@pytest.mark.cluster
def test_a_postgresql(shared_postgres: PostgresServer, postgres_database: str, monkeypatch: Any) -> None:
    shared_postgres.execute(POSTGRES, database=postgres_database)
    monkeypatch.setenv("PENSTOCK_SECRET_house", PASSWORD)
    session = SqlSession()
    url = f"jdbc:postgresql://127.0.0.1:{shared_postgres.port}/"
    session.execute(declared(url, postgres_database, username=USER, password="secret:house"))
    assert {"postgres", postgres_database} <= set(rows(session, "SHOW DATABASES FROM house"))
    tables = ["public.big", "public.kinds", "public.odd", "public.orders", "sales.orders"]
    assert rows(session, f"SHOW TABLES FROM house.{postgres_database}") == tables
    assert [row[:3] for row in rows(session, f"DESCRIBE house.{postgres_database}.kinds")] == KINDS
    assert rows(session, f"SELECT id, note FROM house.{postgres_database}.`sales.orders`") == [(1, "one")]

    session.execute("USE CATALOG house")
    assert rows(session, "SHOW CURRENT DATABASE") == [postgres_database]
    assert (
        rows(session, "SELECT * FROM orders")
        == rows(session, "SELECT * FROM `public.orders`")
        == [(1, 10), (2, 20)]
    )
    assert rows(session, "SELECT orders.id FROM public.orders") == [(1,), (2,)]
    assert rows(session, f"SELECT id FROM {postgres_database}.big") == [(2,)]
    rows(session, "INSERT INTO orders VALUES (2, 21), (3, 30)")  # by its key, which the catalog knows
    rows(session, "INSERT INTO `sales.orders` SELECT id, 'new' FROM orders WHERE cents > 20")
    ask = lambda statement: sorted(shared_postgres.execute(statement, database=postgres_database))  # noqa: E731
    assert ask("SELECT * FROM orders") == [(1, 10), (2, 21), (3, 30)]
    assert ask("SELECT * FROM sales.orders") == [(1, "one"), (2, "new"), (3, "new")]

    shown = rows(session, "SHOW CREATE TABLE kinds")[0]
    assert "PRIMARY KEY (`part`, `id`) NOT ENFORCED" in shown
    assert "'table-name' = 'public.kinds'" in shown
    assert "'password' = 'secret:house'" in shown
    assert PASSWORD not in shown
    shared_postgres.execute("ALTER TABLE orders ADD note text", database=postgres_database)
    assert ("note", "STRING", "TRUE") in [row[:3] for row in rows(session, "DESCRIBE orders")]
    with pytest.raises(UnsupportedError, match=r"column 'what' of table 'public\.odd'") as caught:
        session.execute("SELECT id FROM odd")
    assert caught.value.got == "jsonb"
    for missing in ("nowhere", "`sales.nowhere`", "nowhere.orders", "house.nowhere.orders"):
        with pytest.raises(PenstockError, match="nowhere"):
            session.execute(f"SELECT * FROM {missing}")
    with pytest.raises(PenstockError, match="nowhere"):
        session.execute("USE nowhere")


@pytest.mark.cluster
def test_every_kind_goes_in_and_comes_out(shared_postgres: PostgresServer, postgres_database: str) -> None:
    shared_postgres.execute(POSTGRES, database=postgres_database)
    session = SqlSession()
    url = f"jdbc:postgresql://127.0.0.1:{shared_postgres.port}"
    session.execute(declared(url, postgres_database, username=USER, password=PASSWORD))
    session.execute("USE CATALOG house")
    shared_postgres.execute(
        "INSERT INTO kinds VALUES (1, 2, 3, 0.5, 0.1, 12.30, 1.000000000000000001, true, 'ä', 'v', 'c', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'good', '\\x00ff', '2024-02-29', '01:02:03.004', '2024-01-02 03:04:05.678', "
        "'2024-01-02 03:04:05.678901+00')",
        database=postgres_database,
    )
    names = ", ".join(name for name, _, _ in KINDS)
    [before] = rows(session, "SELECT * FROM kinds")
    assert before[10] == "c  "
    rows(session, f"INSERT INTO kinds SELECT id + 1, {names.removeprefix('id, ')} FROM kinds")
    first, second = rows(session, "SELECT * FROM kinds")
    assert first == before
    assert second == (2, *before[1:])


@pytest.mark.cluster
def test_a_mariadb(shared_mariadb: MariaDbServer) -> None:
    database = shared_mariadb.database()
    try:
        shared_mariadb.execute(
            "CREATE TABLE kinds (id bigint unsigned, yes tinyint(1), tiny tinyint, small smallint unsigned NOT NULL, n decimal(12, 2), "
            "name varchar(9), body longtext, raw blob, day date, tm time(3), dt datetime(6), ts timestamp(3) NULL, e enum('a', 'b'), "
            "y year, bit1 bit(1), f float, d double, PRIMARY KEY (id))",
            database=database,
        )
        shared_mariadb.execute("INSERT INTO kinds (id, yes, small, ts, bit1) VALUES (18446744073709551615, 1, 65535, "
                               "'2024-01-02 03:04:05.678', b'1')", database=database)  # fmt: skip
        session = SqlSession()
        url = f"jdbc:mariadb://127.0.0.1:{shared_mariadb.port}/"
        session.execute(declared(url, database, username=USER, password=PASSWORD))
        assert database in rows(session, "SHOW DATABASES FROM house")
        assert "mysql" not in rows(session, "SHOW DATABASES FROM house")
        assert rows(session, f"SHOW TABLES FROM house.{database}") == ["kinds"]
        assert [row[:3] for row in rows(session, f"DESCRIBE house.{database}.kinds")] == [
            ("id", "DECIMAL(20, 0)", "FALSE"), ("yes", "BOOLEAN", "TRUE"), ("tiny", "TINYINT", "TRUE"), ("small", "INT", "FALSE"),
            ("n", "DECIMAL(12, 2)", "TRUE"), ("name", "VARCHAR(9)", "TRUE"), ("body", "STRING", "TRUE"), ("raw", "BYTES", "TRUE"),
            ("day", "DATE", "TRUE"), ("tm", "TIME(3)", "TRUE"), ("dt", "TIMESTAMP(6)", "TRUE"), ("ts", "TIMESTAMP_LTZ(3)", "TRUE"),
            ("e", "STRING", "TRUE"), ("y", "INT", "TRUE"), ("bit1", "BOOLEAN", "TRUE"), ("f", "FLOAT", "TRUE"), ("d", "DOUBLE", "TRUE"),
        ]  # fmt: skip
        [row] = rows(session, f"SELECT id, yes, small, bit1 FROM house.{database}.kinds")
        assert row == (18446744073709551615, True, 65535, True)
        rows(session, f"INSERT INTO house.{database}.kinds (id, small, name) VALUES (1, 2, 'x')")
        assert shared_mariadb.execute(
            "SELECT id, small, name FROM kinds WHERE id = 1", database=database
        ) == [(1, 2, "x")]
    finally:
        shared_mariadb.drop(database)


def test_a_sqlite_file(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.executescript(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL, price DECIMAL(8, 2), at DATETIME, ok BOOL);"
            "INSERT INTO orders VALUES (1, 'a', '1.50', '2024-01-02 03:04:05', 1);"
            "CREATE TABLE bare (x); CREATE TABLE sums (name TEXT PRIMARY KEY, n BIGINT)"
        )
    session = SqlSession()
    session.execute(declared(f"jdbc:sqlite:{tmp_path}/shop.db", "main"))
    session.execute("USE CATALOG house")
    assert rows(session, "SHOW DATABASES") == ["main"]
    described = [("name", "main"), ("catalog", "house"), ("comment", "")]
    assert rows(session, "DESCRIBE DATABASE EXTENDED main") == described
    assert rows(session, "SHOW TABLES") == ["bare", "orders", "sums"]
    assert [row[:3] for row in rows(session, "DESCRIBE orders")] == [
        ("id", "BIGINT", "FALSE"), ("name", "STRING", "FALSE"), ("price", "DECIMAL(8, 2)", "TRUE"), ("at", "TIMESTAMP(6)", "TRUE"),
        ("ok", "BOOLEAN", "TRUE"),
    ]  # fmt: skip
    assert [row[:2] for row in rows(session, "SELECT * FROM main.orders")] == [(1, "a")]
    rows(session, "INSERT INTO sums SELECT name, COUNT(*) FROM orders GROUP BY name")
    assert rows(session, "SELECT * FROM sums") == [("a", 1)]
    with pytest.raises(UnsupportedError, match="column 'x'"):
        session.execute("SELECT * FROM bare")
    for statement in (
        "CREATE DATABASE more", "CREATE TABLE t (id INT) WITH ('connector' = 'blackhole')", "DROP TABLE orders",
        "ALTER TABLE orders RENAME TO sold", "ALTER TABLE orders SET ('scan.fetch-size' = '1')",
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match="in a catalog of the type 'jdbc'"):
            session.execute(statement)
    session.execute("CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'blackhole')")
    assert "t" in rows(session, "SHOW TABLES")


@pytest.mark.parametrize(("url", "more", "words"), [
    ("jdbc:oracle://h/", {}, "cannot be opened"), ("jdbc:sqlite:/nowhere/x.db", {}, "no database at"),
    ("jdbc:sqlite:/nowhere/x.db", {"user": "me"}, "unknown option 'user'"),
    ("jdbc:sqlite:/nowhere/x.db", {"default-database": "shop"}, "a SQLite file has one database"),
])  # fmt: skip
def test_what_cannot_be_opened_is_refused(url: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(PenstockError, match=words):
        SqlSession().execute(declared(url, "main", **more))
