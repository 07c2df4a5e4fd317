"""Spark for many small queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def quick_spark(spark: Any) -> Iterator[Any]:
    """The session without whole-stage code: compiling that costs more than such queries take.
    The tests in tests/spark run with it."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield spark
    spark.conf.unset("spark.sql.codegen.wholeStage")
