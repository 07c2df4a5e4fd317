"""``penstock list``, ``info`` and ``cancel``: looking at a cluster."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from typing import Any

from penstock.api.client import TERMINAL, ClusterClient
from penstock.errors import SpecError, nearest


def print_table(headers: list[str], rows: list[list[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, no_wrap=True)
    for row in rows:
        table.add_row(*("" if v is None else str(v) for v in row))
    # Into a pipe nothing is cut off; on a terminal the ids, at least, stay whole.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def when(ms: int | None) -> str:
    if not ms or ms < 0:
        return ""
    return dt.datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def find_job(client: ClusterClient, start: str) -> str:
    """The full id of the one job whose id starts so. SpecError names the nearest."""
    ids = [j["jid"] for j in client.jobs()]
    found = [i for i in ids if i.startswith(start)]
    if len(found) == 1 or start in found:
        return start if start in found else found[0]
    raise SpecError(
        f"{'several jobs start' if found else 'no job starts'} with {start!r}",
        expected="the id of a job, or enough of its start",
        got=", ".join(found) or f"{len(ids)} other jobs",
        remedy=nearest(start, ids) or "'penstock list' shows them",
    )


def list_jobs(url: str, format_: str) -> None:
    with ClusterClient(url, patience_s=2) as client:
        jobs = sorted(client.jobs(), key=lambda j: -j["start-time"])
    if format_ == "json":
        print(json.dumps(jobs, indent=2))
        return
    if not jobs:
        print("no jobs")
        return
    rows = [
        [j["jid"], j["name"], j["state"], when(j["start-time"]), f"{j['duration'] / 1000:.1f} s"]
        for j in jobs
    ]
    print_table(["job id", "name", "state", "started", "duration"], rows)


def cancel_job(url: str, start: str) -> None:
    with ClusterClient(url, patience_s=2) as client:
        job_id = find_job(client, start)
        client.cancel(job_id)
        while (state := client.job(job_id)["state"]) not in TERMINAL:
            time.sleep(0.05)
    print(f"job {job_id}: {state}")


def show_cluster(url: str, format_: str) -> None:
    with ClusterClient(url, patience_s=2) as client:
        info = client.info()
    if format_ == "json":
        print(json.dumps(info, indent=2))
        return
    rows: list[list[Any]] = []
    for process in info["processes"]:
        rows.append(
            [
                process["role"],
                process["id"],
                process.get("pid"),
                process.get("host"),
                process.get("state", ""),
            ]
        )
        for slot in process.get("slots", []):
            job = f"{slot['state']}" + (f"  job {slot['job_id']}" if slot.get("job_id") else "")
            rows.append([f"  slot {slot['index']}", slot.get("allocation_id"), slot.get("pid"), "", job])
    print_table(["role", "id", "pid", "host", "state"], rows)


def last_checkpoint(checkpoint: dict[str, Any]) -> str:
    """``checkpoint 7 COMPLETED, 12.3 MB, slowest: Sum (2/4) writing its state, 840 ms``"""
    text = f"{checkpoint['checkpoint_type'].lower()} {checkpoint['id']} {checkpoint['status']}"
    text += f", {checkpoint['state_size'] / 1e6:,.1f} MB"
    slowest = checkpoint.get("slowest")
    if slowest:
        text += f", slowest: {slowest['operator']} {slowest['phase']}, {slowest['ms']:,} ms"
    return text + (f"; {checkpoint['failure_message']}" if checkpoint.get("failure_message") else "")


def show_job(url: str, start: str, format_: str) -> None:
    from penstock.cli.checkpoints import restoring
    from penstock.cli.jobs import SPARK_STARTS

    with ClusterClient(url, patience_s=2) as client:
        job = client.job(find_job(client, start))
        checkpoints = client.checkpoints(job["jid"])
        exceptions = client.exceptions(job["jid"])
    if format_ == "json":
        print(json.dumps({"job": job, "checkpoints": checkpoints, "exceptions": exceptions}, indent=2))
        return
    print(f"{job['name']}  {job['jid']}  {job['state']}  (started {when(job['start-time'])})")
    if job.get("waiting-for"):
        print(f"waits: {job['waiting-for']}")
    if (job.get("spark") or {}).get("starting") and job["state"] not in TERMINAL:
        print(f"waits: {SPARK_STARTS}")
    if progress := restoring(job["vertices"]):
        print(progress)
    for slot in job.get("stalled", []):
        print(f"hangs: {', '.join(slot['tasks'])} on {slot['taskmanager_id']}, in {slot['frame']}")
    rows = [
        [
            v["name"][:60], v["parallelism"], v["status"],
            v.get("metrics", {}).get("read-records"), v.get("metrics", {}).get("write-records"),
        ]
        for v in job["vertices"]
    ]  # fmt: skip
    print_table(["vertex", "parallelism", "status", "records in", "records out"], rows)
    counts = checkpoints.get("counts", {})
    print("checkpoints: " + ", ".join(f"{v} {k}" for k, v in counts.items()))
    for checkpoint in checkpoints.get("history", [])[:1]:
        print(last_checkpoint(checkpoint))
    if exceptions.get("root-exception"):
        print(f"last failure:\n{exceptions['root-exception']}")
        for line in decisions(exceptions["exceptionHistory"]["entries"]):
            print(line)


def decisions(entries: list[dict[str, Any]]) -> list[str]:
    """What was decided after failures (the newest first), of those where it needs a word."""
    said = []
    for entry in entries:
        if entry.get("notRestarted"):
            said.append(f"not restarted after attempt {entry['attempt']}: {entry['notRestarted']}")
        if entry.get("restoredInstead"):
            said.append(f"restored after attempt {entry['attempt']}: {entry['restoredInstead']}")
    return said
