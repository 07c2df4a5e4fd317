"""Running one job on both engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.jobgraph.graph import JobGraph
from penstock.spark.engine import SparkJob
from penstock.sql.session import plan_script
from penstock.testing import MemoryTable, run_graph
from penstock.types import logical as t
from penstock.types.batch import Batch

START = datetime(2024, 3, 1, 12)

EVENTS = t.Schema.of(
    ("id", t.BigIntType()), ("k", t.VarCharType()), ("v", t.IntType()), ("price", t.DecimalType(10, 2)),
    ("x", t.DoubleType()), ("ts", t.TimestampType(3)),
)  # fmt: skip
RATES = t.Schema.of(
    ("currency", t.VarCharType(nullable=False)), ("rate", t.DecimalType(10, 4)), ("rts", t.TimestampType(3))
)


def event(i: int) -> tuple[Any, ...]:
    """Deterministic rows with NULLs, ties and a little disorder."""
    key = None if i % 17 == 5 else "abcde"[(i * 7) % 5]
    value = None if i % 11 == 3 else (i * 37) % 23 - 5
    jitter = (i * 13) % 4
    return (
        i, key, value, f"{(i * 91) % 1000 / 100:.2f}", (i % 9) / 4, START + timedelta(seconds=i // 2 + jitter),
    )  # fmt: skip


def make_tables(rows: int = 120) -> None:
    MemoryTable("events", EVENTS, [[Batch.of(EVENTS, [event(i) for i in range(rows)])]])
    rates = [
        ("abc"[i % 3], f"{1 + i / 10:.4f}", START + timedelta(seconds=4 * i)) for i in range(15)
    ]  # fmt: skip
    MemoryTable("rates", RATES, [[Batch.of(RATES, rates)]])


DECLARATIONS = """
CREATE TABLE events (id BIGINT, k STRING, v INT, price DECIMAL(10, 2), x DOUBLE, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) WITH ('connector' = 'memory', 'name' = 'events');
CREATE TABLE rates (currency STRING NOT NULL, rate DECIMAL(10, 4), rts TIMESTAMP(3),
  WATERMARK FOR rts AS rts - INTERVAL '10' SECOND, PRIMARY KEY (currency) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'rates');
"""
SETTINGS = {
    "parallelism.default": "1",
    "table.exec.join.unbounded-state": "allow",
    "execution.engine": "streaming",
}


def plan(sql: str, **config: str) -> JobGraph:
    make_tables()
    return plan_script(DECLARATIONS + sql, {**SETTINGS, **config}).job_graph


def on_spark(graph: JobGraph, spark: Any) -> list[tuple[Any, ...]]:
    return SparkJob(graph, spark).run().rows


def on_streaming(graph: JobGraph) -> list[tuple[Any, ...]]:
    return run_graph(graph).rows


def comparable(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(tuple(_rounded(v) for v in row)) for row in rows)


def _rounded(value: Any) -> Any:
    """Sums of floats depend on their order, on either engine."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}") + 0.0
    return value


def assert_same(graph: JobGraph, spark: Any, *, ordered: bool = False) -> list[tuple[Any, ...]]:
    """Both engines give these rows."""
    want, got = on_streaming(graph), on_spark(msgspec.structs.replace(graph), spark)
    if ordered:
        assert [repr(r) for r in got] == [repr(r) for r in want]
    assert comparable(got) == comparable(want)
    return got
