"""Real processes killed and stopped under a running job."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import redis

from penstock.api.client import ClusterClient
from penstock.messages.decision_log import JobAccepted, LeaderEpoch
from penstock.store import job_log, open_store
from tests.e2e.support import assert_same_board, files_below, slot_pid, story_of

pytestmark = pytest.mark.cluster


def completed(client: ClusterClient, job_id: str) -> int:
    return client.checkpoints(job_id).get("counts", {}).get("completed", 0)


def records_in(job: dict) -> int:
    return sum(v.get("metrics", {}).get("read-records", 0) for v in job["vertices"])


def process_where(client: ClusterClient, wanted) -> dict | None:
    """Who does not answer in time is not in the list: ask again."""
    return next((p for p in client.info()["processes"] if wanted({"slots": [], **p})), None)


def start(run, client: ClusterClient, until) -> tuple[threading.Thread, int]:
    """Submit, replay on a thread; when checkpoints are complete and rows flow, the thread
    and the rows read so far."""
    run.submit()
    thread = threading.Thread(target=run.replay_stubbornly, daemon=True)
    thread.start()

    def story() -> str:
        return story_of(client, run.job_id)

    until(lambda: completed(client, run.job_id) >= 2, "two completed checkpoints", story)
    before = until(
        lambda: (n := records_in(client.job(run.job_id))) > 1_000 and n, "rows before the fault", story
    )
    assert thread.is_alive()
    return thread, before


def finish(run, thread: threading.Thread) -> dict:
    """The ended job, once everything was replayed and read."""
    run.go.set()
    thread.join()
    job = run.wait()
    assert run.replayed == LIMIT
    return job


def assert_restarted(job: dict) -> None:
    """It really began anew from a checkpoint, and read on."""
    assert job["attempt"] >= 2
    assert job["restored-checkpoint"] >= 1
    assert records_in(job) > 0


def assert_adopted(job: dict, before: int) -> None:
    """Nothing began anew: the tasks that read before the fault read all of it."""
    assert job["attempt"] == 1
    assert job["restored-checkpoint"] == 0
    assert records_in(job) > before


LIMIT = 30_000
#: The replay has a pace, and waits before its last third until the fault has happened. No
#: split counts as idle meanwhile: how far event time has come must not hang on the clock.
PACED = {
    "limit": LIMIT,
    "rate": 6_000,
    "hold_at": LIMIT * 2 // 3,
    "config": {"table.exec.source.idle-timeout": "0 ms"},
}
_fault_free: list[pa.Table] = []


@pytest.fixture
def want(make_cluster, flights_run) -> pa.Table:
    """The answer over the same flights without a fault, checked once against a batch engine
    in ``test_main_job``; computed once."""
    if not _fault_free:
        cluster = make_cluster(taskmanagers=2, slots=1)
        run = flights_run(cluster, limit=LIMIT, name="reference")
        run.submit()
        run.replay()
        run.wait()
        cluster.stop()
        board = run.board()
        # A flight is in four windows: none was lost, none is there twice.
        assert pc.sum(board["departures"]).as_py() == 4 * LIMIT
        _fault_free.append(board)
    return _fault_free[0]


def test_a_killed_task_manager(want, make_cluster, flights_run, until) -> None:
    cluster = make_cluster(taskmanagers=2, slots=2)
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client:
        thread, _ = start(run, client, until)
        victim = until(
            lambda: process_where(client, lambda p: any(s.get("job_id") == run.job_id for s in p["slots"])),
            "a task manager with the job's slots to answer",
        )
        os.kill(victim["pid"], signal.SIGKILL)
        assert_restarted(finish(run, thread))
    assert_same_board(run.board(), want)


def test_a_killed_slot_process(want, make_cluster, flights_run, until) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client:
        thread, _ = start(run, client, until)
        os.kill(slot_pid(client), signal.SIGKILL)
        until(lambda: client.job(run.job_id)["attempt"] >= 2, "a restart")

        def causes() -> list[str]:
            """A broken connection may have been heard of long before."""
            entries = client.exceptions(run.job_id)["exceptionHistory"]["entries"]
            return [e["stacktrace"] for entry in entries for e in (entry, *entry["concurrentExceptions"])]

        until(lambda: any("SIGKILL" in text for text in causes()), "the cause", lambda: causes())
        assert_restarted(finish(run, thread))
        # The task manager itself lived on: the slot died alone.
        assert cluster.child("taskmanager-0").starts == 1
    assert_same_board(run.board(), want)


def test_a_killed_job_manager(want, make_cluster, flights_run, until) -> None:
    """The only one: it is started again, reads the log and adopts the tasks, which ran on."""
    cluster = make_cluster(taskmanagers=1, slots=2, config={"high-availability.lease-duration": "2 s"})
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client:
        thread, before = start(run, client, until)
        epoch = client.job(run.job_id)["epoch"]
        os.kill(cluster.child("jobmanager-0").pid, signal.SIGKILL)
        until(lambda: client.job(run.job_id)["epoch"] > epoch, "a new master")
        done = until(lambda: completed(client, run.job_id), "its figures")
        until(lambda: completed(client, run.job_id) > done, "a checkpoint of the new master")
        job = finish(run, thread)
        assert_adopted(job, before)
    assert cluster.child("jobmanager-0").starts == 2
    assert_same_board(run.board(), want)


@pytest.mark.parametrize("server", ["nats-0", "valkey-0"])
def test_a_killed_server_stops_no_job(want, make_cluster, flights_run, until, server) -> None:
    """The bus or the lease store dies and comes back: rows flow on, in the same attempt."""
    cluster = make_cluster(taskmanagers=1, slots=2, config={"high-availability.lease-duration": "2 s"})
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client:
        thread, before = start(run, client, until)
        done = completed(client, run.job_id)
        os.kill(cluster.child(server).pid, signal.SIGKILL)
        until(lambda: cluster.child(server).starts >= 2, f"{server} to be started again")
        job = finish(run, thread)
        assert job["attempt"] == 1
        assert records_in(job) > before
        assert completed(client, run.job_id) > done
    assert_same_board(run.board(), want)


def test_a_wiped_lease_store_loses_nothing(want, make_cluster, flights_run, until) -> None:
    """Whoever led leads on, or somebody else does; the job does not notice."""
    cluster = make_cluster(
        taskmanagers=1, slots=2, jobmanagers=2, config={"high-availability.lease-duration": "2 s"}
    )
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client, redis.Redis.from_url(cluster.redis_url) as leases:
        thread, before = start(run, client, until)
        done = completed(client, run.job_id)
        assert leases.flushall()
        until(lambda: leases.dbsize() > 0, "leases held again")
        until(lambda: completed(client, run.job_id) > done, "a checkpoint after it")
        assert_adopted(finish(run, thread), before)
    assert_same_board(run.board(), want)


PRINTED = """
CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '200',
  'fields.n.min' = '0', 'fields.n.max' = '1000000');
