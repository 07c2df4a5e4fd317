"""Unbounded jobs as Structured Streaming: what runs, what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.errors import UnsupportedError
from penstock.spark.coverage import check_streaming
from penstock.spark.streaming import SparkStreamJob
from penstock.sql.session import plan_script

SETTINGS = {"parallelism.default": "1", "execution.engine": "streaming", "table.exec.join.unbounded-state": "allow",
            "execution.checkpointing.interval": "100 ms"}  # fmt: skip
TABLES = """
CREATE TABLE e (id BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json', 'source.monitor-interval' = '100 ms');
CREATE TABLE f (id BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{path}/in', 'format' = 'json', 'source.monitor-interval' = '100 ms');
CREATE TABLE o (a STRING, b STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}/out', 'format' = 'json');
CREATE TABLE p (a STRING, b STRING, n BIGINT) WITH ('connector' = 'print');
"""
_WINDOW = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND))"

#: query → (supported, rows after all files), or the reason of the refusal.
SUPPORTED: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "stateless": (
        "SELECT k, CAST(ts AS STRING), id FROM e WHERE id < 3",
        [("a", "2024-01-01 00:00:00.000", 0), ("b", "2024-01-01 00:00:04.000", 1), ("a", "2024-01-01 00:00:08.000", 2)],
    ),
    "window": (
        f"SELECT k, CAST(window_end AS STRING), COUNT(*) FROM {_WINDOW} GROUP BY k, window_start, window_end",
        [("a", "2024-01-01 00:00:10.000", 2), ("b", "2024-01-01 00:00:10.000", 1),
         ("b", "2024-01-01 00:00:20.000", 1), ("a", "2024-01-01 00:00:20.000", 1),
         ("b", "2024-01-01 00:00:30.000", 2), ("a", "2024-01-01 00:00:30.000", 1)],
    ),
    "first_row_of_a_window": (
        "SELECT k, CAST(window_end AS STRING), id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, window_start, "
        f"window_end ORDER BY ts) AS r FROM {_WINDOW}) WHERE r = 1",
        [("a", "2024-01-01 00:00:10.000", 0), ("b", "2024-01-01 00:00:10.000", 1),
         ("b", "2024-01-01 00:00:20.000", 3), ("a", "2024-01-01 00:00:20.000", 4),
         ("b", "2024-01-01 00:00:30.000", 5), ("a", "2024-01-01 00:00:30.000", 6)],
    ),
    "interval_join": (
        "SELECT e.k, f.k, f.id FROM e JOIN f ON e.k = f.k AND f.ts BETWEEN e.ts AND e.ts + INTERVAL '8' SECOND "
        "WHERE e.id < f.id AND e.id < 4",
        [("a", "a", 2), ("b", "b", 3), ("a", "a", 4), ("b", "b", 5)],
    ),
}  # fmt: skip
REFUSED = {
    "updating aggregate": ("SELECT k, 'x', COUNT(*) FROM e GROUP BY k", "takes rows back"),
    "top n": ("SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS r FROM e) "
              "WHERE r <= 2", "takes rows back"),
    "last rows": ("SELECT k, 'x', id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS r FROM e) "
                  "WHERE r = 1", "takes rows back"),
    "outer join": ("SELECT e.k, f.k, f.id FROM e LEFT JOIN f ON e.id = f.id", "takes rows back"),
    "window of a window": (
        "SELECT 'x', CAST(window_end AS STRING), MAX(n) FROM (SELECT k, window_start, window_end, COUNT(*) AS n "
        f"FROM {_WINDOW} GROUP BY k, window_start, window_end) GROUP BY window_start, window_end", "behind another"),
    "limit": ("SELECT k, 'x', id FROM e LIMIT 3", "does not end|takes rows back"),
    "select": (None, "INSERT INTO"),
}  # fmt: skip


def graph(path: Path, query: str | None, table: str = "o") -> Any:
    text = "SELECT id FROM e" if query is None else f"INSERT INTO {table} {query}"
    return plan_script(TABLES.format(path=path) + text, SETTINGS).job_graph


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
    for file in sorted((path / "out").glob("part-*")):
        rows += [json.loads(line) for line in file.read_text().splitlines()]
    return sorted((r["a"], r["b"], r["n"]) for r in rows)


def run(job: SparkStreamJob) -> None:
    """All that is there now, then stop."""
    queries = job.start()
    try:
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SUPPORTED))
def test_supported(name: str, spark: Any, tmp_path: Path) -> None:
    query, wanted = SUPPORTED[name]
    put(tmp_path, 0, range(5))
    job_graph = graph(tmp_path, query)

    def job() -> SparkStreamJob:
        return SparkStreamJob(job_graph, spark, job_id=f"job-{name}", checkpoint=str(tmp_path / "checkpoint"))

    run(job())
    put(tmp_path, 1, range(5, 8))
    put(tmp_path, 2, range(200, 201))  # far ahead: closes every window before it
    run(job())  # started again: goes on where it stood, nothing twice
    assert out(tmp_path) == sorted(wanted)


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    query, reason = REFUSED[name]
    put(tmp_path, 0, range(1))
    with pytest.raises(UnsupportedError, match=reason):
        check_streaming(graph(tmp_path, query, "p"))


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
    for statement in TABLES.format(path=tmp_path).split(";")[:-1]:
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
    assert out(tmp_path) == [("a", "alarm", 3), ("b", "alarm", 2)]
