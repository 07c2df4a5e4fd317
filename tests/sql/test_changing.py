"""DELETE and UPDATE of the tables that take them, and their refusal by name elsewhere."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import sqlite3
from decimal import Decimal
from typing import Any

import pytest

from penstock.errors import ConnectorError, PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness, run_graph
from tests.connectors.test_jdbc import database  # noqa: F401

COLUMNS = "id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3)"
ROWS = """(1, 'a', 1.50, TIMESTAMP '2024-01-01 00:00:00'), (2, 'b', 2.50, CAST(NULL AS TIMESTAMP(3))), (3, CAST(NULL AS STRING),
  3.50, TIMESTAMP '2024-01-03 00:00:00'), (4, 'd', CAST(NULL AS DECIMAL(10, 2)), TIMESTAMP '2024-01-04 00:00:00')"""
_JOBS = itertools.count()


def run(session: SqlSession, script: str) -> list[Any]:
    """Runs every job; the last statement's rows."""
    out: list[Any] = []
    for result in session.run_script(script):
        out = list(result.rows)
        if result.job is not None:
            out = asyncio.run(_run(result.job.job_graph))
    return sorted(out, key=str)


async def _run(graph: Any) -> list[Any]:
    # A sink knows by the job's id what it has committed.
    async with JobHarness(graph, job_id=f"job-{next(_JOBS)}") as job:
        return (await job.wait()).rows


#: Helper processes run the same code, and are dear to start.
HERE = "python:tests.connectors.test_iceberg:InThisProcess"


@pytest.fixture(params=["jdbc", "delta"])
def session(request: pytest.FixtureRequest, tmp_path: Any) -> SqlSession:
    made = SqlSession({"parallelism.default": "2"})
    columns, options = COLUMNS, f"'connector' = 'delta', 'table-path' = '{tmp_path}/t'"
    if request.param == "jdbc":
        with sqlite3.connect(tmp_path / "x.db") as connection:
            connection.execute(
                "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price TEXT, at TEXT, kept TEXT NOT NULL DEFAULT 'k')"
            )
        columns += ", PRIMARY KEY (id) NOT ENFORCED"
        options = f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{tmp_path}/x.db', 'table-name' = 't'"
    run(made, f"CREATE TABLE t ({columns}) WITH ({options}); INSERT INTO t VALUES {ROWS};")
    return made


#: (statement, the rows' ids, names and prices afterwards)
STATEMENTS = [
    ("DELETE FROM t", []),
    ("TRUNCATE TABLE t", []),
    ("DELETE FROM t WHERE FALSE", [1, 2, 3, 4]),
    # A condition that is NULL takes no row.
    ("DELETE FROM t WHERE price > 2", [1, 4]),
    ("DELETE FROM t AS x WHERE x.name IS NULL OR x.id IN (SELECT id - 1 FROM t WHERE name = 'b')", [2, 4]),
    ("DELETE FROM t x WHERE EXISTS (SELECT 1 FROM t AS y WHERE y.id = x.id + 1 AND y.price IS NOT NULL)", [3, 4]),
    ("DELETE FROM t WHERE at <= TIMESTAMP '2024-01-03 00:00:00'", [2, 4]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "left"), STATEMENTS)
def test_delete_takes_the_rows_whose_condition_is_true(session: SqlSession, statement: str, left: list[int]):
    assert run(session, statement) == []
    assert [row[0] for row in run(session, "SELECT id FROM t")] == left


def test_update_sets_columns_from_the_old_row(session: SqlSession):
    run(session, "UPDATE t SET name = COALESCE(name, 'was null') || '!', price = price * 2 WHERE id <> 1")
    assert run(session, "SELECT id, name, price FROM t") == [
        (1, "a", Decimal("1.50")), (2, "b!", Decimal("5.00")), (3, "was null!", Decimal("7.00")), (4, "d!", None),
    ]  # fmt: skip
    run(
        session,
        "UPDATE t AS x SET price = (SELECT MAX(price) FROM t), at = NULL WHERE x.price IS NULL OR x.id = 1",
    )
    run(session, "UPDATE t SET name = NULL")
    assert run(session, "SELECT * FROM t") == [
        (1, None, Decimal("7.00"), None), (2, None, Decimal("5.00"), None),
        (3, None, Decimal("7.00"), dt.datetime(2024, 1, 3)), (4, None, Decimal("7.00"), None),
    ]  # fmt: skip


