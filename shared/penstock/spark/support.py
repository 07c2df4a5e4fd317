"""Tells the planner what Spark can do. This module needs no pyspark."""

from __future__ import annotations

import importlib.util

from penstock.plan.engine import SparkSupport
from penstock.spark.coverage import check
from penstock.spark.explain import spark_plan


def spark_support() -> SparkSupport:
    """What Spark can do for programs that submit jobs from this environment."""
    missing = None if importlib.util.find_spec("pyspark") else "Spark (pyspark) is not installed here"
    return SparkSupport(missing, check, spark_plan)
