"""SIGKILL of a task manager, to the first rows that come out again.

A keyed aggregate at parallelism 2 over two task managers, with a third one idle; its state
is filled, a checkpoint completes, rows go on at a pace; then one task manager is killed.
Prints when the new attempt began and ran, and the gap in the output.

    python -m bench.recovery [--keys 1000000] [--bytes 1024] [--kills 3] [--what taskmanager]
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import tempfile
import time
from pathlib import Path
from statistics import median

from penstock.api.client import ClusterClient
from penstock.cli.embedded import EmbeddedCluster

SQL = """
CREATE TABLE rows_in (`key` BIGINT{payload_column}) WITH (
  'connector' = 'python:bench.recovery_connector:Fill',
  'keys' = '{keys}', 'bytes' = '{bytes}', 'rate' = '{rate}', 'readers' = '2');
CREATE TABLE rows_out (`key` BIGINT, n BIGINT{payload_type}) WITH (
  'connector' = 'python:bench.recovery_connector:Arrivals', 'path' = '{path}');
INSERT INTO rows_out SELECT `key`, COUNT(*){payload} FROM rows_in GROUP BY `key`;
"""


def arrivals(folder: Path) -> list[float]:
    return sorted(float(line) for f in folder.glob("rows-*") for line in f.read_text().split())


def wait(condition, what: str, limit_s: float = 900.0):
    until = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() > until:
            raise SystemExit(f"gave up waiting for {what}")
        time.sleep(0.02)
    return found


def victim(client: ClusterClient, job: str, what: str) -> int:
    processes = wait(lambda: client.info()["processes"], "the processes")
    if what == "jobmanager":
        leader = client.job(job)["jobmanager-id"]
        return next(p["pid"] for p in processes if p["id"] == leader)
    held = [s for p in processes for s in p.get("slots", []) if s.get("job_id") == job]
    if what == "slot":
        return held[0]["pid"]
    return next(p["pid"] for p in processes if any(s.get("job_id") == job for s in p.get("slots", [])))


def kill(client: ClusterClient, job: str, folder: Path, what: str) -> dict[str, float]:
    before = client.job(job)
    completed = client.checkpoints(job)["counts"]["completed"]
    pid = victim(client, job, what)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    if what != "jobmanager":
        wait(lambda: client.job(job)["attempt"] > before["attempt"], "the next attempt")
    else:
        wait(lambda: client.job(job)["epoch"] > before["epoch"], "the next master")
    wait(lambda: client.job(job)["status-counts"]["RUNNING"] >= 2, "running tasks")
    cpu = max(
        (
            s["details"].get("cpu_seconds", 0.0)
            for p in client.info()["processes"]
            for s in p.get("slots", [])
        ),
        default=0.0,
    )
    wait(lambda: client.checkpoints(job)["counts"]["completed"] > completed, "a checkpoint after it")
    after = client.job(job)
    times = [t for t in arrivals(folder) if killed - 1 < t]
    gap, start = max((b - a, a) for a, b in itertools.pairwise(times))
    stamps = {k: v / 1000 - killed for k, v in after["timestamps"].items() if v / 1000 > killed}
    # Subtasks that restored state: from INITIALIZING to RUNNING.
    running = [
        s["timestamps"]["RUNNING"] / 1000 - killed
        for v in after["vertices"]
        for s in client.subtask_times(job, v["id"])
        if s["timestamps"].get("RUNNING", 0) / 1000 > killed
    ]
    return {
        "gap": gap, "gap_from": start - killed, **stamps, "restored": max(running, default=0.0), "slot_cpu": cpu,
        "attempt": after["attempt"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--interval", default="10 s")
    parser.add_argument("--what", default="taskmanager", choices=("taskmanager", "slot", "jobmanager"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    wide = args.bytes > 0
    config = {"execution.checkpointing.interval": args.interval, "parallelism.default": "2"}
    config |= dict(pair.split("=", 1) for pair in args.set)
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedCluster(taskmanagers=3, slots=1, jobmanagers=2) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        folder = Path(name)
        sql = SQL.format(
            keys=args.keys, bytes=args.bytes, rate=args.rate, path=folder / "rows",
            payload_column=", payload STRING" if wide else "",
            payload=", MAX(payload)" if wide else ", SUM(`key`)",
            payload_type=", payload STRING" if wide else ", total BIGINT",
        )  # fmt: skip
        job = client.submit({"sql": sql, "config": config})

        def full() -> bool:
            latest = client.checkpoints(job)["latest"]["completed"]
            rows = sum(v["metrics"]["write-records"] for v in client.job(job)["vertices"][1:2])
            return latest is not None and rows >= args.keys

        wait(full, "the state to be filled and checkpointed")
        done = client.checkpoints(job)["counts"]["completed"]
        wait(lambda: client.checkpoints(job)["counts"]["completed"] > done + 1, "a whole checkpoint")
        size = client.checkpoints(job)["latest"]["completed"]["state_size"]
        print(f"{args.keys:,} keys, {size / 1e6:,.0f} MB in the last checkpoint; load {load:.1f}")
        gaps = []
        for n in range(args.kills):
            figures = kill(client, job, folder, args.what)
            gaps.append(figures["gap"])
            text = "  ".join(f"{k} {v:.2f}" for k, v in figures.items())
            print(f"kill {n + 1} of a {args.what}: {text}", flush=True)
        print(f"median gap in the output {median(gaps):.2f} s, longest {max(gaps):.2f} s")
        client.cancel(job)


if __name__ == "__main__":
    main()
