from __future__ import annotations

import asyncio
import base64
import json

import msgspec
import pytest

from penstock.messages import cluster as msg
from penstock.messages import layout
from penstock.messages.slot import OperatorMetrics, TaskMetrics
from penstock.messages.states import ExecutionState
from penstock.store import job_log
from penstock_services.common.http import MAX_BODY_BYTES
from penstock_services.dispatcher import logged
from penstock_services.dispatcher.views.common import vertex_id
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

JOB = "0b" * 16


def running_job(**config: str) -> Cluster:
    """A master's core in the middle of a job, with metrics of one subtask."""
    options = {"execution.checkpointing.interval": "100 ms"} | config
    cluster = Cluster(pipeline(), seed=1, config=options, unbounded=True)
    cluster.run(until=lambda: cluster.core.coordinator.history.counts["completed"] >= 2)
    execution = cluster.core.graph.vertex("read")[1]
    execution.metrics = TaskMetrics(
        execution_id=execution.execution_id,
        vertex_id="read",
        subtask_index=1,
        records_in=10,
        records_out=20,
        busy_ms_per_second=300.0,
        back_pressured_ms_per_second=600.0,
        input_watermark=5_000_000,
        output_watermark=4_000_000,
        operators=(OperatorMetrics(uid="u", name="read", counters={"numLateRecordsDropped": 3}),),
    )
    return cluster


async def with_master(front):
    """(job id, cluster) of a submitted job whose master is a real core."""
    job_id = await front.submit(job_id=JOB, name="pipeline")
    cluster = running_job()
    await front.master(job_id, cluster.ask)
    return job_id, cluster


async def get(front, path: str, status: int = 200):
    reply = await front.http.get(path)
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_submission_is_accepted_stored_and_run(front):
    job_id = await front.submit(name="flights")
    assert len(job_id) == 32
    assert int(job_id, 16)
    assert front.ran == [job_id]
    keys = [key for key, _ in await front.store.list("")]
    assert f"jobs/{job_id}/log/000000000001" in keys
    assert layout.active_key(job_id) in keys
    details = await get(front, f"/jobs/{job_id}")
    assert (details["state"], details["name"]) == ("INITIALIZING", "flights")
    assert "no job manager" in details["waiting-for"]


async def test_while_no_master_answers_the_log_tells(front):
    """During a takeover a job that runs looks neither new nor empty."""
    job_id = await front.submit(name="flights")
    before = await get(front, f"/jobs/{job_id}")
    assert [v["name"] for v in before["vertices"]] == ["enumerate", "read", "sum", "sink"]
    assert before["attempt"] == 0
    log = job_log(front.store, job_id)
    await log.lead("jm1", 1_000)
    decided = [
        msg.Restored(epoch=2, job_attempt=1, checkpoint_id=0, timestamp_ms=1_000, slots=2),
        msg.CheckpointCompleted(epoch=2, checkpoint_id=1, manifest_key="m/1", timestamp_ms=2_000),
        msg.Restored(epoch=2, job_attempt=2, checkpoint_id=1, timestamp_ms=3_000, slots=2),
        msg.CheckpointCompleted(epoch=2, checkpoint_id=2, manifest_key="m/2", timestamp_ms=4_000),
        msg.SavepointRequested(epoch=2, trigger_id="asked", kind="savepoint"),
    ]
    for entry in decided:
        await log.append(entry)
    details = await get(front, f"/jobs/{job_id}")
    assert (details["state"], details["attempt"], details["epoch"]) == ("RECONCILING", 2, log.epoch)
    assert details["restored-checkpoint"] == 1
    assert "its tasks run on" in details["waiting-for"]
    assert [(v["name"], v["parallelism"]) for v in details["vertices"]] == [
        (v["name"], v["parallelism"]) for v in before["vertices"]
    ]
    subtasks = (await get(front, f"/jobs/{job_id}/vertices/read"))["subtasks"]
    assert {s["attempt"] for s in subtasks} == {1}, "the second, counted from 0"
    checkpoints = await get(front, f"/jobs/{job_id}/checkpoints")
    assert checkpoints["counts"]["completed"] == 2
    assert checkpoints["latest"]["completed"]["id"] == 2
    asked = await get(front, f"/jobs/{job_id}/savepoints/asked")
    assert asked["status"]["id"] == "IN_PROGRESS", "what was promised is not forgotten"
    (row,) = (await get(front, "/jobs/overview"))["jobs"]
    assert (row["state"], row["tasks"]["total"]) == ("RECONCILING", 6)


