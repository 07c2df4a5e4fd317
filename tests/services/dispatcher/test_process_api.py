"""The dispatcher as Flink's job manager, threads of processes, and what Penstock has not."""

from __future__ import annotations

import logging

import pytest

from penstock_services.common import kept_lines
from penstock_services.common.kept_lines import KeptLines
from penstock_services.common.stacks import thread_stacks
from tests.services.dispatcher.test_rest import JOB, get, with_master


async def test_the_dispatchers_log_and_threads(front) -> None:
    [entry] = (await get(front, "/jobmanager/logs"))["logs"]
    assert (entry["name"], entry["size"]) == ("jobmanager.log", 12)
    assert (await front.http.get("/jobmanager/log")).text == "event=ready\n"
    assert (await front.http.get("/jobmanager/logs/jobmanager.log")).text == "event=ready\n"
    await get(front, "/jobmanager/logs/nope", 404)
    threads = (await get(front, "/v1/jobmanager/thread-dump"))["threadInfos"]
    assert any("thread_stacks" in thread["stringifiedThreadInfo"] for thread in threads)
    assert (await get(front, "/jobmanager/environment"))["jvm"]["version"].startswith("CPython 3.")


async def test_the_threads_of_a_task_manager(front) -> None:
    await front.task_manager("tm1")
    [thread] = (await get(front, "/taskmanagers/tm1/thread-dump"))["threadInfos"]
    assert thread["threadName"] == "MainThread (1)"
    await get(front, "/taskmanagers/nope/thread-dump", 404)


def test_stacks_name_threads_and_frames() -> None:
    [main] = [text for name, text in thread_stacks().items() if name.startswith("MainThread")]
    assert "test_stacks_name_threads_and_frames" in main


def test_the_oldest_lines_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_lines, "KEPT_BYTES", 10)
    kept = KeptLines()
    for text in ("abc", "def", "ghi"):
        kept.emit(logging.makeLogRecord({"msg": text, "created": 7.0}))
    assert (kept.text(), kept.size, kept.written_ms) == (b"def\nghi\n", 8, 7_000)


@pytest.mark.parametrize(
    ("method", "path", "remedy"),
    [
        ("POST", "/taskmanagers/tm1/profiler", "py-spy"),
        ("DELETE", "/cluster", "systemctl stop"),
        ("PATCH", f"/jobs/{JOB}/rescaling?parallelism=4", "savepoint"),
        ("POST", f"/jobs/{JOB}/coordinators/x", "/results"),
    ],
)
async def test_refusals_say_what_to_do_instead(front, method: str, path: str, remedy: str) -> None:
    await with_master(front)
    reply = await front.http.request(method, path)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "PS-UNSUPPORTED"
    assert remedy in reply.json()["error"]["remedy"]


async def test_resource_requirements_are_the_parallelism(front) -> None:
    await with_master(front)
    path = f"/jobs/{JOB}/resource-requirements"
    bounds = await get(front, path)
    assert sorted(v["parallelism"]["upperBound"] for v in bounds.values()) == [1, 1, 2, 2]
    assert (await front.http.put(path, json=bounds)).status_code == 200
    more = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": 9}} for vertex in bounds}
    assert "keeps its parallelism" in (await front.http.put(path, json=more)).text
    assert (await front.http.put(path, json=[])).status_code == 400


async def test_a_job_is_an_application_of_its_own(front) -> None:
    _, cluster = await with_master(front)
    [row] = (await get(front, "/applications/overview"))["applications"]
    assert (row["id"], row["status"], row["jobs"]["RUNNING"]) == ("job", "RUNNING", 1)
    found = await get(front, f"/applications/{JOB}")
    assert found["jobs"][0]["jid"] == "job"
    assert found["timestamps"]["RUNNING"] > 0
    assert (await get(front, f"/applications/{JOB}/exceptions"))["exceptionHistory"] == {"entries": []}
    assert (await front.http.post(f"/applications/{JOB}/cancel")).status_code == 202
    assert cluster.core.status.value == "CANCELLING"


async def test_metrics_over_jobs_and_task_managers(front) -> None:
    await with_master(front)
    [restarts] = await get(front, f"/jobs/metrics?get=numRestarts&agg=sum,max&jobs={JOB}")
    assert restarts == {"id": "numRestarts", "sum": 0.0, "max": 0.0}
    assert {"id": "uptime"} in await get(front, "/jobs/metrics")
    assert {"id": "Status.Slots.Total"} in await get(front, "/taskmanagers/metrics")
    assert (await get(front, "/taskmanagers/tm1/metrics?get=Status.Slots.Total"))[0]["value"] == "1"
    assert (await get(front, "/jobmanager/metrics?get=numRunningJobs"))[0]["value"] == "1"
    await get(front, "/taskmanagers/metrics?taskmanagers=nope", 404)
    await get(front, "/jobs/metrics?jobs=nope", 404)


async def test_cancel_where_no_patch_comes_through(front) -> None:
    _, cluster = await with_master(front)
    foreign = {"sec-fetch-site": "cross-site"}
    assert (await front.http.get(f"/jobs/{JOB}/yarn-cancel", headers=foreign)).status_code == 403
    assert cluster.core.status.value == "RUNNING"
    assert (await front.http.get(f"/jobs/{JOB}/yarn-cancel")).status_code == 202
    assert cluster.core.status.value == "CANCELLING"
