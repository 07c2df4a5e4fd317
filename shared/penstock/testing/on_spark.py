"""Runs a planned job on the local Spark session of this process."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import unittest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobGraph

#: Forces several partitions even for few rows. Otherwise Spark would put all rows into one partition, and a
#: wrong partitioning by key would go unnoticed.
_SPREAD = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "false",
}


def needs_spark() -> None:
    """Raises ``unittest.SkipTest``, which pytest treats as a skip, if pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise unittest.SkipTest(
            "pyspark is not installed: install penstock[spark] to run the operator on Spark"
        )


def rows_on_spark(graph: JobGraph) -> list[tuple[Any, ...]]:
    """The rows of a bounded job's collect sink. The session is ``local[2]``; it is opened on first use,
    shared by all callers in this process, and ends with the process. PenstockError when the job fails."""
    from penstock.spark.engine import SparkJob
    from penstock.spark.session import open_session

    session = open_session("local[2]", name="conformance")
    with _settings(session), _import_path(session):
        return SparkJob(graph, session).run().rows


@contextlib.contextmanager
def _settings(session: Any) -> Iterator[None]:
    before = {key: session.conf.get(key) for key in _SPREAD}
    for key, value in _SPREAD.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            session.conf.set(key, value)


@contextlib.contextmanager
def _import_path(session: Any) -> Iterator[None]:
    """Gives Spark's Python workers the import path of this process, so that an operator's package need not be
    installed to be tested."""
    environment = session.sparkContext.environment
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        yield
    finally:
        if before is None:
            del environment["PYTHONPATH"]
        else:
            environment["PYTHONPATH"] = before
