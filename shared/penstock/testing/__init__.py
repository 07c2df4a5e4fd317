"""Testing jobs in one process: the real tasks, chains, gates and checkpoints, without a
cluster.

``run_graph(graph)`` runs a job graph to its end and gives its rows; ``JobHarness`` lets a
test trigger checkpoints, kill, and restore at another parallelism.
"""

from penstock.testing.graphs import GraphBuilder, with_parallelism
from penstock.testing.harness import Checkpoint, JobHarness, ManualClock, RunResult, run_graph
from penstock.testing.memory import MemoryTable

__all__ = [
    "Checkpoint",
    "GraphBuilder",
    "JobHarness",
    "ManualClock",
    "MemoryTable",
    "RunResult",
    "run_graph",
    "with_parallelism",
]
