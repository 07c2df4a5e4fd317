"""TABLE(SESSION(…)) without an aggregation: rows with their session, when it is over."""

from __future__ import annotations

import random

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.testing.harness import JobHarness, ManualClock

GAP = 5


def data(seed: int, n: int = 150) -> list[tuple[int, str, int]]:
    """id, key, second: about in order of time."""
    pick = random.Random(seed)
    second, out = 0, []
    for i in range(n):
        second += pick.choice([0, 0, 1, 2, 9])
        out.append((i, pick.choice("abc"), max(0, second - pick.randrange(3))))
    return out


def sessions(rows: list[tuple[int, str, int]]) -> dict[int, tuple[int, int]]:
    """id → (start, end) by going through each key's times."""
    out: dict[int, tuple[int, int]] = {}
    for key in "abc":
        mine = sorted((at, i) for i, k, at in rows if k == key)
        groups: list[list[tuple[int, int]]] = []
        for at, i in mine:
            if groups and at - groups[-1][-1][0] <= GAP:
                groups[-1].append((at, i))
            else:
                groups.append([(at, i)])
        for group in groups:
            out.update({i: (group[0][0], group[-1][0] + GAP) for _, i in group})
    return out


def declared(tmp_path, rows, **config) -> SqlSession:
    lines = [f"{i},{k},2024-01-01 00:{at // 60:02d}:{at % 60:02d}" for i, k, at in rows]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    session = SqlSession(config)
    session.execute(
        f"""CREATE TABLE t (id INT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.csv', 'format' = 'csv')"""
    )
    return session


TVF = f"TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{GAP}' SECOND))"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_every_row_has_its_session(tmp_path, seed, parallelism):
    rows = data(seed)
    session = declared(
        tmp_path, rows, **{"parallelism.default": parallelism, "execution.runtime-mode": "STREAMING"}
    )
    job = session.execute(f"SELECT id, window_start, window_end, window_time FROM {TVF}").job
    got = {
        i: (s.minute * 60 + s.second, e.minute * 60 + e.second, (e - w).total_seconds())
        for i, s, e, w in run_graph(job.job_graph).rows
    }
    assert got == {i: (*bounds, 0.001) for i, bounds in sessions(rows).items()}


def test_the_sessions_can_be_aggregated_further_up(tmp_path):
    rows = data(7)
    session = declared(tmp_path, rows)
    sql = f"""SELECT k, window_start, window_end, COUNT(*), MAX(n) FROM (SELECT k, id * 2 AS n, window_start, window_end,
      window_time FROM {TVF} WHERE window_start < window_end) GROUP BY k, window_start, window_end"""
    direct = f"SELECT k, window_start, window_end, COUNT(*), MAX(id * 2) FROM {TVF} GROUP BY k, window_start, window_end"
    one, two = (sorted(run_graph(session.execute(x).job.job_graph).rows) for x in (sql, direct))
    assert one == two
    assert sum(r[3] for r in one) == len(rows)


async def test_a_session_goes_on_after_a_restart(tmp_path):
    rows = data(4)
    session = declared(tmp_path, rows, **{"execution.runtime-mode": "STREAMING"})
    graph = session.execute(f"SELECT id, window_start FROM {TVF}").job.job_graph
    async with JobHarness(graph) as job:
        expected = sorted((await job.wait()).rows)
    job = JobHarness(graph)
    await job.start()
    checkpoint = await job.checkpoint()
    await job.close()
    async with JobHarness(graph, restore=checkpoint, store=job.store) as again:
        assert sorted((await again.wait()).rows) == expected


async def test_by_processing_time_a_session_ends_when_the_clock_has_moved_on():
    session = SqlSession()
    session.execute(
        "CREATE TABLE p (x INT, at AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '3')"
    )
    session.config["execution.runtime-mode"] = "STREAMING"
    sql = "SELECT x FROM TABLE(SESSION(TABLE p, DESCRIPTOR(at), INTERVAL '5' SECOND))"
    graph = session.execute(sql).job.job_graph
    async with JobHarness(graph, clock=ManualClock()) as job:
        result = await job.wait()
    assert len(result.rows) == 3


def test_over_rows_that_are_updated_it_is_refused(tmp_path):
    session = declared(tmp_path, data(1), **{"execution.runtime-mode": "STREAMING"})
    session.execute(
        """CREATE VIEW last_of_k AS SELECT id, k, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC)
        AS n FROM t) WHERE n = 1"""
    )
    with pytest.raises(UnsupportedError, match="SESSION table function over rows that are updated"):
        session.execute(
            "SELECT * FROM TABLE(SESSION(TABLE last_of_k PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
        )
