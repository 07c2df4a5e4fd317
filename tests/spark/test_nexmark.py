"""Flink's recorded answers to Nexmark, from a Spark batch job over Parquet."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.engine import SparkJob

_spec = importlib.util.spec_from_file_location(
    "recorded_nexmark", Path(__file__).parents[1] / "sql" / "test_nexmark.py"
)
assert _spec is not None
assert _spec.loader is not None
recorded = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recorded)

pytestmark = recorded.pytestmark


@pytest.mark.parametrize("name", list(recorded.nexmark.QUERIES))
def test_same_rows_as_flink(name: str, spark: Any) -> None:
    graph = recorded.plan(name, 1, "AUTOMATIC", recorded.FILE.format(path=recorded.parquet()))
    recorded.assert_as_recorded(SparkJob(graph, spark).run().rows, name)
