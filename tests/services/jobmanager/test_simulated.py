"""A simulated cluster is a function of its seed: what it found can be found again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

#: Prints what a master decided in runs with every fault, a region's restarts among them.
RUNS = """
from tests.services.jobmanager.graphs import pipeline, two_pipelines
from tests.services.jobmanager.simulated import Cluster, Faults

faults = Faults(
    task_failure=0.02, slot_lost=0.01, taskmanager_lost=0.005, decline=0.03, duplicate=0.2,
    store=0.1, lost_command=0.05, master_lost=0.01,
)
config = {"execution.checkpointing.interval": "300 ms"}
for seed in range(6):
    graph = two_pipelines(2) if seed % 2 else pipeline()
    cluster = Cluster(graph, seed=seed, faults=faults, taskmanagers=3, slots=2, config=config)
    cluster.run()
    print(cluster.now_ms, cluster.random.random(), cluster.log, [c.message.command_id for c in cluster.sent])
"""


def test_a_seed_is_one_run_whatever_the_hashes_of_the_process_are():
    runs = [
        subprocess.run(
            [sys.executable, "-c", RUNS],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(runs[0].splitlines()) == 6
    assert runs[0] == runs[1]
