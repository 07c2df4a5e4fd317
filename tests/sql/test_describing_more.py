"""ALTER CATALOG, DESCRIBE DATABASE and DESCRIBE FUNCTION."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api import udf
from penstock.errors import PenstockError
from penstock.sql.functions import user_function
from penstock.sql.session import SqlSession


def rows(session: SqlSession, statement: str) -> dict[str, str]:
    return dict(session.execute(statement).rows)


@pytest.fixture(params=["memory", "file"])
def session(request: pytest.FixtureRequest, tmp_path: Any) -> SqlSession:
    config = {}
    if request.param == "file":
        config = {
            "table.catalog-store.kind": "file",
            "table.catalog-store.file.path": str(tmp_path / "store"),
        }
    made = SqlSession(config)
    made.execute(f"CREATE CATALOG c COMMENT 'first' WITH ('type' = 'penstock', 'path' = '{tmp_path}/one')")
    made.execute("CREATE CATALOG m WITH ('type' = 'generic_in_memory')")
    return made


def test_a_catalog_is_altered(session: SqlSession, tmp_path: Any):
    session.execute("CREATE DATABASE c.db COMMENT 'words' WITH ('owner' = 'me', 'password' = 'x')")
    assert rows(session, "DESCRIBE CATALOG c")["comment"] == "first"
    session.execute("ALTER CATALOG c COMMENT 'second'")
    assert rows(session, "DESC CATALOG c")["comment"] == "second"
    assert rows(session, "DESCRIBE DATABASE c.db") == {"name": "db", "catalog": "c", "comment": "words"}
    more = rows(session, "DESC DATABASE EXTENDED c.db")
    assert more["property:owner"] == "me"
    assert more["property:password"] != "x"
    # Another folder holds other databases.
    session.execute(f"ALTER CATALOG c SET ('path' = '{tmp_path}/two')")
    assert [name for (name,) in session.execute("SHOW DATABASES FROM c").rows] == ["default"]
    [(shown,)] = session.execute("SHOW CREATE CATALOG c").rows
    assert shown.startswith("CREATE CATALOG `c` COMMENT 'second' WITH (")
    session.execute("ALTER CATALOG c RESET ('comment')")
    assert rows(session, "DESCRIBE CATALOG c")["comment"] == ""


def test_the_sessions_own_catalog_is_shown(session: SqlSession):
    [(shown,)] = session.execute("SHOW CREATE CATALOG default_catalog").rows
    assert "'type' = 'generic_in_memory'" in shown


def test_tables_of_a_catalog_in_memory_stay(session: SqlSession):
    session.execute("USE CATALOG m")
    session.execute("CREATE TABLE t (a INT) WITH ('connector' = 'print')")
    session.execute("ALTER CATALOG m COMMENT 'kept'")
    assert session.execute("SHOW TABLES").rows == (("t",),)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER CATALOG c RESET ('type')", "option 'type' of catalog 'c' cannot be reset"),
        ("ALTER CATALOG c SET ('type' = 'iceberg')", "option 'type' of catalog 'c' cannot be changed"),
        ("ALTER CATALOG c RESET ('fs.region')", "option 'fs.region' of catalog 'c' cannot be reset"),
        ("ALTER CATALOG c SET ('pth' = 'x')", "did you mean 'path'"),
        ("ALTER CATALOG nowhere COMMENT 'x'", "unknown catalog 'nowhere'"),
        ("ALTER CATALOG default_catalog COMMENT 'x'", "catalog 'default_catalog' cannot be altered"),
        ("ALTER CATALOG c RENAME TO d", "expected: SET, RESET or COMMENT"),
        ("DESCRIBE DATABASE c.nowhere", "unknown database 'nowhere'"),
        ("DESCRIBE FUNCTION uppr", "did you mean 'UPPER'"),
    ],
)
def test_what_is_wrong_is_named(session: SqlSession, statement: str, words: str):
    with pytest.raises(PenstockError) as caught:
        session.execute(statement)
    assert words in str(caught.value)
    assert rows(session, "DESCRIBE CATALOG c")["comment"] == "first"


def test_functions_are_described():
    session = SqlSession()
    system = {"is system function": "true", "is temporary": "false"}
    assert rows(session, "DESCRIBE FUNCTION upper") == system
    assert rows(session, "DESC FUNCTION EXTENDED Sum") == {
        **system,
        "kind": "AGGREGATE",
        "is deterministic": "true",
    }
    assert rows(session, "DESC FUNCTION EXTENDED RAND")["is deterministic"] == "false"
    assert rows(session, "DESCRIBE FUNCTION EXTENDED row_number")["kind"] == "AGGREGATE"

    @udf(result_type="BIGINT", input_types=["INT", "STRING"])
    def mine(a, b):
        return a

    session.catalog.functions.add(user_function("mine", mine, what="mine", where="here"))
    assert rows(session, "DESCRIBE FUNCTION EXTENDED MINE") == {
        "is system function": "false", "is temporary": "true", "function language": "PYTHON", "kind": "SCALAR",
        "signature": "mine(INT, STRING) => BIGINT", "per": "record",
    }  # fmt: skip
    # The word is a table's name where nothing follows.
    session.execute("CREATE TABLE `function` (a INT) WITH ('connector' = 'print')")
    assert session.execute("DESCRIBE `function`").rows[0][0] == "a"
