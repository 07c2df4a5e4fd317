"""SQL → rows over VALUES and files, in one process. Queries by kind: tests/golden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.scripts import plan_script
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

_VIEWS = """
CREATE VIEW t AS SELECT * FROM (VALUES (1, 'a', 10), (2, 'b', 20), (3, 'a', 30), (4, CAST(NULL AS STRING), 5))
  AS v(id, g, n);
CREATE VIEW u AS SELECT * FROM (VALUES ('a', 100), ('c', 300)) AS v(g, m);
"""


def result(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    job = session.execute(query).job
    assert job is not None
    return run_graph(job.job_graph).rows


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


@pytest.mark.parametrize(
    ("grouping", "want"),
    [
        ("ROLLUP(g, n > 15)", {("a", False): 1, ("a", True): 1, ("a", None): 2, (None, None): 3, ("b", True): 1,
                               ("b", None): 1}),
        ("CUBE(n > 15)", {(None, False): 1, (None, True): 2, (None, None): 3}),
        ("GROUPING SETS (g, n > 15)", {("a", None): 2, ("b", None): 1, (None, False): 1, (None, True): 2}),
    ],
)  # fmt: skip
def test_conditions_are_grouping_items_too(grouping: str, want: dict[tuple[Any, Any], int]) -> None:
    sql = SqlSession()
    for _ in sql.run_script(_VIEWS):
        pass
    g = "g" if "g" in grouping else "CAST(NULL AS STRING)"
    query = f"SELECT {g}, n > 15, COUNT(*) FROM t WHERE g IS NOT NULL GROUP BY {grouping}"
    assert {(a, b): c for a, b, c in result(sql, query)} == want


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
    with pytest.raises(UnsupportedError, match="BROADCASTED"):
        sql.execute("SELECT /*+ BROADCASTED(f) */ id FROM f")


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
