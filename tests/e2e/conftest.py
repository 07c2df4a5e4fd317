"""Fixtures for end-to-end tests: a real embedded cluster, and the flights job on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.embedded import EmbeddedCluster

DEADLINE_S = 240.0


def _until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until ``condition`` is truthy; a hang fails the test instead of blocking it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"still waiting after {DEADLINE_S:.0f} s for: {what}")


@pytest.fixture
def until() -> Callable[..., Any]:
    return _until


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., EmbeddedCluster]]:
    made: list[EmbeddedCluster] = []

    def make(**options: Any) -> EmbeddedCluster:
        cluster = EmbeddedCluster(**options)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@dataclass
class FlightsRun:
    """One run of the flights job: submit, replay, wait, read."""

    cluster: EmbeddedCluster
    out: Path
    spec: dict[str, Any]
    limit: int | None = None
    rate: float | None = None
    job_id: str = ""
    replayed: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)

    def submit(self) -> str:
        from examples.flights import replay

        asyncio.run(replay.create_streams(self.cluster.nats_url))
        with ClusterClient(self.cluster.rest_url) as client:
            self.job_id = client.submit(self.spec)
        return self.job_id

    def replay(self) -> None:
        from examples.flights import replay
        from examples.flights.dataset import load

        self.replayed = asyncio.run(
            replay.replay(self.cluster.nats_url, load(), limit=self.limit, flights_per_second=self.rate)
        )

    def wait(self) -> dict[str, Any]:
        with ClusterClient(self.cluster.rest_url) as client:

            def over() -> dict[str, Any] | None:
                job = client.job(self.job_id)
                self.seen.append(job)
                return job if job["state"] in ("FINISHED", "FAILED", "CANCELED") else None

            job = _until(over, f"the end of job {self.job_id}")
            client.raise_if_failed(self.job_id, job)
        assert job["state"] == "FINISHED"
        return job

    def board(self) -> pa.Table:
        table = ds.dataset(self.out / "board", format="parquet").to_table()
        return table.sort_by([("origin", "ascending"), ("window_start", "ascending")])


@pytest.fixture
def flights_run(tmp_path: Path) -> Callable[..., FlightsRun]:
    from examples.flights.demo import job_sql

    def make(
        cluster: EmbeddedCluster,
        *,
        delay: str = "'22' HOUR",
        name: str = "out",
        config: dict[str, str] | None = None,
        **options: Any,
    ) -> FlightsRun:
        out = tmp_path / name
        out.mkdir()
        settings = {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "500 ms",
            **(config or {}),
        }
        return FlightsRun(cluster, out, {"sql": job_sql(out, delay), "config": settings}, **options)

    return make
