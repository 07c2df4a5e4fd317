"""OVER by processing time, and what is refused over unbounded inputs. Frames and functions: tests/golden."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph


def run(sql: str, config: dict | None = None) -> list:
    session = SqlSession(config)
    session.execute(
        "CREATE VIEW v AS SELECT *, PROCTIME() AS p FROM (VALUES (1, 'a'), (2, 'a'), (3, 'b')) AS x(id, g)"
    )
    session.execute(
        "CREATE TABLE s (id INT, g STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
    )
    return sorted(run_graph(session.execute(sql).job.job_graph).rows)


def test_by_processing_time_each_row_is_answered_as_it_comes():
    sql = """SELECT id, COUNT(*) OVER w, ROW_NUMBER() OVER w, RANK() OVER w, DENSE_RANK() OVER w, LAG(id) OVER w FROM v
      WINDOW w AS (PARTITION BY g ORDER BY p)"""
    assert run(sql, {"execution.runtime-mode": "STREAMING"}) == [
        (1, 1, 1, 1, 1, None),
        (2, 2, 2, 2, 2, 1),
        (3, 1, 1, 1, 1, None),
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT LEAD(id) OVER (ORDER BY ts) FROM s", "LEAD over an unbounded input"),
        ("SELECT NTILE(2) OVER (ORDER BY ts) FROM s", "NTILE over an unbounded input"),
        ("SELECT SUM(id) OVER (PARTITION BY g) FROM s", "not ordered by ascending time"),
        ("SELECT SUM(id) OVER (ORDER BY id) FROM s", "not ordered by ascending time"),
        ("SELECT SUM(id) OVER (ORDER BY ts DESC) FROM s", "not ordered by ascending time"),
        ("SELECT SUM(id) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM s", "reaches past the current row"),
        ("SELECT SUM(c) OVER (ORDER BY c) FROM (SELECT COUNT(*) AS c FROM s GROUP BY g)", "OVER of rows that are updated"),
        ("SELECT SUM(id) OVER (ORDER BY g RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM v", "RANGE of a given length"),
        ("SELECT SUM(id) OVER x FROM v WINDOW w AS (ORDER BY id)", "unknown window 'x'"),
        ("SELECT RANK() OVER (PARTITION BY g) FROM v", "RANK needs ORDER BY"),
        ("SELECT LAG(id, id) OVER (ORDER BY id) FROM v", "constant number of rows"),
        ("SELECT SUM(id) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM v", "cannot start at"),
        ("SELECT RANK() OVER (ORDER BY id ROWS 1 PRECEDING) FROM v", "RANK takes no frame"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(sql, message):
    with pytest.raises(PenstockError, match=message) as caught:
        run(sql)
    assert "line 1, column" in caught.value.where
