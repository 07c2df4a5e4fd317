"""LIMIT 0 and conditions that are never true: the source behind them is not read, and the query ends."""

from __future__ import annotations

import pytest

from penstock.sql.session import SqlSession
from penstock.testing import run_graph

_UNBOUNDED = (
    "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
)


@pytest.fixture
def session():
    made = SqlSession()
    made.execute(_UNBOUNDED)
    made.execute("CREATE VIEW v AS SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS q(a, b)")
    return made


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM t LIMIT 0", []),
        ("SELECT a FROM t ORDER BY a FETCH FIRST 0 ROWS ONLY", []),
        ("SELECT a + 1 FROM t WHERE FALSE", []),
        ("SELECT a FROM t WHERE 1 = 0 AND a > 1", []),
        ("SELECT a FROM t WHERE CAST(NULL AS BOOLEAN)", []),
        ("SELECT a, COUNT(*) FROM t WHERE FALSE GROUP BY a", []),
        ("SELECT DISTINCT a FROM (SELECT a FROM t LIMIT 0)", []),
        ("SELECT a, SUM(a) OVER (PARTITION BY b ORDER BY ts) FROM t WHERE FALSE", []),
        ("SELECT v.a FROM v JOIN (SELECT a FROM t LIMIT 0) AS x ON x.a = v.a", []),
        ("SELECT v.a, x.b FROM v LEFT JOIN (SELECT * FROM t WHERE 1 > 2) AS x ON x.a = v.a", [(1, None), (2, None)]),
        ("SELECT a FROM v UNION ALL SELECT a FROM t WHERE FALSE", [(1,), (2,)]),
        ("SELECT a FROM v WHERE a NOT IN (SELECT a FROM t LIMIT 0)", [(1,), (2,)]),
        ("SELECT a FROM t, UNNEST(ARRAY[1, 2]) AS u(x) WHERE FALSE", []),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) WHERE FALSE "
         "GROUP BY window_start, window_end", []),
    ],
)  # fmt: skip
def test_a_query_without_rows_is_bounded_and_ends(session, query, rows):
    job = session.execute(query).job
    assert job.bounded
    assert sorted(run_graph(job.job_graph).rows) == rows


@pytest.mark.parametrize(
    "query",
    ["SELECT a FROM t WHERE TRUE", "SELECT a FROM t WHERE 1 = 1 OR a > 1", "SELECT a FROM t WHERE RAND() > 2",
     "SELECT a FROM t WHERE 1 / 0 = 1"],
)  # fmt: skip
def test_a_condition_that_may_be_true_is_asked(session, query):
    assert not session.execute(query).job.bounded


def test_a_count_of_nothing_is_a_row(session):
    job = session.execute("SELECT COUNT(*), MAX(a) FROM t WHERE FALSE").job
    assert job.bounded
    assert run_graph(job.job_graph).rows == [(0, None)]
