"""ALTER TABLE of columns, key and watermark, and CREATE OR REPLACE TABLE."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError, SqlError
from penstock.sql.session import SqlSession

TABLE = """CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, ts TIMESTAMP(3), `a b` STRING, twice AS id * 2,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) COMMENT 'of things' WITH ('connector' = 'print')"""


def run(session: SqlSession, script: str) -> None:
    for result in session.run_script(script):
        assert result.kind in ("ddl", "set")


def shown(session: SqlSession, name: str = "t") -> str:
    return str(session.execute(f"SHOW CREATE TABLE {name}").rows[0][0])


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ALTER TABLE t ADD n BIGINT", ["id", "ts", "a b", "twice", "n"]),
        ("ALTER TABLE t ADD (n BIGINT AFTER id, m AS id + 1, o STRING FIRST)", ["o", "id", "n", "ts", "a b", "twice", "m"]),
        ("ALTER TABLE t MODIFY (`a b` INT FIRST)", ["a b", "id", "ts", "twice"]),
        ("ALTER TABLE t MODIFY `a b` INT AFTER id", ["id", "a b", "ts", "twice"]),
        ("ALTER TABLE t DROP `a b`", ["id", "ts", "twice"]),
        ("ALTER TABLE t DROP (`a b`, twice)", ["id", "ts"]),
        ("ALTER TABLE t RENAME `a b` TO `c``d`", ["id", "ts", "c`d", "twice"]),
        ("ALTER TABLE t DROP WATERMARK; ALTER TABLE t RENAME ts TO at", ["id", "at", "a b", "twice"]),
        ("ALTER TABLE t DROP (id, twice, `a b`)", None),
        ("ALTER TABLE t DROP PRIMARY KEY; ALTER TABLE t DROP (id, twice)", ["ts", "a b"]),
    ],
)  # fmt: skip
def test_columns(statement: str, columns: list[str] | None) -> None:
    session = SqlSession()
    run(session, TABLE)
    if columns is None:
        with pytest.raises(SqlError, match="part of the primary key"):
            run(session, statement)
        return
    run(session, statement)
    assert [row[0] for row in session.execute("DESCRIBE t").rows] == columns
    # What SHOW CREATE TABLE says declares the same table again.
    again = SqlSession()
    run(again, shown(session))
    assert shown(again) == shown(session)
    assert again.execute("DESCRIBE t").rows == session.execute("DESCRIBE t").rows


def test_key_and_watermark() -> None:
    session = SqlSession()
    run(session, TABLE + "; ALTER TABLE t DROP CONSTRAINT pk")
    assert "PRIMARY KEY" not in shown(session)
    run(session, "ALTER TABLE t ADD (PRIMARY KEY (id, ts) NOT ENFORCED)")
    assert "PRIMARY KEY (`id`, `ts`) NOT ENFORCED" in shown(session)
    run(session, "ALTER TABLE t MODIFY (CONSTRAINT k PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts)")
    assert "PRIMARY KEY (`id`) NOT ENFORCED" in shown(session)
    assert "WATERMARK FOR `ts` AS ts" in shown(session)
    assert "COMMENT 'of things'" in shown(session)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ADD id INT", "exists already"),
        ("ADD n INT AFTER m", "unknown column 'm'"),
        ("ADD PRIMARY KEY (ts) NOT ENFORCED", "has a primary key already"),
        ("ADD WATERMARK FOR ts AS ts", "has a watermark already"),
        ("ADD c AS nothing + 1", "unknown column 'nothing'"),
        ("MODIFY n INT", "unknown column 'n'"),
        ("DROP n", "unknown column 'n'"),
        ("DROP ts", "is read by the watermark"),
        ("DROP id", "read by the computed column 'twice'"),
        ("RENAME id TO x", "read by the computed column 'twice'"),
        ("RENAME `a b` TO id", "exists already"),
        ("RENAME n TO x", "unknown column 'n'"),
    ],
)
def test_what_does_not_fit_changes_nothing(change: str, words: str) -> None:
    session = SqlSession()
    run(session, TABLE)
    before = shown(session)
    with pytest.raises(PenstockError, match=words) as caught:
        run(session, f"ALTER TABLE t {change}")
    assert "line 1, column" in (caught.value.where or "")
    assert shown(session) == before


def test_a_stored_table_keeps_the_change(tmp_path: Path) -> None:
    made = f"CREATE CATALOG c WITH ('type' = 'penstock', 'path' = '{tmp_path}'); USE CATALOG c; "
    session = SqlSession()
    run(session, made + "CREATE DATABASE d; USE d; " + TABLE)
    run(session, "ALTER TABLE t ADD n BIGINT AFTER id; ALTER TABLE t RENAME `a b` TO ab")
    other = SqlSession()
    run(other, made + "USE d")
    assert [row[0] for row in other.execute("DESCRIBE t").rows] == ["id", "n", "ts", "ab", "twice"]


def test_create_or_replace_table() -> None:
    session = SqlSession()
    run(session, "CREATE OR REPLACE TABLE t (a INT) WITH ('connector' = 'print')")
    run(session, "CREATE OR REPLACE TABLE t (b INT) WITH ('connector' = 'blackhole')")
    assert "b INT" in shown(session)
    assert "blackhole" in shown(session)
    run(session, "CREATE VIEW v AS SELECT 1 AS x")
    for statement, words in (
        ("CREATE OR REPLACE TABLE v (a INT) WITH ('connector' = 'print')", "exists"),
        ("CREATE OR REPLACE TEMPORARY TABLE t (a INT) WITH ('connector' = 'print')", "not temporary"),
        ("CREATE OR REPLACE TABLE t WITH ('connector' = 'print') AS SELECT 1 AS x", "TABLE … AS"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT) WITH ('connector' = 'print')", "IF NOT EXISTS"),
    ):
        with pytest.raises(PenstockError, match=words):
            run(session, statement)
