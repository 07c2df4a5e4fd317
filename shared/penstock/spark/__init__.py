"""Jobs on Spark: the same plan, the same functions, the same results (docs/spark.md)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.engine import SparkJob, SparkResult, plan_for_spark, run_graph, run_plan
    from penstock.spark.program import StepContext
    from penstock.spark.savepoint import read_savepoint
    from penstock.spark.savepoint_writing import StateFrame, write_savepoint
    from penstock.spark.session import open_session

_PLACES = {
    "SparkJob": "engine", "SparkResult": "engine", "plan_for_spark": "engine", "run_graph": "engine",
    "run_plan": "engine", "open_session": "session", "StateFrame": "savepoint_writing", "read_savepoint": "savepoint",
    "write_savepoint": "savepoint_writing", "StepContext": "program",
}  # fmt: skip
__all__ = [
    "SparkJob", "SparkResult", "StateFrame", "StepContext", "open_session", "plan_for_spark", "read_savepoint", "run_graph",
    "run_plan", "write_savepoint",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Loaded when first used: importing pyspark takes time, and planning needs none of it."""
        if name not in _PLACES:
            raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
        return getattr(importlib.import_module(f"penstock.spark.{_PLACES[name]}"), name)
