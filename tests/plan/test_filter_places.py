"""No rule of the optimiser depends on where a filter stands: each is found with filters in between."""

from __future__ import annotations

import pytest

from penstock.sql.session import SqlSession

SETTINGS = {"parallelism.default": "2", "table.exec.join.unbounded-state": "allow"}
TABLES = """
CREATE TABLE e (kind INT, k INT, price INT, note STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH ('connector' = 'datagen');
CREATE TABLE r (k INT, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen');
CREATE VIEW bid AS SELECT k, price, note, at FROM e WHERE kind = 2;
CREATE VIEW best AS SELECT MAX(price) AS top, window_end AS we
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
CREATE VIEW best_inline AS SELECT MAX(price) AS top, window_end AS we
  FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(at), INTERVAL '10' SECOND)) WHERE kind = 2 GROUP BY window_start, window_end;
CREATE VIEW hop AS SELECT k, window_start AS ws, window_end AS we, COUNT(*) AS n
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY k, window_start, window_end;
"""
JOINED = "SELECT b.note FROM {left} b JOIN {right} m ON b.price = m.top WHERE b.at BETWEEN m.we - INTERVAL '10' SECOND AND m.we"
HOTTEST = "SELECT x.k FROM hop x JOIN (SELECT MAX(n) AS top, ws, we FROM hop GROUP BY ws, we) m ON x.ws = m.ws AND x.we = m.we AND x.n >= m.top"
RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY price DESC) AS rn FROM {}) x"


def plan(query: str) -> str:
    session = SqlSession(SETTINGS)
    for _ in session.run_script(TABLES):
        pass
    job = session.execute(query).job
    assert job is not None
    return job.job_graph.plan


@pytest.mark.parametrize(
    "query",
    [
        JOINED.format(left="bid", right="best"),
        JOINED.format(left="(SELECT * FROM e WHERE kind = 2)", right="best"),
        JOINED.format(left="e", right="best_inline") + " AND b.kind = 2",
        JOINED.format(left="bid", right="best") + " AND b.price > 100",
        JOINED.format(left="bid", right="best") + " AND m.top > 100",
        JOINED.format(left="bid", right="best") + " AND b.note LIKE 'a%' AND b.k < 5",
        JOINED.format(left="(SELECT k, price, at, UPPER(note) AS note FROM bid WHERE k > 1)", right="best"),
        HOTTEST,
        HOTTEST + " WHERE x.n > 5",
        HOTTEST + " WHERE m.top > 5",
    ],
)
def test_beaten_rows_are_dropped(query: str) -> None:
    assert "WindowMaximum" in plan(query)


@pytest.mark.parametrize(
    "query",
    [
        # the maximum is of fewer rows: one that is none of them beats nothing
        JOINED.format(left="e", right="best_inline"),
        JOINED.format(left="bid", right="(SELECT MAX(price) AS top, window_end AS we FROM TABLE(TUMBLE(TABLE bid, "
                      "DESCRIPTOR(at), INTERVAL '10' SECOND)) WHERE k > 1 GROUP BY window_start, window_end)"),
        JOINED.format(left="bid", right="(SELECT MAX(price + 1) AS top, window_end AS we FROM TABLE(TUMBLE(TABLE bid, "
                      "DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end)"),
        JOINED.format(left="(SELECT k, -price AS price, note, at FROM bid)", right="best"),
        JOINED.format(left="bid", right="(SELECT MAX(price) AS top, window_end AS we FROM TABLE(TUMBLE(TABLE bid, "
                      "DESCRIPTOR(at), INTERVAL '10' SECOND)) WHERE RAND() < 0.5 GROUP BY window_start, window_end)"),
    ],
)  # fmt: skip
def test_rows_of_another_maximum_are_kept(query: str) -> None:
    assert "WindowMaximum" not in plan(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {} WHERE rn = 1",
        "SELECT * FROM {} WHERE rn = 1 AND price > 5",
        "SELECT * FROM {} WHERE k > 3 AND note <> 'x' AND rn <= 1",
        "SELECT * FROM (SELECT k, note, rn FROM {} WHERE price > 5) WHERE rn = 1",
        "SELECT * FROM (SELECT UPPER(note) AS note, rn FROM {}) WHERE rn = 1 AND note = 'X'",
        "SELECT x.k FROM {}, r WHERE x.k = r.k AND rn = 1 AND r.rate > 3",
    ],
)
@pytest.mark.parametrize("rows", ["bid", "(SELECT * FROM bid WHERE price > 1)"])
def test_the_first_row_of_a_key(query: str, rows: str) -> None:
    physical = plan(query.format(RANKED.format(rows))).split("== Physical Plan ==")[1]
    assert "TopN" in physical
    assert "Over" not in physical


@pytest.mark.parametrize(
    "condition",
    [
        "b.price > 3",
        "b.k > 3 AND m.rate < 4",
        "b.note LIKE 'a%' OR m.rate < 4",
        "b.k = 3",
    ],
)
def test_bounds_of_time(condition: str) -> None:
    query = "SELECT b.note FROM bid b JOIN r m ON b.k = m.k AND m.at BETWEEN b.at AND b.at + INTERVAL '5' SECOND WHERE "
    assert "IntervalJoin(inner)" in plan(query + condition)
    windows = (
        "SELECT b.k FROM hop b JOIN (SELECT k, window_start AS ws, window_end AS we, MAX(rate) AS rate FROM TABLE(HOP("
        "TABLE r, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end) m "
        "ON b.ws = m.ws AND b.we = m.we AND b.k = m.k WHERE "
    )
    of_aggregate = condition.replace("b.price", "b.n").replace("b.note LIKE 'a%'", "b.n = 2")
    assert "WindowJoin(inner)" in plan(windows + of_aggregate)


@pytest.mark.parametrize(
    "condition",
    ["k > 3", "window_end > TIMESTAMP '2024-01-01 00:00:00'", "price > 2 AND window_start < window_end"],
)
def test_windows_are_assigned_by_the_aggregate(condition: str) -> None:
    text = plan(
        "SELECT k, COUNT(*), window_end FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND)) "
        f"WHERE {condition} GROUP BY k, window_start, window_end"
    )
    assert "LocalWindowAggregate" in text
    assert "WindowTable" not in text.split("== Physical Plan ==")[1]
