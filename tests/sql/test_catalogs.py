"""Catalogs that outlive a session: Penstock's own log, Iceberg's, the catalog store, and names of three parts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConnectorError, PenstockError, SecretError, SqlError, UnsupportedError
from penstock.sql.catalogs.log import Change, LogCatalog, State
from penstock.sql.catalogs.port import ChangedError
from penstock.sql.session import SqlSession
from penstock.store.memory import MemoryStore


def new(tmp_path: Path) -> SqlSession:
    """A session whose catalog store is a folder."""
    return SqlSession(
        {"table.catalog-store.kind": "file", "table.catalog-store.file.path": str(tmp_path / "store")}
    )


def rows(session: SqlSession, text: str) -> list[Any]:
    found = session.execute(text).rows
    return [row[0] for row in found] if found and len(found[0]) == 1 else list(found)


OWN = "CREATE CATALOG house WITH ('type' = 'penstock', 'path' = '{path}')"
TABLE = """CREATE TABLE {name} (id BIGINT NOT NULL, `a b` STRING COMMENT 'it''s', ts TIMESTAMP(3), twice AS id * 2,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) COMMENT 'all'
  WITH ('connector' = 'datagen', 'number-of-rows' = '3')"""


def test_tables_outlive_the_session(tmp_path: Path) -> None:
    first = new(tmp_path)
    first.execute(OWN.format(path=tmp_path / "house"))
    first.execute("USE CATALOG house")
    assert rows(first, "SHOW CURRENT DATABASE") == ["default"]
    first.execute("CREATE DATABASE shop COMMENT 'sales' WITH ('owner' = 'me')")
    first.execute("USE shop")
    first.execute(TABLE.format(name="orders"))
    declared = rows(first, "DESCRIBE orders")
    shown = rows(first, "SHOW CREATE TABLE orders")

    second = new(tmp_path)
    assert rows(second, "SHOW CATALOGS") == ["default_catalog", "house"]
    assert rows(second, "SHOW DATABASES FROM house") == ["default", "shop"]
    assert rows(second, "SHOW TABLES FROM house.shop") == ["orders"]
    assert rows(second, "SHOW TABLES") == []
    assert rows(second, "DESCRIBE house.shop.orders") == declared
    assert rows(second, "SHOW CREATE TABLE house.shop.orders") == shown
    assert "CREATE TABLE `house`.`shop`.`orders`" in shown[0]
    assert second.execute("SELECT id, twice FROM house.shop.orders").job is not None
    second.execute("USE CATALOG house")
    assert second.execute("SELECT o.id FROM shop.orders AS o").job is not None
    second.execute("USE house.shop")
    assert second.execute("SELECT orders.id FROM orders").job is not None
    second.execute("CREATE TABLE out (id BIGINT) WITH ('connector' = 'blackhole')")
    assert second.execute("INSERT INTO house.shop.out SELECT id FROM orders").job is not None
    third = new(tmp_path)
    third.execute("USE house.shop")
    with pytest.raises(SqlError, match="exists already"):
        third.execute(TABLE.format(name="orders"))


def test_changes_of_tables_are_kept(tmp_path: Path) -> None:
    session = new(tmp_path)
    session.execute(OWN.format(path=tmp_path / "house"))
    session.execute("USE CATALOG house")
    session.execute(TABLE.format(name="a"))
    session.execute("ALTER TABLE a SET ('number-of-rows' = '7')")
    session.execute("ALTER TABLE a RENAME TO b")
    session.execute("CREATE TABLE c LIKE b")
    session.execute("DROP TABLE b")
    session.execute("DROP TABLE IF EXISTS b")
    later = new(tmp_path)
    assert rows(later, "SHOW TABLES FROM house.`default`") == ["c"]
    assert "'number-of-rows' = '7'" in rows(later, "SHOW CREATE TABLE house.`default`.c")[0]


def test_temporary_things_stay_in_the_session(tmp_path: Path) -> None:
    session = new(tmp_path)
    session.execute(OWN.format(path=tmp_path / "house"))
    session.execute("USE CATALOG house")
    session.execute(TABLE.format(name="t"))
    session.execute("CREATE TEMPORARY VIEW v AS SELECT id FROM t")
    session.execute("CREATE TEMPORARY TABLE x (id BIGINT) WITH ('connector' = 'blackhole')")
    assert rows(session, "SHOW TABLES") == ["t", "v", "x"]
    assert session.execute("SELECT * FROM v").job is not None
    with pytest.raises(UnsupportedError, match="a view in catalog 'house'"):
        session.execute("CREATE VIEW w AS SELECT id FROM t")
    assert rows(new(tmp_path), "SHOW TABLES FROM house.`default`") == ["t"]


def test_databases(tmp_path: Path) -> None:
    session = new(tmp_path)
    session.execute(OWN.format(path=tmp_path / "house"))
    session.execute("CREATE DATABASE IF NOT EXISTS house.one")
    session.execute("CREATE DATABASE IF NOT EXISTS house.one")
    with pytest.raises(SqlError, match="exists already"):
        session.execute("CREATE DATABASE house.one")
    session.execute("ALTER DATABASE house.one SET ('owner' = 'you')")
    session.execute("CREATE TABLE house.one.t (id BIGINT) WITH ('connector' = 'blackhole')")
    with pytest.raises(SqlError, match="has tables: t"):
        session.execute("DROP DATABASE house.one")
    session.execute("DROP DATABASE house.one CASCADE")
    session.execute("DROP DATABASE IF EXISTS house.one")
    with pytest.raises(SqlError, match="no database 'one'"):
        session.execute("DROP DATABASE house.one")
    with pytest.raises(SqlError, match="has one database"):
        session.execute("CREATE DATABASE more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE CATALOG x WITH ('type' = 'penstok')", "no known type"),
        ("CREATE CATALOG x WITH ('path' = 'y')", "no known type"),
        ("CREATE CATALOG x WITH ('type' = 'penstock')", "option 'path' is missing"),
        ("CREATE CATALOG x WITH ('type' = 'generic_in_memory', 'path' = 'y')", "unknown option 'path'"),
        ("USE CATALOG nowhere", "unknown catalog 'nowhere'"),
        ("USE nowhere", "unknown database 'nowhere'"),
        ("SELECT * FROM nowhere.db.t", "unknown table"),
        ("DESCRIBE nowhere.db.t", "unknown"),
        ("DROP TABLE nowhere.db.t", "unknown catalog 'nowhere'"),
        (
            "CREATE TABLE default_catalog.other.t (id INT) WITH ('connector' = 'print')",
            "unknown database 'other'",
        ),
        ("CREATE TABLE nowhere.db.t (id INT) WITH ('connector' = 'print')", "unknown catalog 'nowhere'"),
        ("DROP CATALOG nowhere", "unknown catalog 'nowhere'"),
        ("DROP CATALOG default_catalog", "cannot be dropped"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PenstockError, match=words):
        new(tmp_path).execute(text)


def test_catalogs_are_described_with_the_names_of_secrets(tmp_path: Path, monkeypatch: Any) -> None:
    session = new(tmp_path)
    text = f"CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'sql', 'uri' = 'sqlite:///{tmp_path}/c.db', 'token' = 'secret:lake')"
    with pytest.raises(SecretError, match="no secret 'lake'"):
        session.execute(text)
    monkeypatch.setenv("PENSTOCK_SECRET_lake", "never-shown")
    session.execute(text)
    shown = rows(session, "SHOW CREATE CATALOG lake")[0]
    described = rows(session, "DESCRIBE CATALOG EXTENDED lake")
    kept = "".join(path.read_text() for path in (tmp_path / "store").glob("*.json"))
    for found in (shown, str(described), kept):
        assert "secret:lake" in found
        assert "never-shown" not in found
    session.execute("DROP CATALOG lake")
    assert rows(session, "SHOW CATALOGS") == ["default_catalog"]


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_an_iceberg_catalog(tmp_path: Path, request: Any, monkeypatch: Any, kind: str) -> None:
    session = new(tmp_path)
    given = f"'catalog-type' = 'sql', 'uri' = 'sqlite:///{tmp_path}/c.db', 'warehouse' = 'file://{tmp_path}'"
    if kind == "rest":
        server = request.getfixturevalue("iceberg_rest")
        given = f"'catalog-type' = 'rest', 'uri' = '{server.uri}', 'token' = 'secret:lake'"
        monkeypatch.setenv("PENSTOCK_SECRET_lake", "wrong")
        with pytest.raises(ConnectorError, match="refuses the credentials"):
            session.execute(f"CREATE CATALOG lake WITH ('type' = 'iceberg', {given})")
        monkeypatch.setenv("PENSTOCK_SECRET_lake", server.options["token"])
    session.execute(f"CREATE CATALOG lake WITH ('type' = 'iceberg', {given})")
    session.execute("CREATE DATABASE lake.db")
    session.execute("USE lake.db")
    session.execute("CREATE TABLE t (id BIGINT NOT NULL, part STRING, at TIMESTAMP(6)) PARTITIONED BY (part)")
    assert rows(session, "SHOW TABLES") == ["t"]
    assert "db" in rows(session, "SHOW DATABASES FROM lake")
    assert [row[:3] for row in rows(new(tmp_path), "DESCRIBE lake.db.t")] == [
        ("id", "BIGINT", "FALSE"), ("part", "STRING", "TRUE"), ("at", "TIMESTAMP(6)", "TRUE")
    ]  # fmt: skip
    session.execute(
        "CREATE TEMPORARY TABLE gen (id BIGINT NOT NULL, part STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '3')"
    )
    assert session.execute("INSERT INTO t SELECT id, part, NULL FROM gen").job is not None
    for more in ("PRIMARY KEY (id) NOT ENFORCED", "twice AS id * 2"):
        with pytest.raises(UnsupportedError, match="of an Iceberg catalog"):
            session.execute(f"CREATE TABLE u (id BIGINT NOT NULL, {more})")
    session.execute("ALTER TABLE t RENAME TO u")
    session.execute("DROP TABLE u")
    assert rows(new(tmp_path), "SHOW TABLES FROM lake.db") == []
    session.execute("DROP DATABASE lake.db")
    assert "db" not in rows(session, "SHOW DATABASES FROM lake")


@pytest.mark.parametrize("kind", ["hive", "glue", "hadoop"])
def test_other_types_of_iceberg_catalogs_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(PenstockError, match=f"an Iceberg catalog of the type '{kind}'"):
        new(tmp_path).execute(
            f"CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = '{kind}', 'uri' = 'thrift://h:9083')"
        )


# -- the log ---------------------------------------------------------------------------------


def test_who_loses_a_race_decides_again() -> None:
    store = MemoryStore()
    catalogs = [LogCatalog(store, "default") for _ in range(4)]
    refused: list[str] = []

    def work(n: int) -> None:
        for i in range(10):
            catalogs[n].put_table("default", f"t{n}-{i}", "own", seen=None)
            try:
                catalogs[n].put_table("default", f"shared{i}", f"of {n}", seen=None)
            except ChangedError as err:
                refused.append(str(err))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 30
    last = LogCatalog(store, "default")
    assert len(last.tables("default")) == 50
    assert all(c.tables("default") == last.tables("default") for c in catalogs)


def test_a_change_of_what_another_has_changed_is_refused() -> None:
    store = MemoryStore()
    one, two = LogCatalog(store, "default"), LogCatalog(store, "default")
    one.put_table("default", "t", "first", seen=None)
    two.put_table("default", "t", "second", seen="first")
    with pytest.raises(ChangedError, match="changed by another"):
        one.put_table("default", "t", "third", seen="first")
    assert one.table("default", "t") == "second"


def test_snapshots_hold_what_the_log_said() -> None:
    store = MemoryStore()
    catalog = LogCatalog(store, "default")
    for n in range(250):
        catalog.put_table("default", f"t{n}", str(n), seen=None)
    assert len(asyncio.run(store.list("snapshot/"))) == 2
    late = LogCatalog(store, "default")
    assert len(late.tables("default")) == 250
    # Without the entries that the last snapshot holds, a new reader sees the same.
    old = [key for key, _ in asyncio.run(store.list("log/")) if int(key[-12:]) <= 200]
    asyncio.run(store.delete(old))
    assert LogCatalog(store, "default").tables("default") == late.tables("default")


def test_a_state_is_the_sum_of_its_changes() -> None:
    state = State()
    for change in (
        Change(database="d", properties={"a": "1"}),
        Change(database="d", table="t", statement="one"),
        Change(database="d", table="t", statement="two"),
        Change(database="d", properties={"a": "2", "b": "3"}),
    ):
        state.apply(change)
    assert (state.version, state.databases["d"].properties) == (4, {"a": "2", "b": "3"})
    assert state.databases["d"].tables == {"t": "two"}
    state.apply(Change(database="d", table="t"))
    state.apply(Change(database="d"))
    assert state.databases == {}
