"""A cluster that grows when a job misses slots, and shrinks when its workers are idle: real processes."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from penstock.api.client import ClusterClient
from penstock.providers import WorkerPhase, open_provider
from tests.e2e.test_failures import COUNTS

pytestmark = pytest.mark.cluster


def test_workers_come_for_a_job_and_go_when_it_has_ended(make_cluster, until, tmp_path) -> None:
    """The resource manager dies while they run: the next one adopts them."""
    folder = tmp_path / "workers"
    settings = {"resourcemanager.provider.process.dir": str(folder)}
    cluster = make_cluster(
        taskmanagers=1,
        slots=1,
        config={
            "resourcemanager.provider": "process",
            "resourcemanager.taskmanager-timeout": "1 s",
            **settings,
        },
    )
    provider = open_provider("process", "penstock", settings)

    def running() -> list[str]:
        phases = asyncio.run(provider.list())
        return [worker for worker, phase in phases.items() if phase is WorkerPhase.RUNNING]

    try:
        with ClusterClient(cluster.rest_url) as client:
            assert running() == []
            job_id = client.submit({"name": "job", "sql": COUNTS, "parallelism": 3})
            until(lambda: client.job(job_id)["state"] == "RUNNING", "the job to get its slots")
            assert len(running()) == 2
            assert client.overview()["taskmanagers"] == 3
            workers = running()
            os.kill(cluster.child("resourcemanager-0").pid, signal.SIGKILL)
            until(lambda: client.overview()["taskmanagers"] == 3, "the next resource manager to know them")
            assert client.job(job_id)["attempt"] == 1
            assert running() == workers
            client.cancel(job_id)
            until(lambda: client.overview()["taskmanagers"] == 1, "idle workers to be released")
            until(lambda: asyncio.run(provider.list()) == {}, "their processes to end")
    finally:
        cluster.stop()
        asyncio.run(provider.ensure({}))
