"""GROUPING SETS, CUBE and ROLLUP over windowed tables, against one query a set."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

ROWS = [(i, "abc"[i % 3], "xy"[i % 2], i * 7 % 60) for i in range(90)]


@pytest.fixture(params=[("1", "AUTOMATIC"), ("2", "STREAMING")])
def session(request, tmp_path):
    lines = [f"{i},{a},{b},2024-01-01 00:00:{second:02d}" for i, a, b, second in ROWS]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    parallelism, mode = request.param
    made = SqlSession({"parallelism.default": parallelism, "execution.runtime-mode": mode})
    made.execute(
        f"""CREATE TABLE t (n INT, a STRING, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.csv', 'format' = 'csv')"""
    )
    return made


def rows(session: SqlSession, sql: str) -> list[tuple]:
    return sorted(run_graph(session.execute(sql).job.job_graph).rows, key=repr)


TVF = "TABLE({}(TABLE t, DESCRIPTOR(ts), {}))"
WINDOWS = [("TUMBLE", "INTERVAL '20' SECOND"), ("HOP", "INTERVAL '10' SECOND, INTERVAL '30' SECOND")]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("clause", "sets"),
    [
        ("GROUPING SETS ((a), (b), ())", [("a",), ("b",), ()]),
        ("ROLLUP (a, b)", [("a", "b"), ("a",), ()]),
        ("CUBE (a, b)", [("a", "b"), ("a",), ("b",), ()]),
    ],
)
def test_each_set_is_as_if_grouped_alone(session, window, clause, sets):
    table = TVF.format(*window)
    one = f"""SELECT window_start, a, b, COUNT(*), SUM(n), COUNT(DISTINCT n), GROUPING(a) FROM {table}
      GROUP BY window_start, window_end, {clause}"""
    parts = []
    for members in sets:
        columns = ", ".join(c if c in members else "CAST(NULL AS STRING)" for c in ("a", "b"))
        keys = ", ".join(["window_start", "window_end", *members])
        parts.append(
            f"SELECT window_start, {columns}, COUNT(*), SUM(n), COUNT(DISTINCT n), {int('a' not in members)} "
            f"FROM {table} GROUP BY {keys}"
        )
    expected = [row for part in parts for row in rows(session, part)]
    assert rows(session, one) == sorted(expected, key=repr)


def test_the_older_group_windows_take_no_sets(session):
    with pytest.raises(UnsupportedError, match="GROUPING SETS with TUMBLE in GROUP BY") as caught:
        session.execute("SELECT COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' SECOND), ROLLUP (a)")
    assert "line 1, column" in caught.value.where
