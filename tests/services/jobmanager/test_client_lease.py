"""A job whose client watches it ends with the client: by its lease, in virtual time."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager.client_lease import SILENCE_MS, ClientLease
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

TIMEOUT_MS = 40_000
WATCHED = {
    "execution.attached": "true",
    "execution.shutdown-on-attached-exit": "true",
    "client.heartbeat.timeout": f"{TIMEOUT_MS} ms",
    "execution.checkpointing.interval": "5 s",
}


def running_job(**config: str) -> Cluster:
    cluster = Cluster(pipeline(), seed=3, config=WATCHED | config, unbounded=True)
    cluster.run(until=lambda: cluster.core.graph.count(ExecutionState.RUNNING) == len(cluster.core.graph))
    return cluster


def run_for(cluster: Cluster, ms: int, *, heartbeats: bool) -> None:
    end = cluster.now_ms + ms
    while cluster.now_ms < end and cluster.stopped is None:
        next_ms = min(cluster.now_ms + TIMEOUT_MS // 3, end)
        cluster.run(until=lambda at=next_ms: cluster.now_ms >= at)
        if heartbeats:
            cluster.ask(msg.ClientHeartbeat(job_id="job"))


def test_it_runs_while_its_client_is_heard_of_and_is_cancelled_when_not():
    cluster = running_job()
    run_for(cluster, 3 * TIMEOUT_MS, heartbeats=True)
    assert cluster.core.status is JobStatus.RUNNING
    heard_ms = cluster.now_ms
    cluster.run()
    assert cluster.stopped.status is JobStatus.CANCELED
    assert TIMEOUT_MS <= cluster.now_ms - heard_ms < 2 * TIMEOUT_MS
    assert not cluster.allocations, "its slots are free"
    (entry,) = cluster.archived.details.exceptions
    assert "the client that watched it is gone" in entry["exception"]
    (terminal,) = [e for e in cluster.log if isinstance(e, msg.Terminal)]
    assert "the client that watched it is gone" in terminal.error["message"]


@pytest.mark.parametrize("off", ["execution.attached", "execution.shutdown-on-attached-exit"])
def test_a_job_that_nobody_watches_needs_no_client(off):
    cluster = running_job(**{off: "false"})
    run_for(cluster, 2 * TIMEOUT_MS, heartbeats=False)
    assert cluster.core.status is JobStatus.RUNNING


def test_the_next_master_gives_the_client_its_whole_time():
    cluster = running_job()
    cluster.run(until=lambda: cluster.now_ms >= cluster.core.start_ms + TIMEOUT_MS * 3 // 4)
    cluster.take_over()
    taken_ms = cluster.now_ms
    cluster.run()
    assert cluster.stopped.status is JobStatus.CANCELED
    assert cluster.now_ms - taken_ms >= TIMEOUT_MS


def lease() -> ClientLease:
    return ClientLease(WATCHED, 0)


def hear(lease: ClientLease, since_ms: int, until_ms: int) -> None:
    """Task managers report every second."""
    for now_ms in range(since_ms, until_ms, 1_000):
        lease.heard(now_ms)


def test_it_runs_out_once():
    watched = lease()
    hear(watched, 0, TIMEOUT_MS)
    assert watched.ran_out(TIMEOUT_MS - 1) is None
    assert watched.ran_out(TIMEOUT_MS) is not None
    assert watched.due_ms is None
    assert watched.ran_out(TIMEOUT_MS) is None
    watched.renew(TIMEOUT_MS)
    assert watched.due_ms is None, "too late"


def test_a_master_that_is_cut_off_does_not_blame_the_client():
    watched = lease()
    hear(watched, 0, TIMEOUT_MS - 2 * SILENCE_MS)
    assert watched.ran_out(TIMEOUT_MS) is None, "nobody was heard of"
    assert watched.due_ms == 2 * TIMEOUT_MS
    hear(watched, 2 * TIMEOUT_MS - 1, 2 * TIMEOUT_MS)
    assert watched.due_ms == 3 * TIMEOUT_MS - 1, "the first word after the silence"
    hear(watched, 2 * TIMEOUT_MS, 3 * TIMEOUT_MS)
    assert watched.ran_out(3 * TIMEOUT_MS) is not None
