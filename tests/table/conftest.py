from __future__ import annotations

from typing import Any

import pytest

from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.harness import run_graph


@pytest.fixture
def env() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run here, at once, instead of on a cluster."""
    from penstock.table import running

    monkeypatch.setattr(running, "submit", _InProcess)


class _InProcess:
    """A ``JobClient`` of a job that has run already."""

    def __init__(self, graph: Any, config: Any) -> None:
        self.result = run_graph(graph)

    def batches(self, schema: Any) -> Any:
        import numpy as np

        from penstock.types import Batch

        rows = [row for _, row in self.result.changelog]
        if rows:
            kinds = np.array([kind for kind, _ in self.result.changelog], np.uint8)
            made = Batch.of(schema, rows)
            yield Batch(schema, made.columns, kinds=kinds, num_rows=len(rows))

    def get_job_id(self) -> str:
        return "0" * 32

    def get_job_status(self) -> str:
        return "FINISHED"

    def get_job_execution_result(self) -> None:
        return None
