"""What a dispatcher's REST takes with many jobs and task managers: a real dispatcher and resource manager, NATS and Valkey,
and masters and task managers that are simulated (``bench.simulated``).

Printed are the p50 and p99 of ``GET /jobs/overview``, ``/taskmanagers``, ``/overview``, ``/metrics`` and ``/jobs/why`` over
one kept connection, with pauses between the requests as a page that polls makes them, as the time that the client waits and as the CPU time that the
dispatcher used from the one request's begin to the next one's; and how many small job graphs a second are accepted from 16
clients. On a machine that does other things the CPU times say more.

    python -m bench.rest [--jobs 1000] [--taskmanagers 1000] [--requests 300] [--submissions 1000]
"""

from __future__ import annotations

import argparse
import asyncio
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

from penstock.embedded.servers import nats_command, valkey_command
from penstock.messages import layout
from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from penstock.sql.session import SqlSession
from penstock.store import open_store

SQL = """
CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1');
CREATE TABLE nowhere (v BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT v FROM numbers WHERE v > 3
"""


def launched(command: list[str], log: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent_after_exec)


def cpu_ms(pid: int) -> float:
    """The CPU time of all threads of a process in ms, as exactly as the kernel counts it."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def polled(url: str, pid: int, path: str, requests: int, pause_s: float) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        begun = time.perf_counter()
        size = len((await client.get(path)).content)
        first = 1000 * (time.perf_counter() - begun)
        took, used, refused = [], [], 0
        for _ in range(requests):
            await asyncio.sleep(pause_s)
            begun, before = time.perf_counter(), cpu_ms(pid)
            refused += (await client.get(path)).status_code != 200
            took.append(1000 * (time.perf_counter() - begun))
            used.append(cpu_ms(pid) - before)
    print(
        f"GET {path}, {size / 1000:.0f} kB, {requests} requests, {refused} refused: first {first:.0f} ms, "
        f"p50 {statistics.median(took):.1f} ms, p99 {percentile(took, 0.99):.1f} ms; CPU time of the dispatcher "
        f"meanwhile: p50 {statistics.median(used):.1f} ms, p99 {percentile(used, 0.99):.1f} ms"
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

    begun, before = time.perf_counter(), cpu_ms(pid)
    await asyncio.gather(*(client() for _ in range(16)))
    took = time.perf_counter() - begun
    print(
        f"{count} submissions of a small job graph: {count / took:.0f} a second, "
        f"{(cpu_ms(pid) - before) / count:.2f} ms of the dispatcher's CPU time each"
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
    (root / "jobs").write_text("\n".join(jobs))
    options = [f"-Dnats.url={nats_url}", f"-Dhigh-availability.redis.url=redis://127.0.0.1:{redis_port}",
               f"-Dhigh-availability.storageDir={store_url}", f"-Drest.port={rest_port}"]  # fmt: skip
    commands = [
        nats_command(nats_port, root / "nats", "bench"),
        valkey_command(redis_port, root / "valkey"),
        [sys.executable, "-m", "penstock_services.resourcemanager", *options],
        [sys.executable, "-m", "bench.simulated", nats_url, str(root / "jobs"), str(arguments.taskmanagers)],
        [sys.executable, "-m", "penstock_services.dispatcher", *options],
    ]
    started: list[subprocess.Popen[Any]] = []
    try:
        for command in commands:
            with (root / "log").open("ab") as log:
                started.append(launched(command, log))
        url = f"http://127.0.0.1:{rest_port}"
        await until_all_are_known(url, root / "log", arguments.jobs, arguments.taskmanagers)
        pid, pause_s = started[-1].pid, arguments.pause_ms / 1000
        print(f"{arguments.jobs} jobs, {arguments.taskmanagers} task managers")
        for path in ("/jobs/overview", "/taskmanagers", "/overview"):
            await polled(url, pid, path, arguments.requests, pause_s)
        for path in ("/metrics", "/jobs/why"):  # they ask all masters, at most once a second
            await polled(url, pid, path, arguments.requests // 10, pause_s)
        await submissions(url, pid, arguments.submissions)
    except httpx.HTTPError:
        print((root / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        for process in started:
            process.kill()
            process.wait()
        for port in reserved:
            port.close()


async def until_all_are_known(url: str, log: Path, jobs: int, managers: int) -> None:
    """Waits until the dispatcher knows all jobs, and the resource manager all task managers."""
    found: Any = None
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for _ in range(150):
            try:
                found = (await client.get("/overview")).json()
                if (found["jobs-running"], found["taskmanagers"]) == (jobs, managers):
                    return
            except (httpx.HTTPError, KeyError):
                pass
            await asyncio.sleep(0.2)
    raise SystemExit(f"not all are known: {found}\nthe log: {log}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--taskmanagers", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--pause-ms", type=float, default=20, help="between two requests")
    parser.add_argument("--submissions", type=int, default=1_000)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
