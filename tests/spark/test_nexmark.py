"""Flink's recorded answers to Nexmark, from a Spark batch job over Parquet."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spark.engine import SparkJob
from tests.recorded import NEXMARK_EVENTS
from tests.sql.test_nexmark import FILE, QUERIES, assert_as_recorded, plan


@pytest.mark.parametrize("name", QUERIES)
def test_same_rows_as_flink(name: str, spark: Any) -> None:
    graph = plan(name, 1, "AUTOMATIC", FILE.format(path=NEXMARK_EVENTS))
    assert_as_recorded(SparkJob(graph, spark).run().rows, name)