class CountingReads:
    """Keys that are read of a store's decision logs."""

    def __init__(self, store, monkeypatch):
        self.keys: list[str] = []
        get = store.get

        async def counted(key):
            if "/log/" in key or "graph" in key:
                self.keys.append(key)
            return await get(key)

        monkeypatch.setattr(store, "get", counted)

    def taken(self) -> list[str]:
        taken, self.keys = self.keys, []
        return taken


async def test_a_log_that_nobody_leads_is_followed_and_not_read_anew(front, monkeypatch):
    job_id = await front.submit(name="flights")
    log = job_log(front.store, job_id)
    await log.lead("jm1", 1_000)
    await log.append(msg.Restored(epoch=2, job_attempt=1, checkpoint_id=0, timestamp_ms=1_000, slots=2))
    reads = CountingReads(front.store, monkeypatch)
    asked = [get(front, f"/jobs/{job_id}{path}") for path in ("", "/checkpoints", "/plan", "/status")]
    first, *_ = await asyncio.gather(*asked)
    read = reads.taken()
    assert [read.count(log.key(n)) for n in (1, 2, 3)] == [1, 1, 1], "together they read it once"
    assert (await get(front, f"/jobs/{job_id}"))["attempt"] == first["attempt"] == 1
    (row,) = (await get(front, "/jobs/overview"))["jobs"]
    assert row["state"] == "RECONCILING"
    assert reads.taken() == [log.key(4)] * 2, "nothing new: one look for the next entry each"
    await log.append(msg.Restored(epoch=2, job_attempt=2, checkpoint_id=0, timestamp_ms=2_000, slots=2))
    reads.taken()
    assert (await get(front, f"/jobs/{job_id}"))["attempt"] == 2
    assert reads.taken() == [log.key(4), log.key(5)]


async def test_the_log_of_a_job_with_a_master_is_not_followed(front, monkeypatch):
    job_id = await front.submit(job_id=JOB, name="pipeline")
    await get(front, f"/jobs/{job_id}")
    await front.master(job_id, running_job().ask)
    assert (await get(front, f"/jobs/{job_id}"))["state"] == "RUNNING"
    await get(front, "/jobs/unknown", 404)
    assert front.directory.logged.followed == ()


async def test_so_many_logs_are_followed_and_no_more(front, monkeypatch):
    monkeypatch.setattr(logged, "FOLLOWED", 2)
    a, b, c = (letter * 32 for letter in "abc")
    for job_id in (a, b, c):
        await front.submit(job_id=job_id)
        await get(front, f"/jobs/{job_id}")
    assert front.directory.logged.followed == (b, c)
    assert (await get(front, f"/jobs/{a}"))["state"] == "INITIALIZING"
    assert front.directory.logged.followed == (c, a)


async def test_a_repeated_submission_is_known_by_the_first_entry(front, monkeypatch):
    job_id = await front.submit(job_id=JOB)
    log = job_log(front.store, job_id)
    await log.lead("jm1", 1_000)
    reads = CountingReads(front.store, monkeypatch)
    await front.submit(job_id=JOB)
    assert reads.taken() == [log.key(1)]


async def test_a_repeated_submission_is_the_same_job(front):
    body = msgspec.json.encode({"job_graph": msgspec.to_builtins(pipeline()), "job_id": JOB})
    first = (await front.http.post("/jobs", content=body)).json()
    again = (await front.http.post("/v1/jobs", content=body)).json()
    assert first == {
        "jobUrl": f"/jobs/{JOB}",
        "jobid": JOB,
        "name": "pipeline",
        "created": True,
        "warnings": [],
    }
    assert again == {**first, "created": False, "warnings": []}


