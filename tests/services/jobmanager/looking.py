"""What the tests of a job master look at, and the configuration that most of them have."""

from __future__ import annotations

from penstock.messages.states import ExecutionState
from tests.services.jobmanager.simulated import Cluster

FAST = {
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.tolerable-failed-checkpoints": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100000",
    "restart-strategy.fixed-delay.delay": "50 ms",
}


def running(cluster: Cluster) -> bool:
    return cluster.core.graph.count(ExecutionState.RUNNING) == len(cluster.core.graph)


def of(cluster: Cluster, kind: type) -> list:
    return [entry for entry in cluster.log if isinstance(entry, kind)]