CREATE TABLE out (k BIGINT, c BIGINT) WITH ('connector' = 'print');
INSERT INTO out SELECT MOD(n, 7), COUNT(*) FROM ticks GROUP BY MOD(n, 7);
"""


def printed(cluster) -> int:
    """Bytes that the slots have printed."""
    logs = [p for p in files_below(cluster.root / "tmp") if p.parent.name == "log" and p.suffix == ".log"]
    return sum(p.stat().st_size for p in logs)


def test_rows_flow_while_all_masters_are_away(make_cluster, until) -> None:
    """Job manager and resource manager stand still for longer than their leases last: the data
    flows on, and afterwards checkpoints do again, in the same attempt."""
    cluster = make_cluster(taskmanagers=1, slots=1, config={"high-availability.lease-duration": "1 s"})
    with ClusterClient(cluster.rest_url) as client:
        config = {"execution.checkpointing.interval": "300 ms"}
        job_id = client.submit({"name": "printed", "sql": PRINTED, "parallelism": 1, "config": config})
        until(lambda: completed(client, job_id) >= 2, "checkpoints", lambda: story_of(client, job_id))
        done = completed(client, job_id)
        masters = [cluster.child(name).pid for name in ("jobmanager-0", "resourcemanager-0")]
        for pid in masters:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(4):  # each of these is more than a lease's time of rows
            before = printed(cluster)
            until(lambda b=before: printed(cluster) > b + 200 * 1.5 * 8, "rows without masters")
        for pid in masters:
            os.kill(pid, signal.SIGCONT)
        until(lambda: completed(client, job_id) > done, "checkpoints again", lambda: story_of(client, job_id))
        # A lease this short may be lost at any time: then no master leads for a moment.
        job = until(lambda: (j := client.job(job_id))["state"] == "RUNNING" and j, "a master that leads")
        assert job["attempt"] == 1
        client.cancel(job_id)


TWO = """
CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '200',
  'fields.n.min' = '0', 'fields.n.max' = '1000000');
CREATE TABLE tocks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100',
  'fields.n.min' = '0', 'fields.n.max' = '1000000');
