"""``penstock status``: how a cluster or a job is, as one line and as an exit code, for scripts and probes."""

from __future__ import annotations

import json
from typing import Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job

#: Exit codes of ``penstock status JOB``. 1 and 2 are every command's: an error, and wrong usage.
RUNNING, FAILED, CANCELLED, NOT_YET, UNHEALTHY = 0, 3, 4, 5, 6

#: The status of a job, as REST tells it → exit code; every other one is NOT_YET.
_CODES = {"RUNNING": RUNNING, "FINISHED": RUNNING, "FAILED": FAILED, "CANCELED": CANCELLED}


def job_status(job: dict[str, Any]) -> tuple[int, str]:
    """The exit code of a job, as ``GET /jobs/{id}`` describes it, and why, if it is not simply its state."""
    code = _CODES.get(job["state"], NOT_YET)
    if job.get("waiting-for"):
        return NOT_YET, f"waits: {job['waiting-for']}"
    if stalled := job.get("stalled"):
        return UNHEALTHY, "; ".join(f"{', '.join(s['tasks'])} hangs in {s['frame']}" for s in stalled)
    if code == RUNNING and job["state"] == "RUNNING":
        late = [v["name"] for v in job["vertices"] if v["status"] not in ("RUNNING", "FINISHED")]
        if late:
            return NOT_YET, f"not running yet: {', '.join(late)}"
    return code, ""


def cluster_status(overview: dict[str, Any], jobs: list[dict[str, Any]]) -> tuple[int, str]:
    """The exit code of a cluster, and what is wrong with it or what it has."""
    missing = []
    if not overview["resourcemanager"]:
        missing.append("no resource manager leads")
    if not overview["taskmanagers"]:
        missing.append("no task manager is registered")
    waiting = [j["name"] for j in jobs if j["state"] in ("CREATED", "INITIALIZING", "RESTARTING", "FAILING")]
    if waiting:
        missing.append(f"not running yet: {', '.join(sorted(waiting))}")
    if missing:
        return UNHEALTHY, "; ".join(missing)
    free, total = overview["slots-available"], overview["slots-total"]
    managers, running = (
        _counted(overview[key], noun)
        for key, noun in (("taskmanagers", "task manager"), ("jobs-running", "job"))
    )
    return RUNNING, f"{managers}, {free} of {total} slots free, {running} running"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_status(url: str, start: str | None, format_: str) -> int:
    """Print the status of a job, or of the cluster; return the exit code."""
    with ClusterClient(url, patience_s=2) as client:
        if start is None:
            code, text = cluster_status(client.overview(), client.jobs())
            told = {"cluster": url, "healthy": code == RUNNING, "exit-code": code, "reason": text}
            line = f"{'ok' if code == RUNNING else 'not healthy'}: {text}"
        else:
            job = client.job(find_job(client, start))
            code, text = job_status(job)
            told = {"job-id": job["jid"], "name": job["name"], "state": job["state"]}
            told |= {"exit-code": code, "reason": text}
            line = f"{job['name']}  {job['jid']}  {job['state']}" + (f"  {text}" if text else "")
    print(json.dumps(told, indent=2) if format_ == "json" else line)
    return code
