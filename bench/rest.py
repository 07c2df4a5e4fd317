"""What a dispatcher's REST takes with many jobs: a real dispatcher, NATS and Valkey, and masters that are simulated.

Each job has four vertices of four subtasks. Printed are the p50 and p99 of ``GET /jobs/overview`` over one kept connection,
with pauses between the requests as a page that polls makes them, the CPU time of the dispatcher a request, and how many
small job graphs a second are accepted from 16 clients.

    python -m bench.rest [--jobs 1000] [--requests 300] [--submissions 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec

from penstock.bus import encode
from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects, verb_of
from penstock.embedded.servers import nats_command, valkey_command
from penstock.messages import layout
from penstock.messages.cluster import Ack
from penstock.messages.details import JobDetails, SubtaskDetails, VertexDetails
from penstock.messages.job_master import RequestJobDetails
from penstock.messages.states import ExecutionState, JobStatus
from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from penstock.sql.session import SqlSession
from penstock.store import open_store

SQL = """
CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE nowhere (v BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT v FROM numbers WHERE v > 3
"""


def details(job_id: str) -> JobDetails:
    """What a master answers about its job."""
    now_ms = int(time.time() * 1000)

    def subtask(index: int) -> SubtaskDetails:
        times = {"CREATED": now_ms, "RUNNING": now_ms}
        return SubtaskDetails(
            subtask_index=index, execution_id=f"{job_id}-{index}", attempt=1, state=ExecutionState.RUNNING,
            taskmanager_id="taskmanager-1", allocation_id=f"slot-{index}", timestamps=times,
            metrics={"read-records": 1_000, "write-records": 1_000, "busy": 500},
        )  # fmt: skip

    vertices = [
        VertexDetails(
            id=f"{number:032x}", name=f"step {number}", parallelism=4, max_parallelism=128,
            operators=[{"uid": f"u{number}", "name": "step", "kind": "calc"}],
            subtasks=[subtask(i) for i in range(4)],
        )
        for number in range(4)
    ]  # fmt: skip
    return JobDetails(
        job_id=job_id, name=f"job {job_id[:6]}", status=JobStatus.RUNNING, attempt=1, epoch=1, start_ms=now_ms,
        timestamps={"CREATED": now_ms, "RUNNING": now_ms}, vertices=vertices, plan="a plan " * 200,
    )  # fmt: skip


async def masters(nats_url: str, jobs: list[str]) -> None:
    """Answer for all jobs until cancelled."""
    transport = await NatsTransport.connect(nats_url, name="masters", role="jobmanager")
    answers = {job: encode(details(job)) for job in jobs}
    verb = verb_of(RequestJobDetails(job_id=jobs[0]))

    async def answer(subject: str, _: bytes) -> bytes | None:
        return answers.get(subject.split(".")[2])

    async def take(_: str, __: bytes) -> bytes:
        return encode(Ack())

    await transport.serve(f"penstock.job.*.{verb}", answer)
    await transport.serve(Subjects("penstock").jobmanager_run, take)
    await asyncio.Event().wait()


def launched(command: list[str], log: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent_after_exec)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(f) for f in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def overview(url: str, pid: int, jobs: int, requests: int, pause_s: float) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        first = time.perf_counter()
        answer = (await client.get("/jobs/overview")).json()
        first = time.perf_counter() - first
        assert len(answer["jobs"]) == jobs, f"{len(answer['jobs'])} jobs"
        took, before = [], cpu_s(pid)
        for _ in range(requests):
            await asyncio.sleep(pause_s)
            begun = time.perf_counter()
            await client.get("/jobs/overview")
            took.append(1000 * (time.perf_counter() - begun))
        cpu_ms = 1000 * (cpu_s(pid) - before) / requests
    print(
        f"GET /jobs/overview, {jobs} jobs, {requests} requests: first {1000 * first:.0f} ms, "
        f"p50 {statistics.median(took):.1f} ms, p99 {percentile(took, 0.99):.1f} ms, "
        f"{cpu_ms:.1f} ms of the dispatcher's CPU time each"
    )


async def submissions(url: str, pid: int, count: int) -> None:
    """Planned graphs, as ``penstock run`` sends them."""
    planned = next(r.job for r in SqlSession().run_script(SQL) if r.job is not None)
    graph = msgspec.to_builtins(planned.job_graph)
    left = iter(range(count))

    async def client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            for _ in left:
                spec = {"name": "small", "job_id": uuid.uuid4().hex, "job_graph": graph}
                (await http.post("/jobs", json=spec)).raise_for_status()

    begun, before = time.perf_counter(), cpu_s(pid)
    await asyncio.gather(*(client() for _ in range(16)))
    took = time.perf_counter() - begun
    print(
        f"{count} submissions of a small job graph: {count / took:.0f} a second, "
        f"{1000 * (cpu_s(pid) - before) / count:.1f} ms of the dispatcher's CPU time each"
    )


async def measure(arguments: argparse.Namespace, root: Path) -> None:
    reserved = [reserve_port() for _ in range(3)]
    nats_port, redis_port, rest_port = map(port_of, reserved)
    store_url, nats_url = (root / "store").as_uri(), f"nats://127.0.0.1:{nats_port}"
    jobs = [uuid.uuid4().hex for _ in range(arguments.jobs)]
    store = open_store(store_url)
    for job in jobs:
        await store.put(layout.active_key(job), b"")
    (root / "valkey").mkdir()
    commands = [
        nats_command(nats_port, root / "nats", "bench"),
        valkey_command(redis_port, root / "valkey"),
        [sys.executable, "-m", "penstock_services.dispatcher", f"-Dnats.url={nats_url}",
         f"-Dredis.url=redis://127.0.0.1:{redis_port}", f"-Dhigh-availability.storageDir={store_url}", f"-Drest.port={rest_port}"],
    ]  # fmt: skip
    started: list[subprocess.Popen[Any]] = []
    answering: asyncio.Task[None] | None = None
    try:
        for command in commands:
            with (root / "log").open("ab") as log:
                started.append(launched(command, log))
        answering = asyncio.create_task(masters(nats_url, jobs))
        url = f"http://127.0.0.1:{rest_port}"
        async with httpx.AsyncClient(base_url=url) as client:
            for _ in range(600):
                try:
                    await client.get("/config")
                    break
                except httpx.HTTPError:
                    await asyncio.sleep(0.1)
            else:
                raise SystemExit((root / "log").read_text()[-2000:])
        pid = started[-1].pid
        await overview(url, pid, arguments.jobs, arguments.requests, arguments.pause_ms / 1000)
        await submissions(url, pid, arguments.submissions)
    except httpx.HTTPError:
        print((root / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        if answering is not None:
            answering.cancel()
        for process in started:
            process.kill()
            process.wait()
        for port in reserved:
            port.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--pause-ms", type=float, default=20, help="between two requests")
    parser.add_argument("--submissions", type=int, default=1_000)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
