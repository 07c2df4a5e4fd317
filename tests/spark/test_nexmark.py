"""Flink's recorded answers to Nexmark, from a Spark batch job over Parquet."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark.engine import SparkJob
from tests.recorded import NEXMARK_EVENTS
from tests.sql.test_nexmark import FILE, QUERIES, assert_as_recorded, plan

#: Every other query is enough for ``make test``; the others run in ``make test-long``.
REPEATS = set(list(QUERIES)[::2])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in REPEATS else []) for name in QUERIES]
)
def test_same_rows_as_flink(name: str, spark: Any) -> None:
    graph = plan(name, 1, "AUTOMATIC", FILE.format(path=NEXMARK_EVENTS))
    assert_as_recorded(SparkJob(graph, spark).run().rows, name)
