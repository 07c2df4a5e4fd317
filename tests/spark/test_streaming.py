"""Unbounded jobs as Structured Streaming: what runs, what is refused and why."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import JobGraph
from penstock.spark.coverage import check_streaming
from penstock.spark.streaming import SparkStreamJob
from penstock.sql.scripts import plan_script
from penstock.testing import run_graph

SETTINGS = {"parallelism.default": "1", "execution.engine": "streaming", "table.exec.join.unbounded-state": "allow",
            "execution.checkpointing.interval": "100 ms"}  # fmt: skip
#: ``live``: the sources do not end.
TABLES = """
CREATE TABLE e (id BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json'{live});
CREATE TABLE f (id BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json'{live});
CREATE TABLE versions (id BIGINT, k STRING NOT NULL, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND,
  PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json'{live});
CREATE TABLE clock (id BIGINT, k STRING, ts TIMESTAMP(3), p AS PROCTIME(), lts AS CAST(ts AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR lts AS lts - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json'{live});
CREATE TABLE looked (k STRING, label STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}/looked.db', 'table-name' = 'looked');
CREATE TABLE p (a STRING, b STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE o (a STRING, b STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}/out', 'format' = 'json');
"""
LIVE = ", 'source.monitor-interval' = '100 ms'"
_WINDOW = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_HOP = "TABLE(HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))"
_CUMULATE = "TABLE(CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND))"
_SESSION = "TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
_OTHER = _WINDOW.replace("TABLE e", "TABLE f")
_END = "CAST(window_end AS STRING)"

#: Queries that are supported; each gives (a STRING, b STRING, n BIGINT).
SUPPORTED: dict[str, str] = {
    "stateless": "SELECT k, CAST(ts AS STRING), id FROM e WHERE id < 3",
    "union": "SELECT k, 'e', id FROM e WHERE id > 2 UNION ALL SELECT k, 'f', id + 1 FROM f",
    "table_function": "SELECT k, word, id FROM e CROSS JOIN UNNEST(ARRAY[k, 'z']) AS u(word)",
    "tumble": f"SELECT k, {_END}, COUNT(*) FROM {_WINDOW} GROUP BY k, window_start, window_end",
    "hop": f"SELECT k, {_END}, SUM(id) FROM {_HOP} GROUP BY k, window_start, window_end",
    "cumulate": f"SELECT k, {_END}, COUNT(DISTINCT id) FROM {_CUMULATE} GROUP BY k, window_start, window_end",
    "session": f"SELECT k, {_END}, COUNT(*) FROM {_SESSION} GROUP BY k, window_start, window_end",
    "grouping_sets": f"SELECT k, {_END}, COUNT(*) FROM {_WINDOW} GROUP BY window_start, window_end, ROLLUP (k)",
    "rows_of_sessions": f"SELECT k, {_END}, id FROM {_SESSION}",
    "window_top_n": f"SELECT k, {_END}, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    f"ORDER BY id DESC) AS r FROM {_WINDOW}) WHERE r <= 2",
    "first_row_of_a_window": f"SELECT k, {_END}, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, window_start, "
    f"window_end ORDER BY ts) AS r FROM {_WINDOW}) WHERE r = 1",
    "window_join": f"SELECT a.k, CAST(a.window_end AS STRING), a.id * 10 + b.id FROM (SELECT * FROM {_WINDOW}) a JOIN "
    f"(SELECT * FROM {_OTHER}) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.id < b.id",
    "interval_join": "SELECT e.k, f.k, f.id FROM e JOIN f ON e.k = f.k AND f.ts BETWEEN e.ts AND e.ts + INTERVAL '8' SECOND "
    "WHERE e.id < f.id AND e.id < 4",
    "interval_left_join": "SELECT e.k, f.k, e.id FROM e LEFT JOIN f ON e.k = f.k AND f.id = e.id + 2 "
    "AND f.ts BETWEEN e.ts AND e.ts + INTERVAL '8' SECOND WHERE e.id < 7",
    "inner_join": "SELECT e.k, f.k, f.id FROM e JOIN f ON e.id = f.id + 1",
    "temporal_join": "SELECT e.k, r.k, r.id FROM e JOIN versions FOR SYSTEM_TIME AS OF e.ts AS r ON e.k = r.k",
    "over": "SELECT k, CAST(COUNT(*) OVER w AS STRING), SUM(id) OVER w FROM e WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "first_row": "SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS r FROM clock) WHERE r = 1",
}  # fmt: skip
#: A query of each kind of state that is run; the others are planned: each run starts processes
#: of its own, and takes many seconds.
RUN = ("stateless", "tumble", "first_row_of_a_window", "interval_join")
#: Those that are refused, with a part of the reason.
REFUSED = {
    "updating aggregate": ("SELECT k, 'x', COUNT(*) FROM e GROUP BY k", "takes rows back"),
    "distinct": ("SELECT DISTINCT k, 'x', id FROM e", "takes rows back"),
    "top n": ("SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS r FROM e) "
              "WHERE r <= 2", "takes rows back"),
    "first n": ("SELECT k, 'x', id FROM e ORDER BY id LIMIT 3", "takes rows back"),
    "last rows": ("SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM e) "
                  "WHERE r = 1", "takes rows back"),
    "first rows by time": ("SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS r FROM e) "
                           "WHERE r = 1", "takes rows back"),
    "outer join": ("SELECT e.k, f.k, f.id FROM e LEFT JOIN f ON e.id = f.id", "takes rows back"),
    "semi join": ("SELECT k, 'x', id FROM e WHERE id IN (SELECT id + 1 FROM f)", "takes rows back"),
    "set operation": ("SELECT k, k, id FROM e INTERSECT SELECT k, k, id FROM f", "takes rows back"),
    "window of a window": (
        f"SELECT 'x', {_END}, MAX(n) FROM (SELECT k, window_start, window_end, COUNT(*) AS n "
        f"FROM {_WINDOW} GROUP BY k, window_start, window_end) GROUP BY window_start, window_end", "behind another"),
    "sessions of windows": (
        f"SELECT k, {_END}, id FROM {_SESSION.replace('TABLE e', 'TABLE j')}", "behind another"),
    "limit": ("SELECT k, 'x', id FROM e LIMIT 3", "does not end"),
    "sort by time": ("SELECT k, 'x', id FROM e ORDER BY ts", "does not end"),
    "select": (None, "INSERT INTO"),
    "look-up": ("SELECT c.k, l.label, c.id FROM clock AS c JOIN looked FOR SYSTEM_TIME AS OF c.p AS l ON c.k = l.k",
                "look-up per row"),
    "rows of the plan": ("SELECT k, 'x', id FROM e UNION ALL SELECT 'a', 'b', CAST(1 AS BIGINT)", "beside a stream"),
    "processing time": ("SELECT k, CAST(window_end AS STRING), COUNT(*) FROM TABLE(TUMBLE(TABLE clock, DESCRIPTOR(p), "
                        "INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end", "one time for all"),
    "clock of a zone": ("SELECT k, CAST(window_end AS STRING), COUNT(*) FROM TABLE(TUMBLE(TABLE clock, DESCRIPTOR(lts), "
                        "INTERVAL '1' DAY)) GROUP BY k, window_start, window_end", "clock of a time zone"),
}  # fmt: skip
_SETUP = {
    "sessions of windows": "CREATE VIEW j AS SELECT k, window_time AS ts, COUNT(*) AS id "
    f"FROM {_WINDOW} GROUP BY k, window_start, window_end, window_time;",
    "clock of a zone": "SET 'table.local-time-zone' = 'America/New_York';",
}
#: Operators of no SQL query: made by DataStream programs, by other engines' plans, or with others.
ELSEWHERE = (
    s.KeyedProcessSpec, s.KeyedWindowSpec, s.PythonSpec, s.RecordTimeSpec,  # below, and test_datastream.py
    s.AsyncCalcSpec, s.AsyncWaitSpec, s.AssignWatermarksSpec, s.WindowMaximumSpec,
    s.MaterializeSpec, s.NormalizeSpec, s.OverFinalSpec, s.SortSpec, s.RowKindSpec, s.FinalRowsSpec, s.FunctionSourceSpec,  # refused by kind: test_by_kind
    s.EnumeratorSpec, s.SparkQuerySpec, s.SparkProgramSpec,  # never part of what Spark runs
    s.RegisteredSpec,  # operators of other packages say it themselves
)  # fmt: skip


def tables(path: Path, live: str = LIVE) -> str:
    with contextlib.closing(sqlite3.connect(path / "looked.db")) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS looked (k, label)")
    return TABLES.format(path=path, live=live)


def graph(path: Path, query: str | None, name: str = "", table: str = "p") -> JobGraph:
    setup = tables(path) + _SETUP.get(name, "")
    text = "SELECT id FROM e" if query is None else f"INSERT INTO {table} {query}"
    return plan_script(setup + text, SETTINGS).job_graph


def put(path: Path, number: int, ids: range) -> None:
    folder = path / "in"
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {
                "id": i,
                "k": "ab"[i % 2] if i < 100 else "z",
                "ts": f"2024-01-01 00:{i * 4 // 60:02d}:{i * 4 % 60:02d}.000",
            }
        )
        for i in ids
    ]
    staged = path / f"staged-{number}"
    staged.write_text("\n".join(lines) + "\n")
    staged.rename(folder / f"{number}.json")


def out(path: Path) -> list[tuple[Any, ...]]:
    rows = []
    for file in sorted(path.glob("part-*")):
        rows += [json.loads(line) for line in file.read_text().splitlines()]
    return [tuple(r.values()) for r in rows]


def run(job: SparkStreamJob) -> None:
    """All that is there now, then stop."""
    queries = job.start()
    try:
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()


def shown(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without those of the row far ahead, which a stream still holds back."""
    return sorted((tuple(row) for row in rows if "z" not in row[:2]), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_supported(name: str, spark: Any, tmp_path: Path) -> None:
    """The rows of the streaming engine when it has seen the end of the input."""
    put(tmp_path, 0, range(5))
    job_graph = graph(tmp_path, SUPPORTED[name], table="o")

    def job() -> SparkStreamJob:
        return SparkStreamJob(job_graph, spark, job_id=f"job-{name}", checkpoint=str(tmp_path / "checkpoint"))

    run(job())
    put(tmp_path, 1, range(5, 8))
    put(tmp_path, 2, range(200, 201))  # far ahead: closes every window before it
    run(job())  # started again: goes on where it stood, nothing twice
    bounded = plan_script(tables(tmp_path, live="") + SUPPORTED[name], SETTINGS).job_graph
    got = shown(out(tmp_path / "out"))
    assert got == shown(run_graph(bounded).rows)
    assert got


@pytest.mark.parametrize("name", list(SUPPORTED))
def test_supported_by_the_plan(name: str, tmp_path: Path) -> None:
    put(tmp_path, 0, range(1))
    check_streaming(graph(tmp_path, SUPPORTED[name]))


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    query, reason = REFUSED[name]
    put(tmp_path, 0, range(1))
    with pytest.raises(UnsupportedError, match=reason):
        check_streaming(graph(tmp_path, query, name))


def test_every_kind_of_operator_is_shown(tmp_path: Path) -> None:
    """A new operator needs a query that runs, or one that is refused."""
    put(tmp_path, 0, range(1))
    graphs = [graph(tmp_path, q) for q in SUPPORTED.values()]
    graphs += [graph(tmp_path, q, name) for name, (q, _) in REFUSED.items()]
    seen = {type(op.spec) for g in graphs for v in g.vertices for op in v.operators}
    kinds = set(get_args(s.OperatorSpec))
    assert kinds - seen - set(ELSEWHERE) == set()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (s.MaterializeSpec(keys=(0,)), "takes rows back"),
        (s.NormalizeSpec(keys=(0,)), "takes rows back"),
        (s.OverFinalSpec(partition=(), order=(), aggregates=()), "does not end"),
        (s.SortSpec(order=()), "does not end"),
        (s.RowKindSpec(kind="append"), "takes rows back"),
        (s.FinalRowsSpec(keys=(0,)), "does not end"),
        (s.FunctionSourceSpec(function="f"), "a source that is a function"),
    ],
)
def test_by_kind(spec: s.OperatorSpec, reason: str) -> None:
    assert reason in str(spec.not_streamed())


class Alarm(KeyedProcessFunction):
    """Counts a key's records; 10 s of event time behind its last one it says the count."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.due = context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        if self.due.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.due.value())
        self.due.update(ctx.timestamp() + 10_000)
        ctx.timer_service().register_event_time_timer(self.due.value())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), "alarm", self.count.value()
        self.count.clear()
        self.due.clear()


@pytest.mark.slow
def test_a_process_function_with_timers(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, 0, range(5))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for key, value in SETTINGS.items():
        env.set(key, value)
    for statement in tables(tmp_path).split(";")[:-1]:
        env.execute_sql(statement)
    stream = env.sql_query("SELECT id, k, ts FROM e")
    triple = Types.ROW_NAMED(["a", "b", "n"], [Types.STRING(), Types.STRING(), Types.LONG()])
    alarms = stream.key_by("k").process(Alarm(), triple)
    alarms.sink_to(Sink.connector("filesystem", {"path": str(tmp_path / "out"), "format": "json"}))
    job_graph = env.job_graph("alarms")

    def job() -> SparkStreamJob:
        return SparkStreamJob(job_graph, spark, job_id="alarms", checkpoint=str(tmp_path / "checkpoint"))

    run(job())
    put(tmp_path, 1, range(200, 202))
    run(job())
    assert sorted(out(tmp_path / "out")) == [("a", "alarm", 3), ("b", "alarm", 2)]
