"""Windows over TIMESTAMP_LTZ on the clock of a time zone, where days have 23 to 25 hours."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from penstock.errors import UnsupportedError
from penstock.functions.zones import local_us
from penstock.operators.local_time import local_watermark
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

ZONE = "Europe/Berlin"
#: Around both changes of the clock.
INSTANTS = [
    *(dt.datetime(2024, 3, 30, 20, tzinfo=dt.UTC) + dt.timedelta(minutes=47 * i) for i in range(40)),
    *(dt.datetime(2024, 10, 26, 20, tzinfo=dt.UTC) + dt.timedelta(minutes=31 * i) for i in range(60)),
]


def local(instant: dt.datetime) -> dt.datetime:
    return instant.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None)


@pytest.fixture
def session(tmp_path):
    lines = [f"{i},{at:%Y-%m-%d %H:%M:%S}Z" for i, at in enumerate(INSTANTS)]
    pick = random.Random(3)
    for i in range(0, len(lines), 4):  # a little disorder
        part = lines[i : i + 4]
        pick.shuffle(part)
        lines[i : i + 4] = part
    (tmp_path / "t.csv").write_text("\n".join(lines))
    made = SqlSession(
        {"table.local-time-zone": ZONE, "parallelism.default": "2", "execution.runtime-mode": "STREAMING"}
    )
    made.execute(
        f"""CREATE TABLE t (id INT, at TIMESTAMP_LTZ(3), p AS PROCTIME(), WATERMARK FOR at AS at - INTERVAL '4' HOUR)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.csv', 'format' = 'csv')"""
    )
    return made


def rows(session: SqlSession, sql: str) -> list[tuple]:
    return sorted(run_graph(session.execute(sql).job.job_graph).rows)


DAYS = sorted(Counter(local(x).date() for x in INSTANTS).items())


def test_days_are_the_clock_s(session):
    midnight = [(dt.datetime.combine(day, dt.time()), n) for day, n in DAYS]
    day = dt.timedelta(days=1)
    ends = [
        dt.datetime.combine(d + day, dt.time(), ZoneInfo(ZONE)) - dt.timedelta(milliseconds=1)
        for d, _ in DAYS
    ]
    expected = [(at, at + day, end, n) for (at, n), end in zip(midnight, ends, strict=True)]
    tvf = """SELECT window_start, window_end, window_time, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' DAY))
      GROUP BY window_start, window_end, window_time"""
    assert rows(session, tvf) == expected
    window = "at, INTERVAL '1' DAY"
    older = f"""SELECT TUMBLE_START({window}), TUMBLE_END({window}), TUMBLE_ROWTIME({window}), COUNT(*) FROM t
      GROUP BY TUMBLE({window})"""
    assert rows(session, older) == expected


def test_windows_without_aggregation_top_n_and_joins(session):
    hour = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR))"
    hours = {i: local(x).replace(minute=0, second=0) for i, x in enumerate(INSTANTS)}
    assert rows(session, f"SELECT id, window_start FROM {hour}") == sorted(hours.items())
    last = f"""SELECT id, window_start FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
      ORDER BY id DESC) AS n FROM (SELECT id, window_start, window_end FROM {hour})) WHERE n = 1"""
    newest = {at: i for i, at in sorted(hours.items())}
    assert rows(session, last) == sorted((i, at) for at, i in newest.items())
    joined = f"""SELECT a.id, b.id FROM (SELECT * FROM {hour}) AS a JOIN (SELECT * FROM {hour}) AS b
      ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.id < b.id"""
    assert rows(session, joined) == sorted(
        (a, b) for a in hours for b in hours if a < b and hours[a] == hours[b]
    )


def test_windows_of_a_clock_by_processing_time_are_refused(session):
    for window in (
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY)) GROUP BY window_start, window_end",
    ):
        with pytest.raises(UnsupportedError, match="processing time in time zone Europe/Berlin"):
            session.execute(f"SELECT COUNT(*) FROM {window}")


def test_an_interval_join_of_two_clocks_is_no_interval_join(session):
    sql = """SELECT COUNT(*) FROM (SELECT window_end AS e FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' DAY))
      GROUP BY window_start, window_end) AS w JOIN (SELECT at, id FROM t) AS t2 ON w.e = CAST(t2.at AS TIMESTAMP(3))"""
    assert "IntervalJoin" not in session.execute(sql).job.job_graph.plan


@pytest.mark.parametrize("zone", [ZONE, "America/New_York", "Australia/Lord_Howe", "GMT+05:30"])
def test_a_local_watermark_is_below_all_that_may_come(zone):
    year = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    instants = year + np.arange(0, 366 * 86_400, 600, dtype=np.int64) * 1_000_000
    clock = np.asarray(local_us(instants, zone))
    lowest_to_come = np.minimum.accumulate(clock[::-1])[::-1]
    before = MIN_WATERMARK
    for i in range(0, len(instants) - 1, 7):
        found = local_watermark(int(instants[i]) - 1, zone)
        assert before <= found == lowest_to_come[i] - 1
        before = found
    assert local_watermark(MIN_WATERMARK, zone) == MIN_WATERMARK
    assert local_watermark(MAX_WATERMARK, zone) == MAX_WATERMARK
