"""The history on Spark, the stream from its state: together the rows of a pure stream."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.errors import UnsupportedError
from penstock.jobgraph.graph import JobGraph
from penstock.messages.layout import backfill_attempt_key
from penstock.messages.slot import StorageSettings
from penstock.plan.engine import decode_content
from penstock.spark.backfill import Backfill, BackfillResult
from penstock.spark.coverage import check_streaming
from penstock.spark.driver import resumable
from penstock.spark.engine import SparkJob
from penstock.spark.errors import translated
from penstock.spark.support import spark_support
from penstock.sql.scripts import plan_script
from penstock.store.open import open_store
from penstock.testing.harness import JobHarness
from penstock.testing.results import Checkpoint, RunResult

START = datetime(2024, 3, 1, 12)
ROWS, SEAM = 1_200, 700
CONFIG = {
    "parallelism.default": "2",
    "execution.engine": "streaming",
    "execution.runtime-mode": "STREAMING",
    "table.exec.join.unbounded-state": "allow",
    "execution.backfill.engine": "spark",
}


def row(i: int) -> dict[str, Any]:
    return {
        "id": i, "k": "abcdefg"[(i * 5) % 7], "v": None if i % 11 == 3 else (i * 37) % 23 - 5,
        "ts": START + timedelta(seconds=i // 2 + (i * 13) % 4, milliseconds=i % 1000),
    }  # fmt: skip


def declare(folder: Path, name: str = "t") -> str:
    """``d``: a bounded table beside the hybrid ones."""
    if name == "d":
        return (
            "CREATE TABLE d (id BIGINT, v INT) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder}/history', 'format' = 'parquet');"
        )
    return f"""CREATE TABLE {name} (id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
      WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) WITH ('connector' = 'hybrid',
      'history.connector' = 'filesystem', 'history.path' = '{folder}/history', 'history.format' = 'parquet',
      'live.connector' = 'filesystem', 'live.path' = '{folder}/live', 'live.format' = 'parquet',
      'switch.column' = 'id', 'switch.at' = '{SEAM}');"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """History in three files that go over the seam, live in one that begins before it."""
    out = tmp_path_factory.mktemp("hybrid")
    schema = pa.schema(
        [("id", pa.int64()), ("k", pa.string()), ("v", pa.int32()), ("ts", pa.timestamp("ms"))]
    )
    parts = {
        "history/a": range(300), "history/b": range(300, 500), "history/c": range(500, SEAM + 40),
        "live/a": range(SEAM - 60, ROWS),
    }  # fmt: skip
    for part, ids in parts.items():
        path = out / f"{part}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row(i) for i in ids], schema), path)
    return out


def planned(text: str, **config: str) -> JobGraph:
    return plan_script(text, {**CONFIG, **config}, spark=spark_support()).job_graph


def backfilled(graph: JobGraph, spark: Any, store: Path, attempt: int = 1) -> BackfillResult:
    content = msgspec.structs.replace(
        decode_content(graph.backfill), functions=graph.functions, python_path=graph.python_path
    )
    settings = StorageSettings(url=f"file://{store}")
    return Backfill(content, spark, job_id="test-job", attempt=attempt, storage=settings).run()


def resumed(graph: JobGraph, result: BackfillResult, store: Path) -> RunResult:
    """The streaming job from the backfill's state."""
    manifest = result.manifest
    content = decode_content(graph.backfill)
    handles = {v.id: () for v in content.vertices} | {v.vertex_id: v.handles for v in manifest.vertices}

    async def run() -> RunResult:
        async with JobHarness(
            graph,
            store=open_store(f"file://{store}"),
            restore=Checkpoint(manifest.checkpoint_id, content, handles),
        ) as job:
            return await job.wait()

    return asyncio.run(run())


def streamed(graph: JobGraph) -> RunResult:
    async def run() -> RunResult:
        async with JobHarness(graph) as job:
            return await job.wait()

    return asyncio.run(run())


@dataclass(frozen=True)
class Query:
    """``columns`` of the sink table; ``key``: those that a row is written by, None: it appends.
    ``tables``: declared as hybrid."""

    sql: str
    columns: str
    key: str | None = None
    tables: tuple[str, ...] = ("t",)


