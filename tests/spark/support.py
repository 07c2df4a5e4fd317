"""Running one job on both engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from penstock.jobgraph.graph import JobGraph
from penstock.spark.engine import SparkJob
from penstock.testing import run_graph


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