async def test_submission_over_the_bus(front):
    transport = front.bus.transport()
    graph = msgspec.to_builtins(pipeline())
    subject = front.subjects.jobs_submit
    plain = json.loads(await transport.request(subject, json.dumps({"job_graph": graph}).encode()))
    assert plain["created"] is True
    command = {"type": "submit-job", "command_id": "c1", "spec": {"job_graph": graph}}
    one, two = [json.loads(await transport.request(subject, json.dumps(command).encode())) for _ in "12"]
    assert one["job_id"] == two["job_id"]
    assert two["created"] is False
    bad = json.loads(await transport.request(subject, b"nam: x"))
    assert bad["type"] == "failed"
    assert "did you mean 'name'" in bad["error"]["remedy"]
    listed = json.loads(await transport.request(front.subjects.jobs("list"), b""))
    assert {j["jid"] for j in listed["jobs"]} == {plain["job_id"], one["job_id"]}
    status = json.loads(await transport.request(front.subjects.jobs("status"), one["job_id"].encode()))
    assert status["status"] == "INITIALIZING"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"sql": ', 400, "PS-SPEC"),
        (b'{"sqll": "x"}', 400, "PS-SPEC"),
        (b'{"job_graph": {"name": "x"}}', 400, "PS-SPEC"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "PS-TOO-LARGE"),
    ],
)
async def test_bad_submissions_say_what_is_wrong(front, body, status, code):
    reply = await front.http.post("/jobs", content=body)
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
    assert code in reply.json()["errors"][0]
    assert [key for key, _ in await front.store.list("")] == []


async def test_other_sites_may_not_submit(front):
    reply = await front.http.post("/jobs", content=b"{}", headers={"origin": "http://evil.example"})
    assert reply.status_code == 403
    same = await front.http.post("/jobs", content=b"{}", headers={"origin": "http://dispatcher"})
    assert same.status_code == 400


