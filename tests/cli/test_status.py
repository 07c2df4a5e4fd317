"""``penstock status``: which exit code a job or a cluster has, and why."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.status import CANCELLED, FAILED, NOT_YET, RUNNING, UNHEALTHY, cluster_status, job_status


def job(state: str, vertices: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "state": state,
        "vertices": [{"name": f"v{i}", "status": s} for i, s in enumerate(vertices)],
        **more,
    }


@pytest.mark.parametrize(
    ("told", "code", "why"),
    [
        (job("RUNNING", ("RUNNING", "FINISHED")), RUNNING, ""),
        (job("RUNNING", ("RUNNING", "DEPLOYING")), NOT_YET, "not running yet: v1"),
        (job("RUNNING", ("RUNNING",), stalled=[{"tasks": ["map"], "frame": "a.py:3"}]), UNHEALTHY, "map hangs in a.py:3"),
        (job("CREATED", ("CREATED",), **{"waiting-for": "2 slots"}), NOT_YET, "waits: 2 slots"),
        (job("RESTARTING", ("FAILED",)), NOT_YET, ""),
        (job("FINISHED", ("FINISHED",)), RUNNING, ""),
        (job("FAILED", ("FAILED",)), FAILED, ""),
        (job("CANCELED", ("CANCELED",)), CANCELLED, ""),
    ],
)  # fmt: skip
def test_a_jobs_exit_code(told: dict[str, Any], code: int, why: str) -> None:
    assert job_status(told) == (code, why)


def cluster(**changed: Any) -> dict[str, Any]:
    base = {
        "resourcemanager": True,
        "taskmanagers": 1,
        "slots-available": 3,
        "slots-total": 4,
        "jobs-running": 2,
    }
    return {**base, **changed}


@pytest.mark.parametrize(
    ("overview", "states", "code", "why"),
    [
        (cluster(), ["RUNNING", "FINISHED"], RUNNING, "1 task manager, 3 of 4 slots free, 2 jobs running"),
        (cluster(taskmanagers=0), [], UNHEALTHY, "no task manager is registered"),
        (cluster(resourcemanager=False), [], UNHEALTHY, "no resource manager leads"),
        (cluster(), ["RUNNING", "RESTARTING"], UNHEALTHY, "not running yet: j1"),
    ],
)
def test_a_clusters_exit_code(overview: dict[str, Any], states: list[str], code: int, why: str) -> None:
    jobs = [{"name": f"j{i}", "state": state} for i, state in enumerate(states)]
    assert cluster_status(overview, jobs) == (code, why)
