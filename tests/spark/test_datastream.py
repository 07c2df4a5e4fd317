"""The DataStream API's own tests, run on Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from penstock.api import Sink
from penstock.columnar.python_values import records
from penstock.spark.engine import SparkJob
from penstock.types import Batch

_spec = importlib.util.spec_from_file_location(
    "datastream_tests", Path(__file__).parents[1] / "api" / "test_datastream.py"
)
assert _spec is not None
assert _spec.loader is not None
api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(api)

env = api.env


@pytest.fixture
def parallelism() -> int:
    return 1


@pytest.fixture
def collect(spark: Any) -> Any:
    def collected(stream: Any, parallelism: int = 1, **_: Any) -> list[Any]:
        env = stream.get_execution_environment()
        env._sinks.clear()
        env.set_parallelism(1)
        stream.sink_to(Sink.connector("collect")).set_parallelism(1)
        result = SparkJob(env.job_graph("test"), spark).run()
        return records(Batch.concat(result.batches)) if result.batches else []

    return collected


class TestRecords(api.TestRecords):
    pass


class TestKeyed(api.TestKeyed):
    def test_broadcast_state(self, env: Any, collect: Any) -> None:
        """Every rule reaches every key: such an operator runs in one partition, so each rule is
        seen once (on the streaming engine once a subtask)."""

        def once(stream: Any, parallelism: int) -> list[Any]:
            return sorted(collect(stream) * parallelism)

        super().test_broadcast_state(env, once)


class TestWindows(api.TestWindows):
    pass


test_interval_join = api.test_interval_join


def test_the_users_error_comes_out(env: Any, collect: Any) -> None:
    api.TestErrors().test_the_users_error_comes_out(env, collect)
