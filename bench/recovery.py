"""SIGKILL of a task manager, to the first rows that come out again, and where the time goes.

A keyed aggregate at parallelism 2 over two task managers, with a third one idle; its state
is filled, a checkpoint completes, rows go on at a pace; then one task manager is killed.
Two shapes of state: 1 million keys × 1 KiB, and 30 million × 40 bytes (a BIGINT key, three
cells of 8 bytes, and the rows counted).

    python -m bench.recovery [--shape wide|deep] [--keys N] [--kills 3] [--what taskmanager]

On two quiet cores wide takes 2 minutes, deep 4. Wall time is what counts: run it alone.
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
from typing import Any

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster

SQL = """
CREATE TABLE rows_in (`key` BIGINT{payload_column}) WITH (
  'connector' = 'python:bench.recovery_connector:Fill',
  'keys' = '{keys}', 'bytes' = '{bytes}', 'rate' = '{rate}', 'readers' = '2');
CREATE TABLE rows_out (`key` BIGINT, n BIGINT{payload_type}) WITH (
  'connector' = 'python:bench.recovery_connector:Arrivals', 'path' = '{path}');
INSERT INTO rows_out SELECT `key`, COUNT(*){payload} FROM rows_in GROUP BY `key`;
"""
#: Keys, bytes of a payload, seconds without output that are aimed at.
SHAPES = {"wide": (1_000_000, 1024, 2.0), "deep": (30_000_000, 0, 5.0)}


def arrivals(folder: Path) -> list[float]:
    return sorted(float(line) for f in folder.glob("rows-*") for line in f.read_text().split())


def wait(condition, what: str, limit_s: float = 1800.0):
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


def slot_cpu_s(client: ClusterClient) -> float:
    """Of the slot that used most."""
    slots = [s for p in client.info()["processes"] for s in p.get("slots", [])]
    return max((s["details"].get("cpu_seconds", 0.0) for s in slots), default=0.0)


def kill(client: ClusterClient, job: str, folder: Path, what: str) -> tuple[float, str]:
    """The gap in the output, and a line that says what was in it."""
    before = client.job(job)
    completed = client.checkpoints(job)["counts"]["completed"]
    pid = victim(client, job, what)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    changed = "epoch" if what == "jobmanager" else "attempt"
    wait(lambda: client.job(job)[changed] > before[changed], "the next attempt")
    wait(lambda: client.job(job)["status-counts"]["RUNNING"] >= 2, "running tasks")
    cpu = slot_cpu_s(client)
    wait(lambda: client.checkpoints(job)["counts"]["completed"] > completed, "a checkpoint after it")
    times = [t for t in arrivals(folder) if killed - 1 < t]
    gap, start = max((b - a, a) for a, b in itertools.pairwise(times))
    if what == "jobmanager":
        return gap, f"gap {gap:.2f}"
    after = client.job(job)
    steps = {"detected": after["timestamps"].get("RESTARTING", 0) / 1000 - killed}
    steps |= _subtasks(client, job, after, killed)
    steps["rows again"] = start + gap - killed
    text = "  ".join(f"{name} {value:.2f}" for name, value in steps.items())
    return gap, f"gap {gap:.2f}: {text}  (CPU of a slot so far {cpu:.2f})"


def _subtasks(client: ClusterClient, job: str, details: dict[str, Any], killed: float) -> dict[str, float]:
    """Seconds after the kill, of the last subtask each; and how long reading and loading took."""
    last: dict[str, float] = {}
    took: dict[str, float] = {}
    for vertex in details["vertices"]:
        for subtask in client.subtask_times(job, vertex["id"]):
            for state in ("INITIALIZING", "RUNNING"):
                at = subtask["timestamps"].get(state, 0) / 1000 - killed
                last[state] = max(last.get(state, 0.0), at)
        for name, value in client.vertex_metrics(job, vertex["id"]).items():
            for metric, label in (("restoreReadMs", "read in"), ("restoreLoadMs", "loaded in")):
                if name.partition(".")[2] == metric:
                    took[label] = max(took.get(label, 0.0), float(value) / 1000)
    return {"deployed": last["INITIALIZING"], **took, "running": last["RUNNING"]}


def measure(shape: str, args: argparse.Namespace, config: dict[str, str]) -> None:
    keys, payload_bytes, aim_s = SHAPES[shape]
    keys = args.keys or keys
    wide = payload_bytes > 0
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedCluster(taskmanagers=3, slots=1, jobmanagers=2) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        folder = Path(name)
        sql = SQL.format(
            keys=keys, bytes=payload_bytes, rate=args.rate, path=folder / "rows",
            payload_column=", payload STRING" if wide else "",
            payload=", MAX(payload)" if wide else ", SUM(`key`)",
            payload_type=", payload STRING" if wide else ", total BIGINT",
        )  # fmt: skip
        job = client.submit({"sql": sql, "config": config})

        def full() -> bool:
            latest = client.checkpoints(job)["latest"]["completed"]
            rows = sum(v["metrics"]["write-records"] for v in client.job(job)["vertices"][1:2])
            return latest is not None and rows >= keys

        wait(full, "the state to be filled and checkpointed")
        done = client.checkpoints(job)["counts"]["completed"]
        wait(lambda: client.checkpoints(job)["counts"]["completed"] > done + 1, "a whole checkpoint")
        size = client.checkpoints(job)["latest"]["completed"]["state_size"]
        print(f"\n{shape}: {keys:,} keys, {size / 1e6:,.0f} MB in the last checkpoint", flush=True)
        gaps = []
        for n in range(args.kills):
            gap, text = kill(client, job, folder, args.what)
            gaps.append(gap)
            print(f"  kill {n + 1} of a {args.what}: {text}", flush=True)
        print(
            f"  median gap in the output {median(gaps):.2f} s, longest {max(gaps):.2f} s (aim: {aim_s:.0f} s)"
        )
        client.checkpoint(job, full=True)
        size = client.checkpoints(job)["latest"]["completed"]["state_size"]
        print(f"  a whole checkpoint after them: {size / 1e6:,.0f} MB", flush=True)
        client.cancel(job)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=tuple(SHAPES), help="only this one")
    parser.add_argument("--keys", type=int, help="instead of the shape's own number")
    parser.add_argument("--rate", type=int, default=2_000, help="rows a second once it is filled")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--interval", default="10 s", help="of checkpoints")
    parser.add_argument("--what", default="taskmanager", choices=("taskmanager", "slot", "jobmanager"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    config = {
        "execution.checkpointing.interval": args.interval,
        "parallelism.default": "2",
        "state.backend.local-recovery": "true",
    }
    config |= dict(pair.split("=", 1) for pair in args.set)
    print(f"load before {os.getloadavg()[0]:.1f}")
    for shape in [args.shape] if args.shape else SHAPES:
        measure(shape, args, config)


if __name__ == "__main__":
    main()
