from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.api import DataStream, Sink
from penstock.columnar.python_values import records
from penstock.testing.harness import run_graph
from penstock.types import Batch
from penstock.types.logical import RawType


@pytest.fixture(params=[1, 2])
def parallelism(request: pytest.FixtureRequest) -> int:
    return request.param


def collected(stream: DataStream, parallelism: int = 1, **options: Any) -> list[Any]:
    """The stream's records, after running its job in this process."""
    env = stream.get_execution_environment()
    env._sinks.clear()  # one collect sink a job
    env.set_parallelism(parallelism)
    stream.sink_to(Sink.connector("collect")).set_parallelism(1)
    graph = env.job_graph("test")
    result = run_graph(graph, **options)
    rows = [tuple(map(_loaded, stream.schema.types, row)) for row in result.rows]
    return records(Batch.of(stream.schema, rows)) if rows else []


def _loaded(type_: Any, value: Any) -> Any:
    return pickle.loads(value) if isinstance(type_, RawType) and value is not None else value


@pytest.fixture
def collect() -> Any:
    return collected
