"""Real processes killed and stopped under a running job."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from penstock.api.client import ClusterClient

pytestmark = pytest.mark.cluster


def completed(client: ClusterClient, job_id: str) -> int:
    return client.checkpoints(job_id).get("counts", {}).get("completed", 0)


def records_in(job: dict) -> int:
    return sum(v.get("metrics", {}).get("read-records", 0) for v in job["vertices"])


def start(run, client: ClusterClient, until) -> threading.Thread:
    """Submit, replay on a thread, return once a checkpoint is complete and rows flow."""
    run.submit()
    thread = threading.Thread(target=run.replay, daemon=True)
    thread.start()
    until(lambda: completed(client, run.job_id) >= 2, "two completed checkpoints")
    until(lambda: records_in(client.job(run.job_id)) > 1_000, "rows before the fault")
    return thread


@pytest.fixture
def reference(make_cluster, flights_run):
    """The fault-free answer over the same flights."""

    def make(limit: int):
        run = flights_run(make_cluster(taskmanagers=2, slots=1), limit=limit, name="reference")
        run.submit()
        run.replay()
        run.wait()
        return run.board()

    return make


LIMIT, RATE = 60_000, 10_000


def test_a_killed_task_manager(make_cluster, flights_run, reference, until) -> None:
    want = reference(LIMIT)
    cluster = make_cluster(taskmanagers=2, slots=2)
    run = flights_run(cluster, limit=LIMIT, rate=RATE)
    with ClusterClient(cluster.rest_url) as client:
        thread = start(run, client, until)
        victim = next(
            p for p in client.info()["processes"]
            if p["role"] == "taskmanager" and any(s.get("job_id") == run.job_id for s in p["slots"])
        )  # fmt: skip
        os.kill(victim["pid"], signal.SIGKILL)
        restarted = until(
            lambda: (j := client.job(run.job_id))["attempt"] >= 2 and j["state"] == "RUNNING" and j,
            "a restart",
        )
        assert restarted["restored-checkpoint"] >= 1
        thread.join()
        job = run.wait()
        assert records_in(job) > 0
    assert run.replayed == LIMIT
    assert run.board().equals(want)


def test_a_killed_slot_process(make_cluster, flights_run, reference, until) -> None:
    want = reference(LIMIT)
    cluster = make_cluster(taskmanagers=1, slots=2)
    run = flights_run(cluster, limit=LIMIT, rate=RATE)
    with ClusterClient(cluster.rest_url) as client:
        thread = start(run, client, until)
        (manager,) = (p for p in client.info()["processes"] if p["role"] == "taskmanager")
        slot = next(s for s in manager["slots"] if s.get("pid"))
        os.kill(slot["pid"], signal.SIGKILL)
        until(lambda: client.job(run.job_id)["attempt"] >= 2, "a restart")
        failure = client.exceptions(run.job_id)["root-exception"]
        assert "SIGKILL" in failure or "signal 9" in failure
        thread.join()
        job = run.wait()
        assert job["restored-checkpoint"] >= 1
        # The task manager itself lived on: the slot died alone.
        assert manager["pid"] in [p["pid"] for p in client.info()["processes"]]
    assert run.board().equals(want)


def test_a_stopped_job_manager_is_refused_when_it_wakes(make_cluster, flights_run, reference, until) -> None:
    want = reference(LIMIT)
    cluster = make_cluster(
        taskmanagers=2, slots=2, jobmanagers=2, config={"high-availability.lease-duration": "2 s"}
    )
    run = flights_run(cluster, limit=LIMIT, rate=RATE)
    with ClusterClient(cluster.rest_url) as client:
        thread = start(run, client, until)
        before = client.job(run.job_id)
        leader = before["jobmanager-id"]
        pid = next(p["pid"] for p in client.info()["processes"] if p["id"] == leader)
        os.kill(pid, signal.SIGSTOP)
        try:
            after = until(
                lambda: (
                    (j := client.job(run.job_id))["epoch"] > before["epoch"] and j["state"] == "RUNNING" and j
                ),
                "the standby to lead",
            )
            assert after["jobmanager-id"] != leader
            done = completed(client, run.job_id)
            until(lambda: completed(client, run.job_id) > done, "a checkpoint of the new leader")
        finally:
            os.kill(pid, signal.SIGCONT)
        thread.join()
        job = run.wait()
        # The woken leader decided nothing: the epoch is still the standby's.
        assert job["epoch"] == after["epoch"]
        assert job["jobmanager-id"] == after["jobmanager-id"]
    log = next(c for c in cluster.children if c.pid == pid).log.read_text()
    assert "leadership lost" in log or "fenced" in log.lower()
    assert run.board().equals(want)


COUNTS = """
CREATE TABLE clicks (who BIGINT, at TIMESTAMP(3)) WITH (
  'connector' = 'datagen', 'rows-per-second' = '500', 'fields.who.min' = '1', 'fields.who.max' = '50');
CREATE TABLE sink (who BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO sink SELECT who, COUNT(*) FROM clicks GROUP BY who;
"""


def test_a_third_job_waits_until_a_task_manager_comes(make_cluster, until) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    with ClusterClient(cluster.rest_url) as client:
        jobs = [client.submit({"name": f"job {i}", "sql": COUNTS, "parallelism": 1}) for i in range(2)]
        for job_id in jobs:
            until(lambda job_id=job_id: client.job(job_id)["state"] == "RUNNING", "two jobs at once")
        third = client.submit({"name": "job 2", "sql": COUNTS, "parallelism": 1})
        waiting = until(
            lambda: client.job(third).get("waiting-for"), "the third job to say for what it waits"
        )
        assert "1 slot" in waiting
        assert [client.job(j)["state"] for j in jobs] == ["RUNNING", "RUNNING"]
        cluster.add_taskmanager()
        until(lambda: client.job(third)["state"] == "RUNNING", "the third job to start")
        for job_id in [*jobs, third]:
            client.cancel(job_id)
        for job_id in [*jobs, third]:
            until(lambda job_id=job_id: client.job(job_id)["state"] == "CANCELED", "cancellation")
        until(lambda: client.overview()["slots-available"] == 4, "all slots free again")


STATEFUL = Path(__file__).parent / "stateful_job.py"


def test_the_files_that_a_running_job_makes(make_cluster, until) -> None:
    """LevelDB's files on the worker, the log, manifests and snapshots in the object store."""
    cluster = make_cluster(taskmanagers=1, slots=2)
    with ClusterClient(cluster.rest_url) as client:
        spec = {
            "name": "visits",
            "python": STATEFUL.read_text(),
            "parallelism": 2,
            "config": {"state.backend.type": "leveldb", "execution.checkpointing.interval": "300 ms"},
        }
        job_id = client.submit(spec)
        until(lambda: completed(client, job_id) >= 2, "two completed checkpoints")
        local = {p.name for p in (cluster.root / "tmp").rglob("*") if p.is_file()}
        assert "CURRENT" in local, local
        assert any(name.startswith("MANIFEST-") for name in local)
        store = cluster.root / "store"
        keys = sorted(str(p.relative_to(store)) for p in (store / "jobs" / job_id).rglob("*") if p.is_file())
        assert any(f"jobs/{job_id}/log/" in key for key in keys), keys
        assert any("/checkpoints/" in key and key.endswith("manifest") for key in keys), keys
        client.cancel(job_id)
        until(lambda: client.job(job_id)["state"] == "CANCELED", "cancellation")
        until(
            lambda: not any(p.name == "CURRENT" for p in (cluster.root / "tmp").rglob("*")),
            "the slot's local state to be removed",
        )
