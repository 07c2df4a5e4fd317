"""Flink's recorded answers to Nexmark, through parser, planner and the real tasks: straight
at several parallelisms, and checkpointed, killed and restored in the middle."""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import importlib.util
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.jobgraph.graph import JobGraph
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness, MemoryTable, run_graph
from penstock.types.batch import Batch
from tests.recorded import NEXMARK_EVENTS, nexmark_rows

_spec = importlib.util.spec_from_file_location(
    "nexmark_queries", Path(__file__).with_name("nexmark_queries.py")
)
assert _spec is not None
assert _spec.loader is not None
nexmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nexmark)

QUERIES = [name for name in nexmark.QUERIES if nexmark_rows(name).exists()]

#: Recorded as the first 8 hex digits of the MD5 of their text.
_HASHED = {"extra", "bid_extra", "auction_extra", "description", "itemName"}
FILE = "'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
EVENTS = 50_000
#: Each attempt's checkpoints, and its kill (the last one's end), in rows of the input.
ATTEMPTS = (((7_000, 14_000, 21_000), 27_000), ((33_000,), 41_000), ((), EVENTS))
ROWS_READ = EVENTS + (27_000 - 21_000) + (41_000 - 33_000)


def session(parallelism: int, mode: str, options: str) -> SqlSession:
    settings = {
        "parallelism.default": str(parallelism),
        "execution.runtime-mode": mode,
        "table.exec.join.unbounded-state": "allow",
    }
    sql = SqlSession(settings)
    for statement in nexmark.declarations(options):
        sql.execute(statement)
    return sql


def plan(name: str, parallelism: int, mode: str, options: str) -> JobGraph:
    planned = session(parallelism, mode, options).execute(nexmark.QUERIES[name]).job
    assert planned is not None
    return planned.job_graph


@functools.cache
def recorded(name: str) -> tuple[list[str], list[tuple[str, ...]]]:
    with gzip.open(nexmark_rows(name), "rt", newline="") as file:
        rows = list(csv.reader(file))
    return rows[0], sorted(tuple(row) for row in rows[1:])


def shown(value: object, column: str) -> str:
    if value is None:
        return ""
    if column in _HASHED:
        return hashlib.md5(str(value).encode()).hexdigest()[:8]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
    return str(value)


def assert_as_recorded(rows: list[tuple[Any, ...]], name: str) -> None:
    columns, wanted = recorded(name)
    assert sorted(tuple(shown(v, c) for v, c in zip(row, columns, strict=True)) for row in rows) == wanted


@pytest.mark.parametrize(
    ("name", "parallelism", "mode"),
    [
        # Each query at 2 in both modes; at 1 or at 4 in `make test-long`; at the other in `make soak`.
        pytest.param(
            name,
            p,
            mode,
            id=f"{name}-{p}-{mode}",
            marks=[] if p == 2 else [pytest.mark.soak if p == (4, 1)[i % 2] else pytest.mark.long],
        )
        for i, name in enumerate(QUERIES)
        for p, mode in ((1, "STREAMING"), (2, "STREAMING"), (4, "STREAMING"), (2, "AUTOMATIC"))
    ],
)
def test_same_rows_as_flink(name: str, parallelism: int, mode: str) -> None:
    graph = plan(name, parallelism, mode, FILE.format(path=NEXMARK_EVENTS))
    assert_as_recorded(run_graph(graph).rows, name)


@functools.cache
def events() -> Batch:
    schema = session(1, "STREAMING", FILE.format(path=NEXMARK_EVENTS)).catalog.tables["nexmark"].physical
    return Batch.from_external_arrow(schema, pq.read_table(NEXMARK_EVENTS).combine_chunks())


#: Of the attempts.
PARALLELISMS = [(1, 2, 2), (4, 1, 2), (2, 4, 1)]


@pytest.mark.parametrize(
    ("name", "parallelisms"),
    [
        # Each query with one of them; with the others in `make soak`.
        pytest.param(name, p, id=f"{p}-{name}", marks=[] if i % 3 == j else [pytest.mark.soak])
        for i, name in enumerate(nexmark.QUERIES)
        for j, p in enumerate(PARALLELISMS)
        if name in QUERIES
    ],
)
async def test_same_rows_when_killed_and_restored(name: str, parallelisms: tuple[int, ...]) -> None:
    table = MemoryTable("nexmark", events().schema, [[events()]], batch_rows=1000)
    options = "'connector' = 'memory', 'name' = 'nexmark'"
    checkpoint, store, read = None, None, 0
    for attempt, (stops, killed_at) in enumerate(ATTEMPTS):
        graph = plan(name, parallelisms[attempt], "STREAMING", options)
        async with JobHarness(graph, restore=checkpoint, store=store, attempt=attempt + 1) as job:
            store, before = job.store, table.rows_read - read
            for stop in stops:
                table.release(stop)
                await job.until(lambda stop=stop, before=before: table.rows_read - before == stop)
                checkpoint, read = await job.checkpoint(), stop
            table.release(killed_at)
            if killed_at < EVENTS:
                await job.until(lambda before=before, end=killed_at: table.rows_read - before == end)
            else:
                result = await job.wait()
    assert checkpoint is not None
    assert checkpoint.checkpoint_id >= 4
    assert table.rows_read == ROWS_READ
    assert_as_recorded(result.rows, name)