def windowed(function: str, columns: str = "k, ") -> str:
    return (
        f"SELECT {columns}window_start, COUNT(*), SUM(v) FROM TABLE({function}) "
        f"GROUP BY {columns}window_start, window_end"
    )


WINDOW = "k STRING, w TIMESTAMP(3), n BIGINT, s INT"
QUERIES = {
    "group": Query(
        "SELECT k, COUNT(*), SUM(v), MIN(v), MAX(v), AVG(v) FROM t GROUP BY k",
        "k STRING, n BIGINT, s INT, low INT, high INT, mean INT", "k",
    ),
    "distinct": Query(
        "SELECT k, COUNT(DISTINCT v), SUM(v) FILTER (WHERE id > 5) FROM t GROUP BY k",
        "k STRING, n BIGINT, s INT", "k",
    ),
    "no-key": Query("SELECT 1, COUNT(*), SUM(v) FROM t", "one INT, n BIGINT, s INT", "one"),
    "group-of-group": Query(
        "SELECT n, COUNT(*) FROM (SELECT v, COUNT(*) AS n FROM t GROUP BY v) GROUP BY n",
        "n BIGINT, c BIGINT", "n",
    ),
    "having": Query(
        "SELECT v, COUNT(*) FROM t WHERE v IS NOT NULL GROUP BY v HAVING MOD(COUNT(*), 2) = 0", "v INT, c BIGINT", "v"
    ),
    "top-n": Query(
        "SELECT k, rn, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) "
        "WHERE rn <= 3",
        "k STRING, rn BIGINT, id BIGINT, v INT", "k, rn",
    ),
    "last-row": Query(
        "SELECT k, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) "
        "WHERE rn = 1",
        "k STRING, id BIGINT, v INT", "k",
    ),
    "first-row": Query(
        "SELECT m, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY m ORDER BY ts) AS rn "
        "FROM (SELECT MOD(id, 900) AS m, id, v, ts FROM t)) WHERE rn = 1",
        "m BIGINT, id BIGINT, v INT", "m",
    ),
    "join": Query(
        "SELECT t.id, u.v FROM t JOIN u ON t.k = u.k AND t.id = u.id + 497", "id BIGINT, v INT", None, ("t", "u")
    ),
    "left-join": Query(
        "SELECT t.id, u.v FROM t LEFT JOIN u ON t.k = u.k AND t.id = u.id + 497", "id BIGINT, v INT", "id",
        ("t", "u"),
    ),
    "join-of-groups": Query(
        "SELECT a.k, a.n, b.s FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) a "
        "JOIN (SELECT k, SUM(v) AS s FROM u GROUP BY k) b ON a.k = b.k",
        "k STRING, n BIGINT, s INT", "k", ("t", "u"),
    ),
    "interval-join": Query(
        "SELECT t.id, u.id FROM t JOIN u ON t.k = u.k AND u.ts BETWEEN t.ts - INTERVAL '9' SECOND AND t.ts",
        "a BIGINT, b BIGINT", None, ("t", "u"),
    ),
    "tumble": Query(windowed("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"), WINDOW),
    "hop": Query(windowed("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)"), WINDOW),
    "cumulate": Query(
        windowed("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '2' MINUTE)"), WINDOW
    ),
    "session": Query(
        windowed("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)"), WINDOW
    ),
    "window-of-window": Query(
        "SELECT window_start, MAX(n) FROM (SELECT k, window_start, window_end, window_time, COUNT(*) AS n "
        "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY k, window_start, window_end, window_time) GROUP BY window_start, window_end",
        "w TIMESTAMP(3), n BIGINT",
    ),
    "window-top-n": Query(
        "SELECT w, k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY w, e ORDER BY n DESC, k) AS rn FROM ("
        "SELECT k, window_start AS w, window_end AS e, COUNT(*) AS n "
        "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end)) "
        "WHERE rn <= 2",
        "w TIMESTAMP(3), k STRING, n BIGINT",
    ),
    "over": Query(
        "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) FROM t",
        "id BIGINT, s INT",
    ),
    "stateless": Query("SELECT id, UPPER(k) FROM t WHERE MOD(id, 3) = 1", "id BIGINT, k STRING"),
    "union": Query(
        "SELECT k, SUM(v) FROM (SELECT k, v FROM t UNION ALL SELECT k, -v FROM u WHERE id > 3) GROUP BY k",
        "k STRING, s INT", "k", ("t", "u"),
    ),
    "group-and-rows": Query(
        "SELECT id, COUNT(*) FROM (SELECT id FROM t UNION ALL SELECT MAX(id) AS id FROM t GROUP BY k) GROUP BY id",
        "id BIGINT, n BIGINT", "id",
    ),
    "values": Query(
        "SELECT k, COUNT(*) FROM (SELECT k FROM t UNION ALL SELECT k FROM (VALUES ('a'), ('z')) AS x (k)) GROUP BY k",
        "k STRING, n BIGINT", "k",
    ),
    "dimension": Query("SELECT t.id, d.v FROM t JOIN d ON t.id = d.id + 600", "id BIGINT, v INT", None, ("t", "d")),
    "except": Query("SELECT v FROM t WHERE v IS NOT NULL EXCEPT SELECT v FROM t WHERE id > 900 AND v > 3", "v INT", "v"),
}  # fmt: skip


