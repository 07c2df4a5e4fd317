"""CALL: maintenance of lakehouse tables."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness

_JOBS = itertools.count()
HERE = "python:tests.connectors.test_iceberg:InThisProcess"


def run(session: SqlSession, script: str) -> list[Any]:
    """Runs every job; the last statement's rows."""
    out: list[Any] = []
    for result in session.run_script(script):
        out = list(result.rows)
        if result.job is not None:
            out = asyncio.run(_run(result.job.job_graph))
    return sorted(out, key=str)


async def _run(graph: Any) -> list[Any]:
    async with JobHarness(
        graph, job_id=f"call-{next(_JOBS)}"
    ) as job:  # a sink knows by the id what it has committed
        return (await job.wait()).rows


def test_delta(tmp_path: Any):
    session = SqlSession({"parallelism.default": "1"})
    run(session, f"CREATE TABLE t (id BIGINT) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}/t')")
    run(session, "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (3);")
    compacted = session.execute("CALL system.compact('t')")
    assert (compacted.columns, compacted.rows) == (("files_removed", "files_added"), ((3, 1),))
    assert run(session, "CALL system.vacuum(table => 't', dry_run => TRUE)") == [(0,)]  # none is a week old
    [(before, after)] = run(session, "CALL system.restore('t', version => 2)")
    assert after == before + 1
    assert run(session, "SELECT * FROM t") == [(1,), (2,)]
    with pytest.raises(PenstockError, match="restoring a version of a Delta table failed"):
        run(session, "CALL system.restore('t', 99)")


def test_iceberg(tmp_path: Any):
    session = SqlSession({"parallelism.default": "1", "table.local-time-zone": "UTC"})
    run(session, f"""CREATE TABLE t (id BIGINT) WITH ('connector' = '{HERE}', 'catalog-type' = 'sql',
      'uri' = 'sqlite:///{tmp_path}/c.db', 'warehouse' = 'file://{tmp_path}/w', 'catalog-table' = 't')""")  # fmt: skip
    run(session, "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (3);")
    later, earlier = "TIMESTAMP '2999-01-01 00:00:00'", "TIMESTAMP '2020-01-01 00:00:00'"
    assert run(session, f"CALL system.expire_snapshots('t', {earlier})") == [(0,)]
    assert run(
        session, f"CALL system.expire_snapshots(table => 't', retain_last => 2, older_than => {later})"
    ) == [(1,)]
    assert run(session, "SELECT * FROM t") == [(1,), (2,), (3,)]
    found = session.catalog.table("t", "here")
    from penstock.connectors.iceberg.catalog import load

    first, second = (s.snapshot_id for s in load(found.options).snapshots())
    assert run(session, f"CALL system.rollback_to_snapshot('t', {first})") == [(second, first)]
    assert run(session, "SELECT * FROM t") == [(1,), (2,)]
    with pytest.raises(PenstockError, match="does not descend from"):
        run(session, "CALL system.rollback_to_snapshot('t', 7)")


def test_procedures_are_listed():
    names = [name for (name,) in SqlSession().execute("SHOW PROCEDURES").rows]
    assert names == [
        "compact",
        "expire_snapshots",
        "remove_orphan_files",
        "restore",
        "rewrite_data_files",
        "rollback_to_snapshot",
        "vacuum",
    ]
    assert SqlSession().execute("SHOW PROCEDURES LIKE 'r%k%'").rows == (("rollback_to_snapshot",),)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CALL compact()", "argument 'table' is missing"),
        ("CALL mine.compact('t')", "there are no procedures in 'mine'"),
        ("CALL system.compact('nowhere')", "unknown table 'nowhere'"),
        ("CALL system.compact('p')", "procedure 'compact' of connector 'print'"),
        ("CALL system.compct('t')", "did you mean 'compact'"),
        ("CALL system.expire_snapshots('t', TIMESTAMP '2024-01-01 00:00:00')", "procedure 'expire_snapshots' of connector 'delta'"),
        ("CALL system.restore('t')", "argument 'version' is missing"),
        ("CALL system.restore('t', 'one')", "argument 'version' is no whole number"),
        ("CALL system.restore('t', 1, version => 2)", "argument 'version' is given twice"),
        ("CALL system.restore('t', verson => 2)", "did you mean 'version'"),
        ("CALL system.vacuum('t', 1, TRUE, 2)", "an argument that the procedure does not have"),
        ("CALL system.vacuum(7)", "argument 'table' is no text"),
        ("CALL system.compact('t'", "',' or ')'"),
        ("CALL system.compact", "'('"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Any, statement: str, words: str):
    session = SqlSession()
    run(session, f"""CREATE TABLE t (id BIGINT) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}/t');
      CREATE TABLE p (id BIGINT) WITH ('connector' = 'print')""")  # fmt: skip
    with pytest.raises(PenstockError) as caught:
        session.execute(statement)
    assert words in str(caught.value)
