"""SQL → rows over VALUES and files, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession, plan_script
from penstock.testing import run_graph

_VIEWS = """
CREATE VIEW t AS SELECT * FROM (VALUES (1, 'a', 10), (2, 'b', 20), (3, 'a', 30), (4, CAST(NULL AS STRING), 5))
  AS v(id, g, n);
CREATE VIEW u AS SELECT * FROM (VALUES ('a', 100), ('c', 300)) AS v(g, m);
"""

#: query → rows, in any order
CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "projection": ("SELECT id + 1, UPPER(g) FROM t WHERE n > 10", [(3, "B"), (4, "A")]),
    "constant": ("SELECT 1, 'x'", [(1, "x")]),
    "group by": ("SELECT g, COUNT(*), SUM(n) FROM t GROUP BY g", [("a", 2, 40), ("b", 1, 20), (None, 1, 5)]),
    "having": ("SELECT g FROM t GROUP BY g HAVING COUNT(*) > 1", [("a",)]),
    "grouped after a filter of nulls": (
        "SELECT k, COUNT(*) FROM (VALUES (1), (2), (CAST(NULL AS INT))) AS v(k) WHERE k > 0 GROUP BY k",
        [(1, 1), (2, 1)],
    ),
    "unnest with ordinality": (
        "SELECT id, x, o FROM t CROSS JOIN UNNEST(ARRAY[id, 7]) WITH ORDINALITY AS u(x, o) WHERE id < 3",
        [(1, 1, 1), (1, 7, 2), (2, 2, 1), (2, 7, 2)],
    ),
    "unnest of a map with ordinality": (
        "SELECT u.* FROM t CROSS JOIN UNNEST(MAP['a', id]) WITH ORDINALITY AS u(k, v, o) WHERE id = 3",
        [("a", 3, 1)],
    ),
    "global aggregate": ("SELECT COUNT(*), MAX(n), MIN(g) FROM t", [(4, 30, "a")]),
    "filter and distinct": (
        "SELECT COUNT(DISTINCT g), SUM(n) FILTER (WHERE g = 'a') FROM t",
        [(2, 40)],
    ),
    "expression over aggregates": (
        "SELECT g, SUM(n) / COUNT(*) + 1 FROM t WHERE g = 'a' GROUP BY g",
        [("a", 21)],
    ),
    "expression as key": ("SELECT n > 15, COUNT(*) FROM t GROUP BY n > 15", [(True, 2), (False, 2)]),
    "inner join": ("SELECT id, m FROM t JOIN u ON t.g = u.g", [(1, 100), (3, 100)]),
    "left join": (
        "SELECT id, m FROM t LEFT JOIN u ON t.g = u.g",
        [(1, 100), (2, None), (3, 100), (4, None)],
    ),
    "full join": (
        "SELECT id, m FROM t FULL JOIN u ON t.g = u.g WHERE id IS NULL OR id < 3",
        [(1, 100), (2, None), (None, 300)],
    ),
    "using": ("SELECT g, id, m FROM t JOIN u USING (g)", [("a", 1, 100), ("a", 3, 100)]),
    "computed key": ("SELECT id FROM t JOIN u ON t.n * 10 = u.m", [(1,), (3,)]),
    "comma join": ("SELECT id FROM t, u WHERE t.g = u.g AND m - n > 80", [(1,)]),
    "in subquery": ("SELECT id FROM t WHERE g IN (SELECT g FROM u)", [(1,), (3,)]),
    "not in subquery": ("SELECT id FROM t WHERE id NOT IN (SELECT m / 100 FROM u)", [(2,), (4,)]),
    "correlated in": ("SELECT id FROM t WHERE id IN (SELECT m / 100 FROM u WHERE u.g = t.g)", [(1,)]),
    "correlated in with a star and an alias": (
        "SELECT id FROM t WHERE (g, n * 10) IN (SELECT x.* FROM u AS x WHERE t.id = 1 AND x.m > t.n)",
        [(1,)],
    ),
    "correlated not in": (
        "SELECT id FROM t WHERE id NOT IN (SELECT u.m / 100 FROM u WHERE u.g = t.g AND u.m < 1000)",
        [(2,), (3,), (4,)],
    ),
    "exists": ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND u.m > t.n)", [(1,), (3,)]),
    "not exists": ("SELECT id FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.g = t.g)", [(2,), (4,)]),
    "greater than all": ("SELECT id FROM t WHERE n >= ALL (SELECT n FROM t)", [(3,)]),
    "scalar subquery": ("SELECT id FROM t WHERE n = (SELECT MAX(n) FROM t)", [(3,)]),
    "union all": ("SELECT g FROM u UNION ALL SELECT g FROM u", [("a",), ("c",), ("a",), ("c",)]),
    "union": ("SELECT g FROM u UNION SELECT g FROM t", [("a",), ("c",), ("b",), (None,)]),
    "distinct": ("SELECT DISTINCT g FROM t", [("a",), ("b",), (None,)]),
    "with": ("WITH x AS (SELECT g, SUM(n) AS s FROM t GROUP BY g) SELECT s FROM x WHERE g = 'b'", [(20,)]),
    "subquery alias": ("SELECT v.a FROM (SELECT id FROM t) AS v(a) WHERE v.a < 2", [(1,)]),
    "case": ("SELECT CASE g WHEN 'a' THEN 1 ELSE 0 END FROM t WHERE id < 3", [(1,), (0,)]),
    "nested row": (
        "SELECT r.x FROM (SELECT CAST(ROW(id, g) AS ROW<x INT, y STRING>) AS r FROM t) WHERE r.y = 'b'",
        [(2,)],
    ),
    "rollup": ("SELECT g, SUM(m) FROM u GROUP BY ROLLUP(g)", [("a", 100), ("c", 300), (None, 400)]),
    "top 1": (
        "SELECT g, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n DESC) AS r FROM t) WHERE r = 1",
        [("a", 30), ("b", 20), (None, 5)],
    ),
    "aggregate of aggregate": ("SELECT MAX(s) FROM (SELECT g, SUM(n) AS s FROM t GROUP BY g)", [(40,)]),
}


def result(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    job = session.execute(query).job
    assert job is not None
    return run_graph(job.job_graph).rows


@pytest.fixture(params=["1", "2"])
def session(request: pytest.FixtureRequest) -> SqlSession:
    sql = SqlSession({"parallelism.default": request.param})
    for _ in sql.run_script(_VIEWS):
        pass
    return sql


@pytest.mark.parametrize("name", list(CASES))
def test_rows(session: SqlSession, name: str) -> None:
    query, rows = CASES[name]
    assert sorted(result(session, query), key=repr) == sorted(rows, key=repr)


def test_streaming_mode_gives_the_same_final_rows() -> None:
    sql = SqlSession({"parallelism.default": "2", "execution.runtime-mode": "STREAMING"})
    for _ in sql.run_script(_VIEWS):
        pass
    job = sql.execute("SELECT g, COUNT(*) AS c FROM t GROUP BY g").job
    assert job is not None
    assert job.mode == "upsert"
    assert job.result_keys == (0,)
    assert sorted(run_graph(job.job_graph).rows, key=repr) == sorted(
        [("a", 2), ("b", 1), (None, 1)], key=repr
    )


def test_output_names_are_unique_as_flinks() -> None:
    sql = SqlSession()
    for _ in sql.run_script(_VIEWS):
        pass
    job = sql.execute("SELECT g, g, COUNT(*), u.m FROM u GROUP BY g, m").job
    assert job is not None
    assert job.result_schema is not None
    assert job.result_schema.names == ["g", "g0", "EXPR$2", "m"]


def test_inserts_of_a_script_are_one_job(tmp_path: Path) -> None:
    script = f"""
    CREATE TABLE big (id INT, g STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/big', 'format' = 'json');
    CREATE TABLE small (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/small', 'format' = 'json');
    {_VIEWS}
    INSERT INTO big SELECT id, g FROM t WHERE n >= 20;
    INSERT INTO small SELECT id FROM t WHERE n < 20;
    """
    planned = plan_script(script, {"parallelism.default": "2"})
    assert planned.kind == "insert"
    assert planned.bounded
    run_graph(planned.job_graph)
    read = SqlSession()
    for _ in read.run_script(script.split("CREATE VIEW")[0]):
        pass
    assert sorted(result(read, "SELECT * FROM big")) == [(2, "b"), (3, "a")]
    assert sorted(result(read, "SELECT id FROM small")) == [(1,), (4,)]


def test_options_hint_changes_a_tables_options(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n")
    (tmp_path / "b.csv").write_text("2;y\n")
    sql = SqlSession()
    sql.execute(
        "CREATE TABLE f (id INT, s STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = '{tmp_path}/a.csv')"
    )
    hint = f"/*+ OPTIONS('path' = '{tmp_path}/b.csv', 'csv.field-delimiter' = ';') */"
    assert result(sql, "SELECT id, s FROM f") == [(1, "x")]
    assert result(sql, f"SELECT x.id, x.s FROM f {hint} AS x") == [(2, "y")]
    with pytest.raises(UnsupportedError, match="BROADCAST"):
        sql.execute("SELECT /*+ BROADCAST(f) */ id FROM f")


def test_late_rows_reach_their_table(tmp_path: Path) -> None:
    """On time + late = all. What comes after several batches is behind the watermark."""
    rows = [("a", 25)] * 40_000 + [("b", 2), ("a", 26)]
    (tmp_path / "in.csv").write_text("".join(f"{k},2024-01-01 00:00:{s:02d}\n" for k, s in rows))
    script = f"""
    SET 'table.exec.late-data.table' = 'late';
    SET 'pipeline.auto-watermark-interval' = '0 ms';
    CREATE TABLE events (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (
      'connector' = 'filesystem', 'path' = '{tmp_path}/in.csv', 'format' = 'csv');
    CREATE TABLE late (ts TIMESTAMP(3), k STRING) WITH ('connector' = 'blackhole');
    """
    session = SqlSession()
    for _ in session.run_script(script):
        pass
    query = (
        "SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY k, window_start, window_end"
    )
    job = session.execute(query).job
    assert job is not None
    ran = run_graph(job.job_graph)
    # Which rows are late depends on how the source batched them; none is lost either way.
    operators = [o for task in ran.metrics.values() for o in task.operators]
    late = sum(o.counters.get("numRecordsIn", 0) for o in operators if o.name.startswith("Sink: late"))
    assert late == ran.counters.get("numLateRecordsDropped", 0)
    assert sum(row[1] for row in ran.rows) + late == len(rows)