GROUPS = {
    "updating": ["group", "distinct", "no-key", "group-of-group", "having", "except"],
    "ranks": ["top-n", "last-row", "first-row", "over", "stateless"],
    "joins": ["join", "left-join", "join-of-groups", "interval-join"],
    "windows": ["tumble", "hop", "cumulate", "session", "window-of-window", "window-top-n"],
    "unions": ["union", "group-and-rows", "values", "dimension"],
}


def table_of(name: str) -> str:
    return "out_" + name.replace("-", "_")


def sink(name: str, folder: Path) -> str:
    query, table = QUERIES[name], table_of(name)
    if query.key is None:
        return (
            f"CREATE TABLE {table} ({query.columns}) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder}/{table}', 'format' = 'parquet');"
        )
    with sqlite3.connect(folder / "out.db") as db:
        db.execute(f"CREATE TABLE {table} ({query.columns}, PRIMARY KEY ({query.key}))")
    return (
        f"CREATE TABLE {table} ({query.columns}, PRIMARY KEY ({query.key}) NOT ENFORCED) WITH "
        f"('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{folder}/out.db', 'table-name' = '{table}');"
    )


def written(name: str, folder: Path) -> list[tuple[Any, ...]]:
    if QUERIES[name].key is None:
        files = ds.dataset(folder / table_of(name), format="parquet").to_table()
        rows = [tuple(r.values()) for r in files.to_pylist()]
    else:
        with sqlite3.connect(folder / "out.db") as db:
            rows = db.execute(f"SELECT * FROM {table_of(name)}").fetchall()
    return sorted(rows, key=repr)


def script(names: list[str], data: Path, out: Path) -> str:
    """One job of all these queries, each into a table of its own."""
    out.mkdir(exist_ok=True)
    tables = sorted({table for name in names for table in QUERIES[name].tables})
    declared = [declare(data, table) for table in tables] + [sink(name, out) for name in names]
    inserts = [f"INSERT INTO {table_of(name)} {QUERIES[name].sql};" for name in names]
    return " ".join([*declared, "BEGIN STATEMENT SET;", *inserts, "END;"])


def compare(names: list[str], data: Path, spark: Any, folder: Path, **config: str) -> None:
    """A backfilled job writes what a stream over everything does."""
    graph = planned(script(names, data, folder / "a"), **config)
    result = backfilled(graph, spark, folder)
    tables = {table for name in names for table in QUERIES[name].tables}
    assert result.rows >= SEAM * len(tables)
    resumed(graph, result, folder)
    plain = {**config, "execution.backfill.engine": "none"}
    streamed(planned(script(names, data, folder / "b"), **plain))
    for name in names:
        want = written(name, folder / "b")
        assert want, name
        assert written(name, folder / "a") == want, name


def test_every_query_is_in_a_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(QUERIES)


@pytest.mark.parametrize("group", GROUPS)
def test_history_on_spark_and_the_stream_behind_it(
    group: str, folder: Path, spark: Any, tmp_path: Path
) -> None:
    compare(GROUPS[group], folder, spark, tmp_path)