async def test_a_running_job_from_its_master(front):
    job_id, cluster = await with_master(front)
    job = await get(front, f"/v1/jobs/{job_id}")
    assert (job["state"], job["attempt"], job["jobmanager-id"]) == ("RUNNING", 1, "jm1")
    ids = [v["id"] for v in job["vertices"]]
    assert ids == [vertex_id(name) for name in ("enumerate", "read", "sum", "sink")]
    assert [n["id"] for n in job["plan"]["nodes"]] == ids
    assert job["plan"]["nodes"][2]["inputs"][0]["id"] == ids[1]
    read = job["vertices"][1]
    assert (read["status"], read["tasks"]["RUNNING"], read["metrics"]["write-records"]) == ("RUNNING", 2, 20)
    assert read["metrics"]["backpressure-level"] == "high"
    assert job["plan"]["nodes"][2]["inputs"][0]["ship_strategy"] == "HASH"
    assert (await get(front, f"/jobs/{job_id}/status")) == {"status": "RUNNING"}
    assert (await get(front, f"/jobs/{job_id}/execution-result")) == {"status": {"id": "IN_PROGRESS"}}
    assert cluster.core.status.value == "RUNNING"


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("/config", lambda j: j["execution-config"]["job-parallelism"] == 2),
        ("/plan", lambda j: len(j["plan"]["nodes"]) == 4),
        ("/exceptions", lambda j: j["root-exception"] is None),
        ("/checkpoints", lambda j: j["counts"]["completed"] >= 2 and j["latest"]["completed"]["id"] >= 2),
        ("/checkpoints/config", lambda j: j["interval"] == 100),
        ("/checkpoints/details/1", lambda j: j["tasks"][vertex_id("sum")]["num_acknowledged_subtasks"] == 2),
        ("/metrics", lambda j: {"id": "numRestarts"} in j),
        ("/metrics?get=numRestarts", lambda j: j == [{"id": "numRestarts", "value": "0"}]),
        ("/accumulators", lambda j: j["user-task-accumulators"][0]["value"] == "3"),
        ("/vertices/read", lambda j: j["subtasks"][1]["status"] == "RUNNING"),
        ("/vertices/read/backpressure", lambda j: j["subtasks"][1]["ratio"] == 0.6),
        ("/vertices/read/watermarks", lambda j: j == [{"id": "1.currentInputWatermark", "value": "5000"}]),
        ("/vertices/read/subtasktimes", lambda j: j["subtasks"][0]["timestamps"]["RUNNING"] > 0),
        ("/vertices/read/taskmanagers", lambda j: j["taskmanagers"][0]["status"] == "RUNNING"),
        ("/vertices/read/metrics?get=1.numRecordsIn", lambda j: j[0]["value"] == "10"),
        ("/vertices/read/subtasks/1/metrics?get=numRecordsIn", lambda j: j[0]["value"] == "10"),
        ("/vertices/read/subtasks/metrics", lambda j: {"id": "numRecordsIn"} in j),
        (
            "/vertices/read/subtasks/metrics?get=numRecordsIn&agg=sum,skew",
            lambda j: j == [{"id": "numRecordsIn", "sum": 10.0, "skew": 0.0}],
        ),
        ("/vertices/read/subtasks/metrics?get=numRecordsIn&subtasks=0", lambda j: j == []),
        ("/vertices/read/subtasks/1", lambda j: (j["attempt"], j["status"]) == (0, "RUNNING")),
        ("/vertices/read/subtasks/1/attempts/0", lambda j: j["status-duration"]["CANCELING"] == -1),
        (
            "/vertices/read/subtasks/accumulators",
            lambda j: j["subtasks"][1]["user-accumulators"][0]["value"] == "3",
        ),
        (
            "/vertices/read/accumulators",
            lambda j: j["user-accumulators"][0]["name"] == "numLateRecordsDropped",
        ),
        ("/vertices/" + vertex_id("read"), lambda j: j["name"] == "read"),
        ("/exceptions?failureLabelFilter=code:PS-RECORD", lambda j: j["exceptionHistory"]["entries"] == []),
    ],
)
async def test_views_of_a_job(front, path, check):
    job_id, _ = await with_master(front)
    found = await get(front, f"/jobs/{job_id}{path}")
    assert check(found), found


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/nope",
        f"/jobs/{JOB}/vertices/nope",
        f"/jobs/{JOB}/vertices/read/subtasks/99",
        f"/jobs/{JOB}/vertices/read/subtasks/1/attempts/99",
        f"/jobs/{JOB}/checkpoints/details/99",
        "/nope",
        "/v1/nope",
    ],
)
async def test_what_is_not_there_is_404(front, path):
    await with_master(front)
    body = await get(front, path, 404)
    assert body["errors"][0]
    assert "nope" in body["error"]["message"] or "99" in body["error"]["message"]


@pytest.mark.parametrize("path", ["/jobs/nope", "/v1/jobs/nope"])
async def test_errors_is_the_only_key_of_an_error_unless_its_fields_are_asked_for(front, path):
    """Flink's clients read an object with other keys as the answer to their request."""
    plain = await front.http.patch(path, headers={"accept": "*/*"})
    assert (plain.status_code, list(plain.json())) == (404, ["errors"])
    ours = await front.http.patch(path)
    assert (ours.status_code, ours.json()["error"]["code"]) == (404, "PS-NO-JOB")
    foreign = {"accept": "*/*", "origin": "http://evil.example"}
    assert list((await front.http.post("/jobs", headers=foreign)).json()) == ["errors"]


async def test_cancel(front):
    job_id, cluster = await with_master(front)
    reply = await front.http.patch(f"/jobs/{job_id}?mode=cancel")
    assert reply.status_code == 202
    assert cluster.core.status.value == "CANCELLING"
    assert (await front.http.patch(f"/jobs/{job_id}?mode=stop")).status_code == 400
    assert (await front.http.patch("/jobs/nope")).status_code == 404


