"""The history server: the jobs that have ended, from the object store alone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from penstock.errors import ObjectStoreError
from penstock.messages import layout
from penstock.messages.cluster import JobDetails, VertexDetails
from penstock.messages.states import JobStatus
from penstock.store import MemoryStore, open_store
from penstock_services.common.clock import SystemClock
from penstock_services.dispatcher.rest import application
from penstock_services.history.archive import ReadOnlyStore
from penstock_services.history.main import endpoints

NOW_MS = SystemClock().now_ms()
ENDED, RUNS = "a" * 32, "b" * 32


def ended_job() -> JobDetails:
    vertex = VertexDetails(id="v", name="Source: orders", parallelism=2, max_parallelism=128)
    return JobDetails(
        job_id=ENDED, name="sums", status=JobStatus.FAILED, attempt=3, epoch=1, start_ms=NOW_MS - 9_000, end_ms=NOW_MS - 5_000,
        vertices=[vertex], checkpoint_counts={"completed": 4},
    )  # fmt: skip


async def archive(store: object) -> None:
    details = ended_job()
    await store.put(layout.archive_key(ENDED), msgspec.json.encode(details))  # type: ignore[attr-defined]
    await store.put(layout.ended_key(ENDED), msgspec.json.encode(details.overview()))  # type: ignore[attr-defined]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    store = MemoryStore()
    await archive(store)
    await store.put(f"{layout.ACTIVE_PREFIX}{RUNS}", b"")
    app = application(endpoints(store, SystemClock(), "c"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as client:
        yield client


async def test_ended_jobs_are_shown_and_running_ones_are_not(http: httpx.AsyncClient) -> None:
    for prefix in ("", "/v1"):
        [job] = (await http.get(f"{prefix}/jobs/overview")).json()["jobs"]
        assert (job["jid"], job["state"], job["duration"]) == (ENDED, "FAILED", 4_000)
        details = (await http.get(f"{prefix}/jobs/{ENDED}")).json()
        assert [v["name"] for v in details["vertices"]] == ["Source: orders"]
    counts = (await http.get(f"/jobs/{ENDED}/checkpoints")).json()["counts"]
    assert counts["completed"] == 4
    assert (await http.get("/config")).json()["features"] == {
        "web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True,
    }  # fmt: skip
    [verdict] = (await http.get("/jobs/why")).json()["jobs"]
    assert (verdict["jid"], verdict["summary"]) == (ENDED, "The job failed after 4 s.")
    overview = (await http.get("/overview")).json()
    assert (overview["jobs-failed"], overview["jobs-running"], overview["taskmanagers"]) == (1, 0, 0)
    missing = await http.get(f"/jobs/{RUNS}")
    assert missing.status_code == 404
    assert "no job" in missing.json()["errors"][0]


async def test_nothing_can_be_changed(http: httpx.AsyncClient) -> None:
    for method, path in (
        ("PATCH", f"/jobs/{ENDED}?mode=cancel"), ("GET", f"/jobs/{ENDED}/yarn-cancel"), ("POST", "/jobs"),
        ("POST", f"/jobs/{ENDED}/savepoints"), ("GET", f"/jobs/{ENDED}/results"), ("DELETE", "/cluster"),
    ):  # fmt: skip
        assert (await http.request(method, path)).status_code in (404, 405), (method, path)
    assert all(endpoint.method == "GET" for endpoint in endpoints(MemoryStore(), SystemClock(), "c"))


async def test_its_store_refuses_changes() -> None:
    store = MemoryStore()
    await store.put("k", b"v")
    kept = ReadOnlyStore(store)
    assert await kept.get("k") == b"v"
    assert await kept.get_range("k", 0, 1) == b"v"
    assert await kept.list("") == [("k", 1)]
    for change in (lambda: kept.put("k", b"w"), lambda: kept.create("n", b""), lambda: kept.delete(["k"])):
        with pytest.raises(ObjectStoreError, match="changes nothing"):
            await change()
    assert await store.get("k") == b"v"


def test_the_process_serves_a_folder_and_ends_at_a_signal(tmp_path: Path) -> None:
    asyncio.run(archive(open_store(tmp_path.as_uri())))
    argv = [sys.executable, "-P", "-m", "penstock_services.history"]
    process = subprocess.Popen(
        [*argv, "-D", f"historyserver.archive.fs.dir={tmp_path.as_uri()}", "-D", "historyserver.web.port=0"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_CONF")},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = ""
        while (found := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        with httpx.Client(base_url=found[0]) as client:
            assert [j["id"] for j in client.get("/jobs").json()["jobs"]] == [ENDED]
            assert "<html" in client.get("/").text
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_without_a_store_it_says_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "penstock_services.history"],
        capture_output=True,
        text=True,
        env={"PATH": ""},
    )
    assert done.returncode == 1
    assert "the history server cannot run" in done.stderr
    assert "-D high-availability.storageDir=URL" in done.stderr
