"""The alert rules and the dashboard of ``deploy/``: they name metrics that there are, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from penstock.messages.cluster import (
    CheckpointDetails,
    ClusterOverview,
    JobDetails,
    SubtaskDetails,
    VertexDetails,
)
from penstock.messages.resource_manager import TaskManagerDetails
from penstock.messages.slot import OperatorMetrics, TaskMetrics
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher.active_jobs import ActiveJobs
from penstock_services.dispatcher.metrics import render

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = DEPLOY / "grafana" / "penstock.json"


def published() -> set[str]:
    """The names of all metrics of a cluster with a job that reads a source and keeps state."""
    gauges = {"pendingRecords": 1, "currentEmitEventTimeLag": 2, "stateBytes": 3, "currentInputWatermark": 4}
    operator = OperatorMetrics(uid="u", name="o", gauges=dict(gauges))
    metrics = TaskMetrics(execution_id="e", vertex_id="v", subtask_index=0, operators=(operator,))
    subtask = SubtaskDetails(
        subtask_index=0, execution_id="e", attempt=1, state=ExecutionState.RUNNING,
        metrics=msgspec.to_builtins(metrics),
    )  # fmt: skip
    barrier = {"vertex_id": "v", "subtask_index": 0, "alignment_ms": 1.0, "start_delay_ms": 1.0}
    job = JobDetails(
        job_id="j", name="n", status=JobStatus.RUNNING, attempt=1, epoch=1, start_ms=0,
        vertices=[VertexDetails(id="v", name="v", parallelism=1, max_parallelism=128, subtasks=[subtask])],
        checkpoints=[
            CheckpointDetails(id=1, status="COMPLETED", trigger_timestamp_ms=1, subtasks=[barrier])
        ],
    )  # fmt: skip
    manager = TaskManagerDetails(id="tm", host="h", pid=1, data_port=1, last_heartbeat_ms=1)
    cluster = ClusterOverview(
        taskmanagers=[manager], slots_total=1, slots_free=1, resourcemanager_id="r", epoch=1
    )
    text = render(ActiveJobs([job]), cluster, 9_000, {}).decode()
    return {
        line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")
    }


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda f: f.name)
def test_every_metric_that_is_asked_for_exists(file: Path) -> None:
    asked = set(re.findall(r"\bpenstock_\w+", file.read_text()))
    assert len(asked) > 8
    assert asked - published() == set()


def test_the_dashboards_panels_lie_side_by_side() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24, panel["title"]
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_prometheus_takes_the_rules_and_they_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", "rules.test.yml"]):
        done = subprocess.run([promtool, *words], cwd=RULES.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
