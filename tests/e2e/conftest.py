"""Fixtures for end-to-end tests: a real embedded cluster, and the flights job on it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.embedded import EmbeddedCluster

DEADLINE_S = 120.0


def _until(condition: Callable[[], Any], what: str, story: Callable[[], Any] = lambda: "") -> Any:
    """Poll until ``condition`` is truthy; a hang fails the test instead of blocking it.
    ``story``: what is then known, for the message."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"still waiting after {DEADLINE_S:.0f} s for: {what}\n{story()}")


def story_of(client: ClusterClient, job_id: str) -> str:
    """What a job does: its tasks, its checkpoints, its failures."""
    job, checkpoints = client.job(job_id), client.checkpoints(job_id)
    tasks = [(v["name"], v.get("status"), v.get("tasks"), v.get("metrics")) for v in job["vertices"]]
    lines = [f"{job['state']}, attempt {job['attempt']}, restored {job.get('restored-checkpoint')}"]
    lines += [f"  {task}" for task in tasks]
    lines += [f"  checkpoints {checkpoints.get('counts')}"]
    lines += [f"  {entry}" for entry in checkpoints.get("history", [])[:3]]
    return "\n".join([*lines, f"  {client.exceptions(job_id)}"])


def assert_same_board(got: pa.Table, want: pa.Table) -> None:
    """Equal, row by row; else which rows are missing, doubled or different."""
    if got.equals(want):
        return
    mine, theirs = (Counter(repr(row) for row in table.to_pylist()) for table in (got, want))
    lost, extra = list((theirs - mine).elements()), list((mine - theirs).elements())
    raise AssertionError(
        f"{got.num_rows} rows for {want.num_rows}; {len(lost)} are missing, {len(extra)} are not wanted\n"
        + "\n".join([*(f"- {row}" for row in lost[:8]), *(f"+ {row}" for row in extra[:8])])
    )


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

            job = _until(over, f"the end of job {self.job_id}", lambda: story_of(client, self.job_id))
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