def test_a_stopped_change_changes_nothing_and_its_savepoint_all(session: SqlSession):
    """The savepoint comes while the condition's other table still gives rows."""
    run(session, """CREATE TABLE slow (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '30',
      'rows-per-second' = '100', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '29')""")  # fmt: skip
    graph = session.execute("DELETE FROM t WHERE id IN (SELECT id / 10 FROM slow)").job.job_graph

    async def stopped():
        async with JobHarness(graph, job_id="stopped") as job:
            return await job.stop(), job.store

    async def resumed(savepoint: Any, store: Any):
        async with JobHarness(graph, restore=savepoint, store=store, job_id="stopped") as job:
            await job.wait()
        # A repeated end (the job was killed before it could say that it has finished) changes nothing.
        async with JobHarness(graph, restore=job.checkpoints[-1], store=store, job_id="stopped") as job:
            await job.wait()

    stored = asyncio.run(stopped())
    assert len(run(session, "SELECT id FROM t")) == 4
    asyncio.run(resumed(*stored))
    assert run(session, "SELECT id FROM t") == [(3,), (4,)]


def test_other_columns_of_the_database_stay(tmp_path: Any):
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute(
            "CREATE TABLE t (a INTEGER, b TEXT, n INTEGER, other TEXT NOT NULL, PRIMARY KEY (a, b))"
        )
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, 'o')", [(1, "x", 1), (1, "y", 2), (2, "x", 3)])
    session = SqlSession()
    options = f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{tmp_path}/x.db', 'table-name' = 't')"
    run(
        session,
        f"CREATE TABLE t (a INT, b STRING, n INT, m AS n + 1, PRIMARY KEY (a, b) NOT ENFORCED) WITH {options}",
    )
    run(session, "UPDATE t SET n = m * 10 WHERE a = 1; DELETE FROM t WHERE n = 30;")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, "x", 20, "o"), (2, "x", 3, "o")]
    # A key that does not name one row each is found before anything changes.
    run(session, f"CREATE TABLE wrong (b STRING, n INT, PRIMARY KEY (b) NOT ENFORCED) WITH {options}")
    with pytest.raises(ConnectorError, match="does not name one row each"):
        run(session, "DELETE FROM wrong WHERE n = 3")
    assert len(connection.execute("SELECT * FROM t").fetchall()) == 2


def test_another_version_than_the_one_that_was_read_is_never_replaced(tmp_path: Any):
    options = f"('connector' = 'delta', 'table-path' = '{tmp_path}/t')"
    session = SqlSession()
    run(session, f"CREATE TABLE t (id BIGINT, n INT) WITH {options}; INSERT INTO t VALUES (1, 1)")
    graph = session.execute("UPDATE t SET n = 2").job.job_graph
    run(session, "INSERT INTO t VALUES (2, 1)")
    with pytest.raises(ConnectorError, match="changed by another while DELETE or UPDATE ran"):
        run_graph(graph)
    assert run(session, "SELECT * FROM t") == [(1, 1), (2, 1)]
    run(session, f"CREATE TABLE some (id BIGINT) WITH {options}")
    with pytest.raises(ConnectorError, match="a column of it is not declared"):
        run(session, "DELETE FROM some")


