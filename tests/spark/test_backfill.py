"""The history on Spark, the stream from its state: together the rows of a pure stream."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.jobgraph.graph import JobGraph
from penstock.messages.slot import StorageSettings
from penstock.plan.engine import decode_content
from penstock.spark.backfill import Backfill, BackfillResult
from penstock.spark.support import spark_support
from penstock.sql.session import plan_script
from penstock.store.open import open_store
from penstock.testing.harness import Checkpoint, JobHarness, RunResult

START = datetime(2024, 3, 1, 12)
ROWS, SEAM = 1_200, 700
CONFIG = {
    "parallelism.default": "2",
    "execution.engine": "streaming",
    "execution.runtime-mode": "STREAMING",
    "table.exec.join.unbounded-state": "allow",
    "execution.backfill.engine": "spark",
    "execution.backfill.emit": "false",
}


def row(i: int) -> dict[str, Any]:
    return {
        "id": i, "k": "abcdefg"[(i * 7) % 7], "v": None if i % 11 == 3 else (i * 37) % 23 - 5,
        "ts": START + timedelta(seconds=i // 2 + (i * 13) % 4),
    }  # fmt: skip


def declare(folder: Path, name: str = "t") -> str:
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


def backfilled(graph: JobGraph, spark: Any, store: Path, job_id: str = "test-job") -> BackfillResult:
    content = decode_content(graph.backfill)
    settings = StorageSettings(url=f"file://{store}")
    return Backfill(content, spark, job_id=job_id, attempt=1, storage=settings, emit=False).run()


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


UPDATING = {
    "group": "SELECT k, COUNT(*), SUM(v), MIN(v), MAX(v), AVG(v) FROM t GROUP BY k",
}


@pytest.mark.parametrize("name", UPDATING)
def test_state_goes_on_where_history_ended(name: str, folder: Path, spark: Any, tmp_path: Path) -> None:
    graph = planned(declare(folder) + UPDATING[name])
    result = backfilled(graph, spark, tmp_path)
    assert result.rows == SEAM
    got = resumed(graph, result, tmp_path)
    assert sorted(got.rows) == sorted(streamed(graph).rows)