CREATE TABLE a (k BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE b (k BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
BEGIN STATEMENT SET;
INSERT INTO a SELECT MOD(n, 7), COUNT(*) FROM ticks GROUP BY MOD(n, 7);
INSERT INTO b SELECT MOD(n, 5), COUNT(*) FROM tocks GROUP BY MOD(n, 5);
END;
"""


def test_only_what_is_connected_with_a_killed_slot_restarts(make_cluster, until) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    with ClusterClient(cluster.rest_url) as client:
        config = {"execution.checkpointing.interval": "300 ms"}
        job_id = client.submit({"name": "two", "sql": TWO, "parallelism": 1, "config": config})
        until(lambda: completed(client, job_id) >= 2, "checkpoints", lambda: story_of(client, job_id))

        def attempts() -> dict[str, tuple[int, str]]:
            """Vertex → attempt and state of its subtask. Not of enumerators: they end when all is
            dealt out."""
            vertices = [v for v in client.job(job_id)["vertices"] if not v["name"].startswith("Enumerator")]
            found = {v["id"]: client.vertex(job_id, v["id"])["subtasks"][0] for v in vertices}
            return {v: (s["attempt"], s["status"]) for v, s in found.items()}

        def running() -> dict[str, int] | None:
            """Vertex → attempt, when all run."""
            now = attempts()
            whole = {state for _, state in now.values()} == {"RUNNING"}
            return {v: attempt for v, (attempt, _) in now.items()} if whole else None

        before = until(running, "all to run", attempts)
        os.kill(slot_pid(client), signal.SIGKILL)
        after = until(
            lambda: (now := running()) and now != before and now,
            "one half to run again",
            lambda: story_of(client, job_id),
        )
        again = {v for v in before if after[v] != before[v]}
        assert before.keys() == after.keys()
        assert 0 < len(again) < len(before)
        assert len({after[v] for v in again}) == 1, "together"
        job = client.job(job_id)
        assert max(after.values()) == max(before.values()) + 1
        assert job["attempt"] == max(after.values()) + 1, (
            "executions are counted from 0, the job's attempts from 1"
        )
        assert job["restored-checkpoint"] > 0
        done = completed(client, job_id)
        until(lambda: completed(client, job_id) > done, "checkpoints of both halves")
        client.cancel(job_id)


def test_a_stopped_job_manager_is_refused_when_it_wakes(want, make_cluster, flights_run, until) -> None:
    cluster = make_cluster(
        taskmanagers=2, slots=2, jobmanagers=2, config={"high-availability.lease-duration": "2 s"}
    )
    run = flights_run(cluster, **PACED)
    with ClusterClient(cluster.rest_url) as client:
        thread, read = start(run, client, until)
        before = until(lambda: (j := client.job(run.job_id))["jobmanager-id"] and j, "a leader")
        done = completed(client, run.job_id)
        leader = before["jobmanager-id"]
        pid = until(lambda: process_where(client, lambda p: p["id"] == leader), "the leader to answer")["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            after = until(
                lambda: (
                    (j := client.job(run.job_id))["epoch"] > before["epoch"]
                    and j["state"] in ("RUNNING", "FINISHED")
                    and j
                ),
                "the standby to lead",
            )
            assert after["jobmanager-id"] != leader
            until(lambda: completed(client, run.job_id) > done + 1, "a checkpoint of the new leader")
        finally:
            os.kill(pid, signal.SIGCONT)
        job = finish(run, thread)
        assert_adopted(job, read)
        assert job["epoch"] >= after["epoch"] > before["epoch"]
        # Neither the woken leader nor any other decided something after its successor had begun.
        epoch, decided = 0, 0
        for number, entry in asyncio.run(job_log(open_store(cluster.storage_url), run.job_id).read()):
            if isinstance(entry, LeaderEpoch):
                epoch = number
            elif not isinstance(entry, JobAccepted):
                assert entry.epoch == epoch, (number, entry)
                decided += epoch == after["epoch"]
        assert decided, "the standby did decide"
        log = next(c for c in cluster.children if c.pid == pid).log
        until(
            lambda: any(w in log.read_text().lower() for w in ("leadership_lost", "fenced")), "it to notice"
        )
    assert_same_board(run.board(), want)


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
        until(
            lambda: "1 of 1 slot is missing" in (client.job(third)["waiting-for"] or ""),
            "the third job to say for what it waits",
            lambda: client.job(third)["waiting-for"],
        )
        for job_id in jobs:
            assert client.job(job_id)["attempt"] == 1
            until(lambda job_id=job_id: client.job(job_id)["state"] == "RUNNING", "two jobs at once")
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
        local = {path.name for path in files_below(cluster.root / "tmp")}
        assert "CURRENT" in local, local
        assert any(name.startswith("MANIFEST-") for name in local)
        kept = cluster.root / "store" / "jobs" / job_id

        def manifest() -> bool:
            """Of the checkpoint that is retained; the next one may take its place while one looks."""
            return any(path.name == "manifest" for path in files_below(kept / "checkpoints"))

        assert any(files_below(kept / "log"))
        until(manifest, "a manifest", lambda: files_below(kept))
        client.cancel(job_id)
        until(lambda: client.job(job_id)["state"] == "CANCELED", "cancellation")
        until(
            lambda: "CURRENT" not in {path.name for path in files_below(cluster.root / "tmp")},
            "the slot's local state to be removed",
        )