def test_iceberg(tmp_path: Any):
    session = SqlSession({"parallelism.default": "1"})
    run(session, f"""CREATE TABLE t (id BIGINT, name STRING, at TIMESTAMP(3)) PARTITIONED BY (name) WITH ('connector' = '{HERE}',
      'catalog-type' = 'sql', 'uri' = 'sqlite:///{tmp_path}/c.db', 'warehouse' = 'file://{tmp_path}/w', 'catalog-table' = 't');
      INSERT INTO t VALUES (1, 'a', TIMESTAMP '2024-01-01 00:00:00'), (2, 'b', NULL), (3, 'b', NULL)""")  # fmt: skip
    old = session.execute("UPDATE t SET id = 9").job.job_graph
    run(session, "UPDATE t SET name = 'z', id = -id WHERE id = 2")
    after = [(-2, "z", None), (1, "a", dt.datetime(2024, 1, 1)), (3, "b", None)]
    assert run(session, "SELECT * FROM t") == after
    with pytest.raises(ConnectorError, match="changed by another while DELETE or UPDATE ran"):
        run_graph(old)
    assert run(session, "DELETE FROM t WHERE name = 'b'; SELECT * FROM t") == after[:2]
    assert run(session, "DELETE FROM t; SELECT * FROM t") == []
    run(
        session,
        "INSERT INTO t SELECT id, name, CAST(NULL AS TIMESTAMP(3)) FROM (VALUES (4, 'c'), (5, 'd')) AS v (id, name)",
    )
    assert len(run(session, "SELECT * FROM t")) == 2
    run(session, "TRUNCATE TABLE t")
    assert run(session, "SELECT * FROM t") == []


#: (statement, words of the error)
WRONG = [
    ("DELETE FROM p", "DELETE of connector 'print'"),
    ("UPDATE f SET a = 1", "UPDATE of connector 'filesystem'"),
    ("DELETE FROM nokey", "DELETE of table 'nokey', which has no primary key"),
    ("DELETE FROM v", "'v' is a view"),
    ("DELETE FROM nowhere", "unknown table 'nowhere'"),
    ("DELETE FROM driver", "DELETE and UPDATE through Spark's JDBC"),
    ("DELETE t", "FROM after DELETE"),
    ("DELETE FROM t LIMIT 3", "syntax error at 'LIMIT'"),
    ("DELETE FROM t WHERE", "expected: an expression"),
    ("DELETE FROM t WHERE id", "WHERE needs a condition"),
    ("DELETE FROM t WHERE ids = 1", "unknown column 'ids'"),
    ("SET 'table.exec.join.unbounded-state' = 'allow'; DELETE FROM t WHERE id IN (SELECT a FROM endless)", "DELETE of an unbounded query"),
    ("UPDATE t WHERE id = 1", "expected: SET"),
    ("UPDATE t SET id = 3", "column 'id' is part of the primary key"),
    ("UPDATE t SET c = 3", "column 'c' is computed"),
    ("UPDATE t SET nam = 'x'", "did you mean 'name'"),
    ("UPDATE t SET name = 'x', name = 'y'", "assigned twice"),
    ("UPDATE t SET name = 1.5", "Incompatible types for sink column 'name'"),
    ("UPDATE t SET t.name = 'x'", "'=' and the new value of 't'"),
    ("UPDATE t SET name", "'=' and the new value of 'name'"),
    ("BEGIN STATEMENT SET; DELETE FROM t; INSERT INTO p SELECT 1; END", "DELETE beside other statements"),
    ("SET 'execution.runtime-mode' = 'STREAMING'; UPDATE t SET name = 'x'", "UPDATE in streaming mode"),
    ("MERGE INTO t USING p ON TRUE", "the statement MERGE"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "words"), WRONG)
def test_what_cannot_be_changed_is_refused_by_name(database: Any, statement: str, words: str):  # noqa: F811
    jdbc = f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{database}', 'table-name' = 't'"
    session = SqlSession()
    run(session, f"""CREATE TABLE p (a INT) WITH ('connector' = 'print'); CREATE VIEW v AS SELECT 1 AS one;
      CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'path' = '{database}', 'format' = 'json');
      CREATE TABLE nokey (id INT) WITH ({jdbc});
      CREATE TABLE t (id INT, name STRING, c AS id + 1, PRIMARY KEY (id) NOT ENFORCED) WITH ({jdbc});
      CREATE TABLE driver (id INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:h2:mem:x', 'table-name' = 't', 'driver' = 'org.h2.Driver');
      CREATE TABLE endless (a INT) WITH ('connector' = 'datagen');""")  # fmt: skip
    with pytest.raises(PenstockError) as caught:
        run(session, statement)
    assert words in str(caught.value)