async def test_a_savepoint_by_trigger_id(front):
    job_id, cluster = await with_master(front)
    reply = await front.http.post(f"/jobs/{job_id}/savepoints", json={"target-directory": "backup"})
    assert reply.status_code == 202
    path = f"/jobs/{job_id}/savepoints/{reply.json()['request-id']}"
    assert (await get(front, path))["status"] == {"id": "IN_PROGRESS"}
    done = cluster.core.coordinator.history.counts["completed"]
    cluster.run(until=lambda: cluster.core.coordinator.history.counts["completed"] > done + 1)
    found = await get(front, path)
    assert "/backup/savepoint-" in found["operation"]["location"]
    assert found["progress"]["acknowledged"] == found["progress"]["total"] > 0
    for folder in ("../../etc", "/etc", "file:///only/here/../x", "s3://bucket/x"):
        bad = await front.http.post(f"/jobs/{job_id}/stop", json={"targetDirectory": folder})
        assert bad.status_code == 403, folder
    asked = await front.http.post("/savepoint-disposal", json={"savepoint-path": "/etc/savepoint-1"})
    outcome = await get(front, f"/savepoint-disposal/{asked.json()['request-id']}")
    assert "savepoints in this folder are not allowed" in str(outcome)


async def test_an_ended_job_comes_from_the_archive(front):
    job_id = await front.submit(job_id=JOB)
    cluster = Cluster(pipeline(), seed=2)
    cluster.run()
    details = cluster.archived.details
    await front.store.put(layout.archive_key(job_id), msgspec.json.encode(details))
    await front.store.put(layout.ended_key(job_id), msgspec.json.encode(details.overview()))
    await front.store.delete([layout.active_key(job_id)])
    job = await get(front, f"/jobs/{job_id}")
    assert job["state"] == "FINISHED"
    assert job["duration"] == job["end-time"] - job["start-time"]
    assert (await get(front, "/jobs"))["jobs"] == [{"id": details.job_id, "status": "FINISHED"}]
    late = await front.http.post(f"/jobs/{job_id}/stop", json={})
    assert late.status_code == 409
    assert "needs a running job; this one is FINISHED" in late.text
    error = late.json()["error"]
    assert error["where"] == f"stop of job {job_id}"
    assert error["expected"]
    assert "penstock info" in error["remedy"]
    row = (await get(front, "/jobs/overview"))["jobs"][0]
    assert row["tasks"]["finished"] == row["tasks"]["total"] == 6
    assert (await get(front, "/overview"))["jobs-finished"] == 1
    assert (await front.http.patch(f"/jobs/{job_id}")).status_code == 202, "over already: nothing to do"


async def test_results_that_a_reader_has_do_not_pile_up(front, monkeypatch):
    from penstock_services.dispatcher import results

    monkeypatch.setattr(results, "KEPT_CHUNKS", 3)
    job_id, _ = await with_master(front)
    keys = [f"jobs/{job_id}/results/000001-{i:012d}" for i in range(8)]
    for key in keys:
        await front.store.put(key, b"x")
    await get(front, f"/jobs/{job_id}/results?after={keys[2]}&wait_ms=0")
    left = [key for key, _ in await front.store.list(f"jobs/{job_id}/results/")]
    assert left == keys[3:]  # what nobody has yet stays
    gone = await get(front, f"/jobs/{job_id}/results", 400)
    assert "no longer kept" in gone["errors"][0]


async def test_results_in_order_after_a_key_until_the_end(front):
    job_id, cluster = await with_master(front)
    keys = [f"jobs/{job_id}/results/000001-{i:012d}" for i in range(3)]
    for i, key in enumerate(keys):
        await front.store.put(key, f"chunk{i}".encode())
    found = await get(front, f"/jobs/{job_id}/results")
    assert [c["key"] for c in found["chunks"]] == keys
    assert base64.b64decode(found["chunks"][1]["data"]) == b"chunk1"
    rest = await get(front, f"/jobs/{job_id}/results?after={keys[1]}&wait_ms=10")
    assert [c["key"] for c in rest["chunks"]] == keys[2:]
    acks = [key for key, _ in await front.store.list(f"jobs/{job_id}/results-ack/")]
    assert acks == [f"jobs/{job_id}/results-ack/000001-{1:012d}"]
    nothing = await get(front, f"/jobs/{job_id}/results?after={keys[2]}&wait_ms=30")
    assert nothing == {"chunks": [], "status": "RUNNING"}
    await get(front, f"/jobs/{job_id}/results?after=elsewhere", 400)
    await get(front, f"/jobs/{job_id}/results?wait_ms=soon", 400)
    assert cluster.core.graph.count(ExecutionState.RUNNING) == 6