def test_the_streams_parallelism_is_its_own(folder: Path, spark: Any, tmp_path: Path) -> None:
    config = {"parallelism.default": "1", "execution.backfill.parallelism": "3"}
    names = ["group", "tumble", "left-join", "top-n", "last-row"]
    compare(names, folder, spark, tmp_path, **config)


def test_state_on_disk(folder: Path, spark: Any, tmp_path: Path) -> None:
    compare(["group", "join"], folder, spark, tmp_path, **{"state.backend.type": "leveldb"})


def test_a_hybrid_table_of_bounded_parts_as_a_batch_on_spark(folder: Path, spark: Any) -> None:
    graph = plan_script(
        declare(folder) + "SELECT k, COUNT(*), SUM(id) FROM t GROUP BY k",
        {"execution.engine": "streaming", "parallelism.default": "1"},
    ).job_graph
    counts = sorted((k, sum(1 for i in range(ROWS) if row(i)["k"] == k)) for k in "abcdefg")
    assert [r[:2] for r in sorted(SparkJob(graph, spark).run().rows)] == counts


def test_history_then_live_is_no_structured_streaming(folder: Path) -> None:
    graph = plan_script(declare(folder) + "SELECT id FROM t", {"execution.engine": "streaming"}).job_graph
    with pytest.raises(UnsupportedError, match="Structured Streaming") as caught:
        check_streaming(graph)
    assert "a history that comes before the stream" in str(caught.value)


def test_what_a_lost_executor_makes_again_is_refused(folder: Path, spark: Any, tmp_path: Path) -> None:
    """Its rows may differ from those whose state is kept."""
    graph = planned(script(["group"], folder, tmp_path / "a"))
    content = decode_content(graph.backfill)
    made = Backfill(
        content, spark, job_id="test-job", attempt=1, storage=StorageSettings(url=f"file://{tmp_path}")
    )
    execute = made._executed

    def lost(vertex: Any, rows: Any, *, source: bool) -> Any:
        ran = execute(vertex, rows, source=source)
        if source:
            ran.frame.unpersist(blocking=True)  # made anew when it is read
        return ran

    made._executed = lost  # type: ignore[method-assign]
    with pytest.raises(Exception, match="made a second time") as caught:
        made.run()
    assert translated(caught.value).retryable


def test_a_repeated_backfill_reads_what_the_first_would_have(
    folder: Path, spark: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    graph = planned(script(["group"], data, tmp_path / "a"))
    first = backfilled(graph, spark, tmp_path)
    shutil.copy(data / "history" / "a.parquet", data / "history" / "later.parquet")
    second = backfilled(graph, spark, tmp_path, attempt=2)
    assert (first.rows, second.rows) == (SEAM, SEAM)
    assert first.manifest_key != second.manifest_key
    resumed(graph, second, tmp_path)
    k, n = written("group", tmp_path / "a")[0][:2]
    assert n == sum(1 for i in range(ROWS) if row(i)["k"] == k)


def test_a_left_over_task_may_not_write_any_more(folder: Path, spark: Any, tmp_path: Path) -> None:
    graph = planned(script(["group"], folder, tmp_path / "a"))
    settings = StorageSettings(url=f"file://{tmp_path}")
    old = Backfill(decode_content(graph.backfill), spark, job_id="test-job", attempt=1, storage=settings)
    execute = old._executed

    def overtaken(vertex: Any, rows: Any, *, source: bool) -> Any:
        (tmp_path / backfill_attempt_key("test-job")).write_bytes(b"2")
        return execute(vertex, rows, source=source)

    old._executed = overtaken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="another attempt of the backfill has begun"):
        old.run()
    assert written("group", tmp_path / "a") == []


@pytest.mark.parametrize(
    ("url", "session"),
    [
        ("sc://host:15002", "sc://host:15002/;session_id="),
        ("sc://host/;token=x", "sc://host/;token=x;session_id="),
        ("local[2]", "local[2]"),
    ],
)
def test_a_driver_finds_the_session_of_the_one_before(url: str, session: str) -> None:
    assert resumable(url, "job").startswith(session)
    assert resumable(url, "job") == resumable(url, "job")
