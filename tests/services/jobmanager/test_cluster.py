"""The control plane over real servers and processes: jobs run, die, move, and end right."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from penstock.api.client import TERMINAL, ClusterClient
from penstock.connectors.collect import MaterializedResult, decode_chunk
from penstock.embedded import EmbeddedCluster
from penstock.jobgraph import Hash, JobGraph
from penstock.jobgraph.specs import UnionSpec
from penstock.messages.layout import checkpoints_prefix
from penstock.testing import GraphBuilder
from penstock.types import Schema
from penstock.types.logical import BigIntType

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("k", BigIntType(nullable=False)))
DEADLINE_S = 180.0
#: Of a source that lasts until the test stops it.
ENDLESS = 10_000_000


def sequence(rows: int, rows_per_second: int = 20_000) -> JobGraph:
    """A paced sequence → hash → union (2) → collect."""
    b = GraphBuilder()
    options = {
        "rows-per-second": str(rows_per_second),
        "fields.k.kind": "sequence",
        "fields.k.start": "0",
        "fields.k.end": str(rows - 1),
    }
    source = b.source("datagen", SCHEMA, options)
    b.collect(b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))], parallelism=2))
    return b.build()


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"still waiting after {DEADLINE_S:.0f} s for: {what}")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    config = {"high-availability.lease-duration": "2 s"}
    with EmbeddedCluster(taskmanagers=2, slots=2, jobmanagers=2, config=config) as made:
        yield made


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as made:
        yield made


def submit(client: ClusterClient, graph: JobGraph, **config: str) -> str:
    options = {"execution.checkpointing.interval": "200 ms"} | config
    return client.submit({"job_graph": msgspec.to_builtins(graph), "config": options})


def completed(client: ClusterClient, job_id: str) -> int:
    return client.checkpoints(job_id)["counts"]["completed"]


def drained(client: ClusterClient, job_id: str) -> dict[str, Any]:
    """The job, at its end: its source is stopped where it is."""
    client.stop(job_id, drain=True)
    until(lambda: client.job(job_id)["state"] in TERMINAL, "the job to stop")
    return client.wait(job_id)


def in_sequence(rows: list[int]) -> bool:
    """All that was read, each row once."""
    return len(rows) > 0 and rows == list(range(len(rows)))


def slot_pids(client: ClusterClient) -> list[int]:
    managers = [p for p in client.info()["processes"] if p["role"] == "taskmanager"]
    return [s["pid"] for m in managers for s in m["slots"] if s.get("pid")]


def rows_of(client: ClusterClient, job_id: str) -> list[int]:
    result = MaterializedResult()
    for chunks in client.results(job_id):
        for chunk in chunks:
            result.add(decode_chunk(chunk.key, chunk.data))
    return sorted(row[0] for row in result.rows())


def test_a_job_runs_to_its_end(client: ClusterClient) -> None:
    job_id = submit(client, sequence(5_000))
    assert rows_of(client, job_id) == list(range(5_000))
    job = client.wait(job_id)
    assert job["attempt"] == 1
    until(lambda: client.overview()["slots-available"] == 4, "all slots free again")


def test_a_killed_slot_restarts_the_job_from_its_checkpoint(client: ClusterClient) -> None:
    several = {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.max-concurrent-checkpoints": "3",
    }
    job_id = submit(client, sequence(ENDLESS, 5_000), **several)
    until(lambda: completed(client, job_id) >= 2, "two checkpoints")
    pids = until(lambda: slot_pids(client), "the slots to be known")
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: client.job(job_id)["attempt"] >= 2, "a restart")
    # A symptom elsewhere may be heard of before the loss itself.
    until(lambda: "SIGKILL" in client.exceptions(job_id)["root-exception"], "its cause")
    until(lambda: client.job(job_id)["state"] == "RUNNING", "the job to run again")
    before = completed(client, job_id)
    until(lambda: completed(client, job_id) > before, "a checkpoint of the new attempt")
    job = drained(client, job_id)
    assert job["restored-checkpoint"] >= 1
    assert in_sequence(rows_of(client, job_id))


def test_a_stopped_leader_is_replaced_and_decides_nothing_when_it_wakes(
    client: ClusterClient, cluster: EmbeddedCluster
) -> None:
    # Few enough that none of the history of checkpoints is pushed out of it meanwhile.
    job_id = submit(client, sequence(ENDLESS, 5_000), **{"execution.checkpointing.interval": "500 ms"})
    until(lambda: completed(client, job_id) >= 2, "two checkpoints")
    before = client.job(job_id)
    # (A process that does not answer at once is not listed.)
    pid = until(
        lambda: {p["id"]: p["pid"] for p in client.info()["processes"]}.get(before["jobmanager-id"]),
        "the leader to say who it is",
    )
    promised = client.savepoint(job_id, None)
    known = {c["id"]: c for c in client.checkpoints(job_id)["history"] if c["status"] == "COMPLETED"}
    folder = cluster.root / "store" / checkpoints_prefix(job_id)
    until(lambda: all(list(folder.glob(f"{n}/*/statistics")) for n in known), "all that is shown to be kept")
    os.kill(pid, signal.SIGSTOP)
    try:
        after = until(
            lambda: (j := client.job(job_id))["epoch"] > before["epoch"] and j["state"] == "RUNNING" and j,
            "the standby to lead",
        )
        done = completed(client, job_id)
        found = {c["id"]: c for c in client.checkpoints(job_id)["history"]}
        assert {n: c for n, c in known.items() if n in found} == {
            n: c for n, c in found.items() if n in known
        }
        assert set(known) & set(found), "what was completed before is shown as it was"
        until(lambda: completed(client, job_id) > done, "a checkpoint of the new leader")
        kept = until(
            lambda: (r := client.triggered(job_id, promised))["status"]["id"] == "COMPLETED" and r,
            "the savepoint that the old leader had promised",
        )
        assert "/savepoint-" in kept["operation"]["location"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert after["jobmanager-id"] != before["jobmanager-id"]
    job = drained(client, job_id)
    assert (job["epoch"], job["jobmanager-id"]) == (after["epoch"], after["jobmanager-id"])
    assert (job["attempt"], job["restored-checkpoint"]) == (1, 0), "what ran was adopted"
    assert in_sequence(rows_of(client, job_id))


def test_a_third_job_waits_for_slots_and_a_cancelled_one_frees_them(client: ClusterClient) -> None:
    jobs = [submit(client, sequence(10_000_000, 1_000)) for _ in range(2)]
    for job_id in jobs:
        until(lambda j=job_id: client.job(j)["state"] == "RUNNING", "two jobs at once")
    # Only now: of jobs that come together, any may be first to get slots.
    jobs.append(submit(client, sequence(10_000_000, 1_000)))
    # At first it may wait for a job manager.
    until(
        lambda: "slots are missing" in (client.job(jobs[2])["waiting-for"] or ""), "the third to want slots"
    )
    client.cancel(jobs[0])
    until(lambda: client.job(jobs[0])["state"] == "CANCELED", "cancellation")
    until(lambda: client.job(jobs[2])["state"] == "RUNNING", "the third job to start")
    for job_id in jobs[1:]:
        client.cancel(job_id)
        until(lambda j=job_id: client.job(j)["state"] == "CANCELED", "cancellation")