async def test_cluster(front):
    overview = await get(front, "/overview")
    assert (overview["taskmanagers"], overview["slots-total"], overview["slots-available"]) == (1, 1, 0)
    managers = (await get(front, "/taskmanagers"))["taskmanagers"]
    assert (managers[0]["id"], managers[0]["freeSlots"]) == ("tm1", 0)
    assert (await get(front, "/taskmanagers/tm1"))["pid"] == 5
    await get(front, "/taskmanagers/tm9", 404)
    info = await get(front, "/cluster/info")
    roles = {p["role"]: p for p in info["processes"]}
    assert set(roles) == {"jobmanager", "taskmanager"}
    assert roles["taskmanager"]["slots"][0]["pid"] == 7
    config = {e["key"]: e["value"] for e in await get(front, "/jobmanager/config")}
    assert config["storage.options.secret_access_key"] == "******"
    page = await front.http.get("/")
    assert page.headers["content-type"].startswith("text/html")


async def test_prometheus(front):
    await with_master(front)
    front.config["metrics.flink-names"] = "true"
    text = (await front.http.get("/metrics")).text
    assert "penstock_jobmanager_numRunningJobs 1.0" in text
    assert "flink_jobmanager_taskSlotsTotal 1.0" in text
    line = next(
        line for line in text.splitlines() if line.startswith("penstock_taskmanager_job_task_numRecordsIn{")
    )
    assert 'subtask_index="1"' in line
    assert line.endswith(" 10.0")
    assert "penstock_taskmanager_job_task_operator_numLateRecordsDropped" in text
    assert "penstock_jobmanager_job_numberOfCompletedCheckpoints" in text
    assert isinstance(msg.Ack(), msg.Ack)


async def test_dead_letters_page_by_page(front):
    job_id = await front.submit()
    for i in range(3):
        lines = b"".join(b'{"operator":"Source: t","record":"%d"}\n' % n for n in (2 * i, 2 * i + 1))
        await front.store.put(f"jobs/{job_id}/dead-letters/source-1/000001-00000-{i:08d}", lines)
    first = await get(front, f"/jobs/{job_id}/dead-letters?limit=3")
    assert [letter["record"] for letter in first["dead-letters"]] == ["0", "1", "2", "3"]
    assert first["more"] is True
    rest = await get(front, f"/jobs/{job_id}/dead-letters?after={first['next']}")
    assert [letter["record"] for letter in rest["dead-letters"]] == ["4", "5"]
    assert rest["more"] is False
    await get(front, "/jobs/absent/dead-letters", 404)


async def test_disposal_of_a_damaged_savepoint_says_what_was_not_readable(front):
    folder = "savepoints/savepoint-abcdef-3-2"
    await front.store.put(f"{folder}/manifest", b"{")
    asked = await front.http.post("/savepoint-disposal", json={"savepoint-path": folder})
    outcome = await get(front, f"/savepoint-disposal/{asked.json()['request-id']}")
    assert "cannot be read" in outcome["operation"]["warning"]
    assert not [key for key, _ in await front.store.list("savepoints/")]
    again = await front.http.post("/savepoint-disposal", json={"savepoint-path": folder})
    outcome = await get(front, f"/savepoint-disposal/{again.json()['request-id']}")
    assert "nothing to do" in outcome["operation"]["failure-cause"]["stack-trace"]
    assert outcome["operation"]["failure-cause"]["error"]["type"] == "SnapshotError"


async def test_a_clients_heartbeat_reaches_the_master(front):
    heard = []
    job_id = await front.submit()

    def master(message):
        heard.append(message)
        return msg.Ack()

    await front.master(job_id, master)
    # As Flink's client sends it.
    reply = await front.http.patch(f"/v1/jobs/{job_id}/clientHeartbeat", json={"expiredTimestamp": 1})
    assert reply.status_code == 202
    assert heard == [msg.ClientHeartbeat(job_id=job_id)]
