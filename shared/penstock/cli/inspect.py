"""``penstock list``, ``info`` and ``cancel``: show a cluster and its jobs, cancel a job."""

from __future__ import annotations

import json
import time
from typing import Any

from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.checkpoints import restoring
from penstock.cli.jobs import SPARK_STARTS
from penstock.cli.showing import find_job, last_checkpoint, print_table, when


def list_jobs(url: str, format_: str, *, every: bool = False) -> None:
    """Print the jobs of a cluster, newest first. Queries of clients that have ended are left out unless ``every``."""
    with ClusterClient(url, patience_s=2) as client:
        jobs = sorted(client.jobs(), key=lambda j: -j["start-time"])
    # A dispatcher of an earlier version does not say which jobs are queries.
    ended = [j["jid"] for j in jobs if j.get("interactive") and j["state"] in TERMINAL and not every]
    jobs = [j for j in jobs if j["jid"] not in set(ended)]
    if format_ == "json":
        print(json.dumps(jobs, indent=2))
        return
    left_out = f"{len(ended)} {'query' if len(ended) == 1 else 'queries'} that ended: penstock list --all"
    if not jobs:
        print(f"no jobs ({left_out})" if ended else "no jobs")
        return
    rows = [
        [j["jid"], j["name"], j["state"], when(j["start-time"]), f"{j['duration'] / 1000:.1f} s"]
        for j in jobs
    ]
    print_table(["job id", "name", "state", "started", "duration"], rows)
    if ended:
        print(f"({left_out})")


def cancel_job(url: str, start: str, format_: str = "text") -> None:
    """Cancel the job whose id begins with ``start`` and wait until it has ended."""
    with ClusterClient(url, patience_s=2) as client:
        job_id = find_job(client, start)
        client.cancel(job_id)
        while (state := client.job(job_id)["state"]) not in TERMINAL:
            time.sleep(0.05)
    told = {"job-id": job_id, "state": state}
    print(json.dumps(told, indent=2) if format_ == "json" else f"job {job_id}: {state}")


def show_cluster(url: str, format_: str) -> None:
    """Print the processes of a cluster: services and slots."""
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


def show_job(url: str, start: str, format_: str) -> None:
    """Print a job: its state, vertices, checkpoints and last failure."""
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
    """Lines about decisions after failures, newest first: why a job was not restarted, or restored another
    checkpoint."""
    said = []
    for entry in entries:
        if entry.get("notRestarted"):
            said.append(f"not restarted after attempt {entry['attempt']}: {entry['notRestarted']}")
        if entry.get("restoredInstead"):
            said.append(f"restored after attempt {entry['attempt']}: {entry['restoredInstead']}")
    return said
