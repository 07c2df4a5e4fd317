"""A program of the Table API and the text of SQL that means the same: the same optimised plan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
from penstock.table.expressions import (
    CURRENT_ROW,
    UNBOUNDED_RANGE,
    UNBOUNDED_ROW,
    JsonOnNull,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
    and_,
    array,
    call,
    call_sql,
    coalesce,
    col,
    concat,
    date_format,
    if_then_else,
    json_object,
    json_object_agg,
    lag,
    lit,
    map_,
    not_,
    null_of,
    range_,
    row,
    row_interval,
    temporal_overlaps,
    timestamp_diff,
    with_all_columns,
    with_columns,
    without_columns,
)
from penstock.table.table import Table
from penstock.table.windows import Over, Session, Slide, Tumble

TABLES = """
CREATE TABLE t (a INT, b STRING, c DOUBLE, r ROW<x INT, y STRING>, l ARRAY<INT>, m MAP<STRING, INT>, d DATE,
  ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');
CREATE TABLE u (k INT, v STRING, us TIMESTAMP(3), WATERMARK FOR us AS us) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');
CREATE TABLE w (a INT, b STRING) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> TableEnvironment:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.json").write_text("")
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.get_config().set("table.exec.join.unbounded-state", "allow")
    for statement in TABLES.split(";"):
        env.execute_sql(statement.replace("{folder}", str(folder)))
    return env


def optimised(text: str) -> str:
    return text.split("== Optimized Logical Plan ==\n")[1].split("== Job Graph ==")[0]


def same(env: TableEnvironment, table: Table, sql: str) -> None:
    assert optimised(table.explain()) == optimised(env.explain_sql(sql))
    expected = env.sql_query(sql).get_schema()
    assert str(table.get_schema()) == str(expected)


A, B, C = col("a"), col("b"), col("c")

#: An expression over table t, and its text.
EXPRESSIONS: list[tuple[Any, str]] = [
    (A + 1, "a + 1"), (1 + A, "1 + a"), (A - 2 * A, "a - 2 * a"), ((A + 1) * 2, "(a + 1) * 2"), (A / 2, "a / 2"),
    (A % 3, "a % 3"), (A**2, "POWER(a, 2)"), (-A, "-a"), (10 - A, "10 - a"), (A == 1, "a = 1"), (A != 1, "a <> 1"),
    ((A < 1) | (A >= 5), "a < 1 OR a >= 5"), ((A <= 1) & (A > 0), "a <= 1 AND a > 0"), (~(A > 1), "NOT a > 1"),
    (not_(A > 1), "NOT a > 1"), (and_(A > 1, A < 5, B == "x"), "a > 1 AND a < 5 AND b = 'x'"),
    (A.is_null, "a IS NULL"), (A.is_not_null, "a IS NOT NULL"), ((A > 1).is_true, "(a > 1) IS TRUE"),
    ((A > 1).is_not_false, "(a > 1) IS NOT FALSE"), (A.between(1, 3), "a BETWEEN 1 AND 3"),
    (A.not_between(1, 3), "a NOT BETWEEN 1 AND 3"), (A.in_(1, 2), "a IN (1, 2)"), (B.like("x%"), "b LIKE 'x%'"),
    (B.like("x!%%", "!"), "b LIKE 'x!%%' ESCAPE '!'"), (B.similar("x+"), "b SIMILAR TO 'x+'"),
    ((A > 1).then("y", "n"), "CASE WHEN a > 1 THEN 'y' ELSE 'n' END"),
    (if_then_else(A > 1, A, null_of(DataTypes.INT())), "CASE WHEN a > 1 THEN a ELSE CAST(NULL AS INT) END"),
    (A.cast(DataTypes.STRING()), "CAST(a AS STRING)"), (B.try_cast(DataTypes.INT()), "TRY_CAST(b AS INT)"),
    (lit(1.5), "1.5e0"), (lit(Decimal("1.50")), "1.50"), (lit(-3), "-3"), (lit(True), "TRUE"), (lit("it's"), "'it''s'"),
    (lit(2**40), str(2**40)), (lit(b"\x01\xff"), "x'01ff'"), (lit(dt.date(2026, 2, 3)), "DATE '2026-02-03'"),
    (lit(dt.datetime(2026, 2, 3, 4, 5, 6)), "TIMESTAMP '2026-02-03 04:05:06'"), (lit(dt.time(4, 5, 6)), "TIME '04:05:06'"),
    (lit(1, DataTypes.BIGINT()), "CAST(1 AS BIGINT)"), (col("ts") + lit(5).minutes, "ts + INTERVAL '5' MINUTE"),
    (col("ts") - lit(1500).millis, "ts - INTERVAL '1.5' SECOND"), (col("ts") + lit(2).months, "ts + INTERVAL '2' MONTH"),
    (col("ts") + dt.timedelta(seconds=3), "ts + INTERVAL '3' SECOND"), (B.upper_case, "UPPER(b)"), (B.lower_case, "LOWER(b)"),
    (B.substring(2, 3), "SUBSTRING(b FROM 2 FOR 3)"), (B.substring(2), "SUBSTRING(b FROM 2)"), (B.trim(), "TRIM(b)"),
    (B.trim_leading("x"), "TRIM(LEADING 'x' FROM b)"), (B.trim_trailing(), "TRIM(TRAILING FROM b)"), (B.ltrim(), "LTRIM(b)"),
    (B.overlay("x", 2, 3), "OVERLAY(b PLACING 'x' FROM 2 FOR 3)"), (lit("x").position(B), "POSITION('x' IN b)"),
    (B.char_length, "CHAR_LENGTH(b)"), (B.concat("x"), "CONCAT(b, 'x')"), (concat(B, "-", B), "CONCAT(b, '-', b)"),
    (B.regexp_replace("x", "y"), "REGEXP_REPLACE(b, 'x', 'y')"), (B.split_index(",", 0), "SPLIT_INDEX(b, ',', 0)"),
    (B.locate("abc"), "LOCATE(b, 'abc')"), (B.md5, "MD5(b)"), (B.sha2(256), "SHA2(b, 256)"), (B.to_date, "CAST(b AS DATE)"),
    (B.to_timestamp, "CAST(b AS TIMESTAMP(3))"), (C.round(2), "ROUND(c, 2)"), (C.abs, "ABS(c)"), (C.log(2), "LOG(2, c)"),
    (C.ln, "LN(c)"), (C.floor(), "FLOOR(c)"), (col("ts").floor(TimeIntervalUnit.HOUR), "FLOOR(ts TO HOUR)"),
    (col("ts").ceil(TimeIntervalUnit.DAY), "CEIL(ts TO DAY)"), (col("d").extract(TimeIntervalUnit.YEAR), "EXTRACT(YEAR FROM d)"),
    (timestamp_diff(TimePointUnit.DAY, col("d"), col("ts")), "TIMESTAMPDIFF(DAY, d, ts)"),
    (date_format(col("ts"), "yyyy"), "DATE_FORMAT(ts, 'yyyy')"),
    (temporal_overlaps(col("ts"), lit(1).hours, col("ts"), lit(2).hours), "(ts, INTERVAL '1' HOUR) OVERLAPS (ts, INTERVAL '2' HOUR)"),
    (col("r").get("x"), "t.r.x"), (col("r").y, "t.r.y"), (col("l")[1], "l[1]"), (col("m").at("k"), "m['k']"),
    (col("l").cardinality, "CARDINALITY(l)"), (col("l").array_contains(3), "ARRAY_CONTAINS(l, 3)"), (col("m").map_keys, "MAP_KEYS(m)"),
    (array(1, A), "ARRAY[1, a]"), (map_("k", A), "MAP['k', a]"), (row(A, B), "ROW(a, b)"), (coalesce(A, 0), "COALESCE(a, 0)"),
    (A.if_null(0), "IFNULL(a, 0)"), (B.is_json(JsonType.OBJECT), "b IS JSON OBJECT"), (B.json_exists("$.x"), "JSON_EXISTS(b, '$.x')"),
    (B.json_value("$.x", DataTypes.INT()), "JSON_VALUE(b, '$.x' RETURNING INT)"),
    (
        B.json_value("$.x", DataTypes.INT(), JsonValueOnEmptyOrError.DEFAULT, 7, JsonValueOnEmptyOrError.ERROR),
        "JSON_VALUE(b, '$.x' RETURNING INT DEFAULT 7 ON EMPTY ERROR ON ERROR)",
    ),
    (B.json_query("$.x"), "JSON_QUERY(b, '$.x')"), (json_object(JsonOnNull.ABSENT, "k", A), "JSON_OBJECT('k' VALUE a ABSENT ON NULL)"),
    (call("UPPER", B), "UPPER(b)"), (call_sql("a + UPPER(b) || 'x'") if False else call_sql("UPPER(b) || 'x'"), "UPPER(b) || 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "text"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_expressions(tables: TableEnvironment, made: Any, text: str) -> None:
    same(tables, tables.from_path("t").select(made.alias("x")), f"SELECT {text} AS x FROM t")


def hour(function: Any) -> Any:
    return function.on(col("ts")).alias("w")


#: A table made of t, u and w, and its text.
QUERIES: dict[str, tuple[Callable[[Table, Table, Table], Table], str]] = {
    "columns": (lambda t, u, w: t.select(A, B), "SELECT a, b FROM t"),
    "names of what has none": (lambda t, u, w: t.select(A, A + 1), "SELECT a, a + 1 AS _c1 FROM t"),
    "all columns": (lambda t, u, w: w.select(with_all_columns()), "SELECT * FROM w"),
    "some columns": (
        lambda t, u, w: t.select(with_columns(range_(1, 2), col("d")), lit(1).alias("x")),
        "SELECT a, b, d, 1 AS x FROM t",
    ),
    "other columns": (
        lambda t, u, w: t.select(without_columns(range_("c", "p"), B)),
        "SELECT a FROM t",
    ),
    "flatten": (lambda t, u, w: t.select(col("r").flatten), "SELECT t.r.x AS r$x, t.r.y AS r$y FROM t"),
    "alias": (lambda t, u, w: w.alias("x"), "SELECT a AS x, b FROM w"),
    "filter": (lambda t, u, w: w.filter(A > 1).where(B == "x"), "SELECT * FROM w WHERE a > 1 AND b = 'x'"),
    "add columns": (lambda t, u, w: w.add_columns((A + 1).alias("x")), "SELECT *, a + 1 AS x FROM w"),
    "replace columns": (
        lambda t, u, w: w.add_or_replace_columns((A + 1).alias("a"), A.alias("z")),
        "SELECT a + 1 AS a, b, a AS z FROM w",
    ),
    "rename columns": (lambda t, u, w: w.rename_columns(A.alias("x")), "SELECT a AS x, b FROM w"),
    "drop columns": (lambda t, u, w: w.drop_columns(A), "SELECT b FROM w"),
    "aggregate of all": (
        lambda t, u, w: t.select(A.sum, C.max.alias("m"), A.sum + 1),
        "SELECT SUM(a) AS EXPR$0, MAX(c) AS m, SUM(a) + 1 AS _c2 FROM t",
    ),
    "groups": (
        lambda t, u, w: t.group_by(B).select(B, A.sum, A.count.distinct, C.avg.alias("x")),
        "SELECT b, SUM(a) AS EXPR$0, COUNT(DISTINCT a) AS EXPR$1, AVG(c) AS x FROM t GROUP BY b",
    ),
    "a named key": (
        lambda t, u, w: t.group_by((A % 3).alias("k")).select(col("k"), A.sum.alias("s")),
        "SELECT k, SUM(a) AS s FROM (SELECT *, a % 3 AS k FROM t) GROUP BY k",
    ),
    "having": (
        lambda t, u, w: t.group_by(B).select(B, A.sum.alias("s")).filter(col("s") > 3),
        "SELECT b, SUM(a) AS s FROM t GROUP BY b HAVING SUM(a) > 3",
    ),
    "more aggregates": (
        lambda t, u, w: t.group_by(A).select(
            A, B.list_agg("-").alias("x"), B.first_value.alias("f"), C.stddev_pop.alias("d"), B.collect.alias("l"),
            json_object_agg(JsonOnNull.ABSENT, B, A).alias("j"),
        ),
        "SELECT a, LISTAGG(b, '-') AS x, FIRST_VALUE(b) AS f, STDDEV_POP(c) AS d, COLLECT(b) AS l, "
        "JSON_OBJECTAGG(KEY b VALUE a ABSENT ON NULL) AS j FROM t GROUP BY a",
    ),
    "distinct": (lambda t, u, w: w.distinct(), "SELECT DISTINCT * FROM w"),
    "join": (
        lambda t, u, w: w.join(u, col("k") == A).select(A, col("v")),
        "SELECT a, v FROM w JOIN u ON a = k",
    ),
    "join and where": (
        lambda t, u, w: w.join(u).where((col("k") == A) & (B == "x")).select(A, col("v")),
        "SELECT a, v FROM (SELECT * FROM w, u) WHERE a = k AND b = 'x'",
    ),
    "left join": (lambda t, u, w: w.left_outer_join(u, col("k") == A), "SELECT * FROM w LEFT JOIN u ON a = k"),
    "right join": (lambda t, u, w: w.right_outer_join(u, col("k") == A), "SELECT * FROM w RIGHT JOIN u ON a = k"),
    "full join": (lambda t, u, w: w.full_outer_join(u, col("k") == A), "SELECT * FROM w FULL JOIN u ON a = k"),
    "interval join": (
        lambda t, u, w: t.join(u, (col("k") == A) & (col("ts") >= col("us")) & (col("ts") < col("us") + lit(1).hours)).select(A),
        "SELECT a FROM t JOIN u ON a = k AND ts >= us AND ts < us + INTERVAL '1' HOUR",
    ),
    "union": (lambda t, u, w: w.union(u.select(col("k"), col("v"))), "SELECT * FROM w UNION SELECT k, v FROM u"),
    "union all": (lambda t, u, w: w.union_all(u.select(col("k"), col("v"))), "SELECT * FROM w UNION ALL SELECT k, v FROM u"),
    "intersect": (lambda t, u, w: w.intersect(w), "SELECT * FROM w INTERSECT SELECT * FROM w"),
    "intersect all": (lambda t, u, w: w.intersect_all(w), "SELECT * FROM w INTERSECT ALL SELECT * FROM w"),
    "minus": (lambda t, u, w: w.minus(w), "SELECT * FROM w EXCEPT SELECT * FROM w"),
    "minus all": (lambda t, u, w: w.minus_all(w), "SELECT * FROM w EXCEPT ALL SELECT * FROM w"),
    "in a table": (
        lambda t, u, w: w.filter(A.in_(u.select(col("k")))),
        "SELECT * FROM w WHERE a IN (SELECT k FROM u)",
    ),
    "top n": (
        lambda t, u, w: w.order_by(A.desc, B).offset(2).fetch(3),
        "SELECT * FROM w ORDER BY a DESC, b LIMIT 3 OFFSET 2",
    ),
    "limit": (lambda t, u, w: w.limit(3, 1), "SELECT * FROM w LIMIT 3 OFFSET 1"),
    "cut twice": (lambda t, u, w: w.fetch(3).fetch(2), "SELECT * FROM (SELECT * FROM w LIMIT 3) LIMIT 2"),
    "tumble": (
        lambda t, u, w: t.window(hour(Tumble.over(lit(1).hours))).group_by(col("w"), B).select(
            B, col("w").start, col("w").end.alias("e"), A.sum.alias("s")
        ),
        "SELECT b, TUMBLE_START(ts, INTERVAL '1' HOUR) AS EXPR$0, TUMBLE_END(ts, INTERVAL '1' HOUR) AS e, SUM(a) AS s "
        "FROM t GROUP BY b, TUMBLE(ts, INTERVAL '1' HOUR)",
    ),
    "slide": (
        lambda t, u, w: t.window(hour(Slide.over(lit(1).hours).every(lit(10).minutes))).group_by(col("w")).select(A.max.alias("m")),
        "SELECT MAX(a) AS m FROM t GROUP BY HOP(ts, INTERVAL '10' MINUTE, INTERVAL '1' HOUR)",
    ),
    "session": (
        lambda t, u, w: t.window(hour(Session.with_gap(lit(5).minutes))).group_by(col("w"), B).select(B, col("w").rowtime.alias("x"), A.count.alias("n")),
        "SELECT b, SESSION_ROWTIME(ts, INTERVAL '5' MINUTE) AS x, COUNT(a) AS n FROM t GROUP BY b, SESSION(ts, INTERVAL '5' MINUTE)",
    ),
    "processing time": (
        lambda t, u, w: t.window(Tumble.over(lit(1).hours).on(col("p")).alias("w")).group_by(col("w")).select(A.sum.alias("s")),
        "SELECT SUM(a) AS s FROM t GROUP BY TUMBLE(p, INTERVAL '1' HOUR)",
    ),
    "window of a window": (
        lambda t, u, w: t.window(hour(Tumble.over(lit(1).minutes))).group_by(col("w")).select(col("w").rowtime.alias("rt"), A.sum.alias("s"))
        .window(Tumble.over(lit(1).hours).on(col("rt")).alias("v")).group_by(col("v")).select(col("s").max.alias("m")),
        "SELECT MAX(s) AS m FROM (SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS rt, SUM(a) AS s FROM t "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)) GROUP BY TUMBLE(rt, INTERVAL '1' HOUR)",
    ),
    "over": (
        lambda t, u, w: t.over_window(Over.partition_by(B).order_by(col("ts")).alias("w")).select(
            A, A.sum.over(col("w")).alias("s"), C.max.over(col("w"))
        ),
        "SELECT a, SUM(a) OVER w AS s, MAX(c) OVER w AS _c2 FROM t WINDOW w AS (PARTITION BY b ORDER BY ts)",
    ),
    "over rows": (
        lambda t, u, w: t.over_window(
            Over.partition_by(B).order_by(col("ts")).preceding(row_interval(2)).following(CURRENT_ROW).alias("w")
        ).select(A.sum.over(col("w")).alias("s")),
        "SELECT SUM(a) OVER (PARTITION BY b ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM t",
    ),
    "over all rows": (
        lambda t, u, w: t.over_window(Over.order_by(col("ts")).preceding(UNBOUNDED_ROW).alias("w")).select(
            A.count.over(col("w")).alias("s")
        ),
        "SELECT COUNT(a) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM t",
    ),
    "over a time": (
        lambda t, u, w: t.over_window(
            Over.partition_by(B).order_by(col("ts")).preceding(lit(1).hours).alias("w"),
            Over.partition_by(A).order_by(col("ts")).preceding(UNBOUNDED_RANGE).alias("v"),
        ).select(A.sum.over(col("w")).alias("s"), A.sum.over(col("w")).alias("z")),
        "SELECT SUM(a) OVER w AS s, SUM(a) OVER w AS z FROM t WINDOW w AS (PARTITION BY b ORDER BY ts RANGE BETWEEN "
        "INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)",
    ),
    "lag": (
        lambda t, u, w: t.over_window(Over.partition_by(B).order_by(col("ts")).alias("w")).select(lag(A, 2).over(col("w")).alias("x")),
        "SELECT LAG(a, 2) OVER (PARTITION BY b ORDER BY ts) AS x FROM t",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_queries(tables: TableEnvironment, name: str) -> None:
    make, sql = QUERIES[name]
    same(tables, make(*map(tables.from_path, ("t", "u", "w"))), sql)


def test_a_long_chain_of_calls(tables: TableEnvironment) -> None:
    table = tables.from_path("w")
    for _ in range(150):
        table = table.filter(A > 1)
    assert table.get_schema().get_column_names() == ["a", "b"]
