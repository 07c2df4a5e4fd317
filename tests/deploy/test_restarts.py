"""A whole cluster that goes away in mid-job and comes back: ``down`` and ``up`` with the volumes kept, and a
Docker engine that is restarted. The job goes on from its last checkpoint, and its results are exact.

Restarting the engine needs a command of the machine's own: ``PENSTOCK_ENGINE_RESTART`` (for example
``systemctl restart docker``); the test is skipped without it.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.deploy.clusters import Cluster, running_cluster, wait_for
from tests.deploy.counting import JOB, ROWS, ROWS_PER_SECOND, assert_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RESTART = os.environ.get("PENSTOCK_ENGINE_RESTART", "")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster("taskmanager=2") as cluster:
        yield cluster


def restart_engine() -> None:
    """It is there again when the command ends."""
    subprocess.run(RESTART, shell=True, check=True)


async def counting(cluster: Cluster, name: str) -> tuple[str, int]:
    """A job in the middle of its work: its id, and how many checkpoints it has."""
    spec = JOB.format(name=name, engine="streaming", rows=ROWS, pace=ROWS_PER_SECOND)
    job_id = await cluster.submit(spec)
    wait_for("two checkpoints", lambda: cluster.completed_checkpoints(job_id) >= 2)
    assert cluster.rest(f"/jobs/{job_id}")["state"] == "RUNNING"
    return job_id, cluster.completed_checkpoints(job_id)


async def assert_resumed(cluster: Cluster, job_id: str, name: str, checkpoints: int) -> None:
    wait_for("health", cluster.healthy)
    status = await cluster.finished(job_id)
    assert status["attempt"] >= 2
    assert status["restored_checkpoint_id"] >= checkpoints
    await assert_exact(cluster, name, ROWS)


async def test_a_job_goes_on_after_down_and_up(cluster: Cluster) -> None:
    job_id, checkpoints = await counting(cluster, "downs")
    cluster.compose("down")
    assert cluster.containers() == []
    cluster.compose("up", "-d", "--no-build", "--scale=taskmanager=2")
    await assert_resumed(cluster, job_id, "downs", checkpoints)


@pytest.mark.skipif(
    not RESTART, reason="PENSTOCK_ENGINE_RESTART (a command that restarts the engine) is unset"
)
async def test_a_job_goes_on_after_a_restart_of_the_engine(cluster: Cluster) -> None:
    job_id, checkpoints = await counting(cluster, "engine")
    restart_engine()
    await assert_resumed(cluster, job_id, "engine", checkpoints)
