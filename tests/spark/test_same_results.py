"""Queries of every kind: the same rows on Spark and on the streaming engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("spark_support", Path(__file__).with_name("support.py"))
assert _spec is not None
assert _spec.loader is not None
support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(support)

_TUMBLE = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_HOP = "TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND))"
_CUMULATE = "TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))"
_SESSION = "TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND))"
_EARLY = "(SELECT * FROM events WHERE id < 40)"

QUERIES = {
    "calc": "SELECT id + 1, UPPER(k), v * 2, price * 2, x / 4, CAST(ts AS DATE) FROM events WHERE v > 3 OR k = 'a'",
    "values": "SELECT a, b || '!' FROM (VALUES (1, 'x'), (2, CAST(NULL AS STRING))) AS t(a, b)",
    "no_columns": "SELECT 1 + 1",
    "group": "SELECT k, COUNT(*), COUNT(v), SUM(v), AVG(v), MIN(price), MAX(price), SUM(price), AVG(x) "
    "FROM events GROUP BY k",
    "group_decimal_average": "SELECT k, AVG(price), STDDEV_POP(x) FROM events GROUP BY k",
    "group_filter_distinct": "SELECT k, COUNT(DISTINCT v), SUM(DISTINCT v), COUNT(*) FILTER (WHERE v > 5), "
    "SUM(v) FILTER (WHERE x > 1) FROM events GROUP BY k",
    "group_ordered": "SELECT k, FIRST_VALUE(id), LAST_VALUE(id), LISTAGG(CAST(id AS STRING)) FROM events GROUP BY k",
    "group_collect": "SELECT k, ARRAY_AGG(v) FROM events GROUP BY k",
    "global": "SELECT COUNT(*), SUM(v), MAX(k) FROM events",
    "global_of_nothing": "SELECT COUNT(*), SUM(v), LAST_VALUE(k) FROM events WHERE id < 0",
    "distinct": "SELECT DISTINCT k, x FROM events",
    "having": "SELECT k, SUM(v) AS s FROM events GROUP BY k HAVING SUM(v) > 100",
    "grouping_sets": "SELECT k, x, COUNT(*), GROUPING(k) FROM events GROUP BY GROUPING SETS ((k), (x), ())",
    "tumble": f"SELECT k, window_start, window_end, COUNT(*), SUM(v) FROM {_TUMBLE} GROUP BY k, window_start, window_end",
    "hop": f"SELECT k, window_start, window_end, window_time, MAX(price) FROM {_HOP} "
    "GROUP BY k, window_start, window_end, window_time",
    "cumulate": f"SELECT window_start, window_end, COUNT(*), AVG(x) FROM {_CUMULATE} GROUP BY window_start, window_end",
    "session": f"SELECT k, window_start, window_end, COUNT(*) FROM {_SESSION} GROUP BY k, window_start, window_end",
    "window_last": f"SELECT k, window_end, LAST_VALUE(id) FROM {_TUMBLE} GROUP BY k, window_start, window_end",
    "window_table": f"SELECT id, window_start, window_end, window_time FROM {_HOP} WHERE id < 20",
    "window_of_window": "SELECT window_start, window_end, MAX(n) FROM (SELECT k, window_start, window_end, COUNT(*) AS n "
    f"FROM {_TUMBLE} GROUP BY k, window_start, window_end) GROUP BY window_start, window_end",
    "window_top": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, k) "
    f"AS r FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM {_TUMBLE} "
    "GROUP BY k, window_start, window_end)) WHERE r <= 2",
    "join": "SELECT e.id, e.k, r.rate FROM events e JOIN rates r ON e.k = r.currency WHERE e.id < 30",
    "left_join": f"SELECT e.id, r.rate FROM {_EARLY} e LEFT JOIN rates r ON e.k = r.currency AND r.rate > 2.0",
    "right_join": f"SELECT e.id, r.currency, r.rate FROM {_EARLY} e RIGHT JOIN rates r ON e.k = r.currency AND e.v > 10",
    "full_join": f"SELECT e.id, r.currency FROM {_EARLY} e FULL JOIN rates r ON e.k = r.currency AND e.v = 3",
    "outer_join_by_our_expression": f"SELECT e.id, r.rate FROM {_EARLY} e LEFT JOIN rates r "
    "ON e.k = r.currency AND CHAR_LENGTH(r.currency) + e.v > 8",
    "cross_join": "SELECT a.id, b.rate FROM (SELECT id FROM events WHERE id < 3) a, rates b",
    "semi_join": "SELECT id FROM events WHERE k IN (SELECT currency FROM rates WHERE rate > 1.5)",
    "anti_join": "SELECT id, k FROM events e WHERE NOT EXISTS (SELECT 1 FROM rates r WHERE r.currency = e.k)",
    "interval_join": "SELECT e.id, r.rate, r.rts FROM events e JOIN rates r ON e.k = r.currency "
    "AND r.rts BETWEEN e.ts - INTERVAL '5' SECOND AND e.ts + INTERVAL '2' SECOND",
    "interval_left_join": "SELECT e.id, r.rate FROM events e LEFT JOIN rates r ON e.k = r.currency "
    "AND e.ts BETWEEN r.rts AND r.rts + INTERVAL '3' SECOND",
    "window_join": "SELECT a.k, a.n, b.m, a.window_end FROM "
    f"(SELECT k, window_start, window_end, COUNT(*) AS n FROM {_TUMBLE} GROUP BY k, window_start, window_end) a JOIN "
    f"(SELECT k, window_start, window_end, SUM(v) AS m FROM {_TUMBLE} GROUP BY k, window_start, window_end) b "
    "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end",
    "temporal_join": "SELECT e.id, e.price * r.rate FROM events e JOIN rates FOR SYSTEM_TIME AS OF e.ts AS r "
    "ON e.k = r.currency",
    "temporal_left_join": "SELECT e.id, r.rate FROM events e LEFT JOIN rates FOR SYSTEM_TIME AS OF e.ts AS r "
    "ON e.k = r.currency",
    "top_n": "SELECT * FROM (SELECT id, k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM events) "
    "WHERE r <= 3",
    "rank": "SELECT * FROM (SELECT id, k, x, RANK() OVER (PARTITION BY k ORDER BY x) AS r FROM events) WHERE r <= 2",
    "dedup_first": "SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS r FROM events) "
    "WHERE r = 1",
    "dedup_last": "SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM events) "
    "WHERE r = 1",
    "over_range": "SELECT id, k, SUM(v) OVER (PARTITION BY k ORDER BY ts), COUNT(*) OVER (PARTITION BY k ORDER BY ts "
    "RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) FROM events",
    "over_rows": "SELECT id, AVG(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM events",
    "over_any_order": "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY price, id), LAG(v, 2) OVER (PARTITION BY k "
    "ORDER BY id), LAST_VALUE(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) FROM events",
    "local_windows": "SELECT k, window_start, window_end, COUNT(*), FIRST_VALUE(v) FROM TABLE(TUMBLE(TABLE local, "
    "DESCRIPTOR(lts), INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end",
    "union": "SELECT k FROM events WHERE id < 10 UNION SELECT currency FROM rates",
    "union_all": "SELECT k, v FROM events WHERE id < 10 UNION ALL SELECT currency, 1 FROM rates",
    "intersect": "SELECT k FROM events INTERSECT SELECT currency FROM rates",
    "except_all": "SELECT k FROM events EXCEPT ALL SELECT currency FROM rates",
    "sort": "SELECT id, k, v FROM events ORDER BY k DESC, v LIMIT 20 OFFSET 3",
    "limit": "SELECT id FROM events LIMIT 7",
    "unnest": "SELECT id, word FROM events CROSS JOIN UNNEST(ARRAY[k, 'z']) AS u(word) WHERE id < 9",
    "rows": "SELECT ARRAY[v, 1], MAP[k, v], ROW(id, k, ts) FROM events WHERE id < 5",
    "scalar_subquery": "SELECT id FROM events WHERE v > (SELECT AVG(v) FROM events)",
    "time_types": "SELECT CAST(ts AS TIME), CAST(CAST(ts AS STRING) AS TIMESTAMP(3)) - INTERVAL '1' DAY, "
    "TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-03-01 12:00:00', ts) FROM events WHERE id < 12",
}
#: Tables of a query's own.
DECLARED = {
    "local_windows": """CREATE TABLE local (id BIGINT, k STRING, v INT, price DECIMAL(10, 2), x DOUBLE, ts TIMESTAMP(3), lts AS CAST(ts AS TIMESTAMP_LTZ(3)),
      WATERMARK FOR lts AS lts - INTERVAL '10' SECOND) WITH ('connector' = 'memory', 'name' = 'events');"""
}
ORDERED = ("sort",)
#: Cheap ones of several kinds stay in the ordinary run; the whole list takes a minute.
QUICK = ("calc", "group", "group_ordered", "global_of_nothing", "hop", "session", "outer_join_by_our_expression",
         "temporal_join", "top_n", "dedup_last", "over_range", "except_all", "sort", "unnest", "time_types")  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in QUERIES]
)
def test_same_rows(name: str, spark: Any) -> None:
    zone = {"table.local-time-zone": "Asia/Kolkata"} if name in DECLARED else {}
    graph = support.plan(DECLARED.get(name, "") + QUERIES[name], **zone)
    rows = support.assert_same(graph, spark, ordered=name in ORDERED)
    assert rows


def test_over_the_result_of_an_aggregation(spark: Any) -> None:
    """Rows that come out at the end of the input."""
    sql = "SELECT k, SUM(n) OVER (ORDER BY k) FROM (SELECT k, COUNT(*) AS n FROM events WHERE k < 'd' GROUP BY k)"
    assert sorted(support.on_spark(support.plan(sql), spark)) == [("a", 22), ("b", 45), ("c", 68)]
