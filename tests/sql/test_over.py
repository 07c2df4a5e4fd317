"""OVER against SQLite's window functions on random rows; what is refused over unbounded inputs."""

from __future__ import annotations

import random
import sqlite3

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph


def rows(seed: int, n: int = 120) -> list[tuple]:
    """id, g, n, second: few partitions, ties and NULLs, times that repeat."""
    pick = random.Random(seed)
    return [
        (i, pick.choice(["a", "b", None, "c"]), pick.choice([None, *range(-5, 12)]), pick.randrange(0, 50))
        for i in range(n)
    ]


#: Sorted by NULLs first ascending, last descending: both do it so by themselves.
FRAMES = {
    "ranks": "ROW_NUMBER() OVER (PARTITION BY g ORDER BY n, id), RANK() OVER (PARTITION BY g ORDER BY n), "
    "DENSE_RANK() OVER (PARTITION BY g ORDER BY n DESC), RANK() OVER (ORDER BY g, n)",
    "parts": "PERCENT_RANK() OVER (PARTITION BY g ORDER BY n), CUME_DIST() OVER (PARTITION BY g ORDER BY n), "
    "NTILE(7) OVER (PARTITION BY g ORDER BY id), NTILE(500) OVER (ORDER BY id)",
    "shifts": "LAG(n) OVER (PARTITION BY g ORDER BY id), LEAD(n, 3) OVER (PARTITION BY g ORDER BY id), "
    "LAG(n, 2, -1) OVER (ORDER BY id), LEAD(g, 1, 'none') OVER (ORDER BY id), LAG(n, 0) OVER (ORDER BY id)",
    "no order": "SUM(n) OVER (PARTITION BY g), COUNT(*) OVER (), MIN(g) OVER (), MAX(n) OVER (PARTITION BY g)",
    "running": "SUM(n) OVER (PARTITION BY g ORDER BY n), COUNT(n) OVER (ORDER BY n DESC), "
    "MIN(g) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING), SUM(n) OVER (ORDER BY id)",
    "rows": "SUM(n) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING), "
    "COUNT(*) OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND 5 FOLLOWING), "
    "SUM(n) OVER (ORDER BY id ROWS BETWEEN 5 PRECEDING AND 3 PRECEDING), "
    "MAX(g) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "suffix": "SUM(n) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), "
    "COUNT(*) OVER (ORDER BY n, id ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING), "
    "MIN(g) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "prefix": "SUM(n) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), "
    "MAX(g) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)",
    "range": "SUM(n) OVER (PARTITION BY g ORDER BY n RANGE BETWEEN 3 PRECEDING AND 2 FOLLOWING), "
    "COUNT(*) OVER (ORDER BY n DESC RANGE BETWEEN 1 PRECEDING AND CURRENT ROW), "
    "COUNT(*) OVER (ORDER BY n RANGE BETWEEN 2 FOLLOWING AND 4 FOLLOWING), "
    "SUM(n) OVER (ORDER BY n RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), "
    "COUNT(n) OVER (ORDER BY n RANGE BETWEEN 4 PRECEDING AND 2 PRECEDING)",
}

#: Over time, as rows come: what a stream can answer.
TIMED = {
    "ranks": "ROW_NUMBER() OVER (PARTITION BY g ORDER BY ts, id), RANK() OVER (PARTITION BY g ORDER BY ts), "
    "DENSE_RANK() OVER (ORDER BY ts), RANK() OVER (ORDER BY ts)",
    "lag": "LAG(n) OVER (PARTITION BY g ORDER BY ts, id), LAG(g, 3, 'none') OVER (ORDER BY ts, id)",
    "aggregates": "SUM(n) OVER (PARTITION BY g ORDER BY ts), COUNT(*) OVER (ORDER BY ts, id ROWS 4 PRECEDING)",
}


def expected(table: list[tuple], functions: str) -> list[tuple]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id INT, g TEXT, n INT, ts INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", table)
    return sorted(connection.execute(f"SELECT id, {functions} FROM t").fetchall())


def ours(tmp_path, table: list[tuple], functions: str, config: dict | None = None) -> list[tuple]:
    def cell(value) -> str:
        return "" if value is None else str(value)

    lines = [f"{i},{g or 'NULL'},{cell(n)},2024-01-01 00:00:{second:02d}" for i, g, n, second in table]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    session = SqlSession({"parallelism.default": "2", **(config or {})})
    session.execute(
        f"""CREATE TABLE t (id INT, g STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL')"""
    )
    names = ", ".join(f"{f} AS f{i}" for i, f in enumerate(_split(functions)))
    return sorted(run_graph(session.execute(f"SELECT id, {names} FROM t").job.job_graph).rows)


def _split(functions: str) -> list[str]:
    out, depth, start = [], 0, 0
    for i, c in enumerate(functions):
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            out.append(functions[start:i])
            start = i + 1
    return [*out, functions[start:]]


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_functions_over_bounded_rows_agree_with_sqlite(tmp_path, name, seed):
    table = rows(seed)
    assert ours(tmp_path, table, FRAMES[name]) == expected(table, FRAMES[name])


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("mode", ["STREAMING", "AUTOMATIC"])
def test_functions_over_time_agree_with_sqlite(tmp_path, name, mode):
    table = rows(5)
    assert ours(tmp_path, table, TIMED[name], {"execution.runtime-mode": mode}) == expected(
        table, TIMED[name]
    )


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


def test_named_windows_may_be_added_to():
    sql = "SELECT id, COUNT(*) OVER (w ORDER BY id), SUM(id) OVER w FROM v WINDOW w AS (PARTITION BY g)"
    assert run(sql) == [(1, 1, 3), (2, 2, 3), (3, 1, 3)]


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
        ("SELECT SUM(DISTINCT id) OVER (ORDER BY id) FROM v", r"SUM\(DISTINCT …\) with OVER"),
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


def test_over_the_result_of_an_aggregation():
    """Its rows come when event time has ended."""
    query = "SELECT m, SUM(n) OVER (ORDER BY m) FROM (SELECT id AS m, SUM(n) AS n FROM {} GROUP BY id)"
    values = "(VALUES (0, 3), (1, 1), (1, 4), (2, 2)) AS v(id, n)"
    assert run(query.format(values)) == [(0, 3), (1, 8), (2, 10)]
