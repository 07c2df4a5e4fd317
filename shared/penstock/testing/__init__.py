"""Runs jobs in one process for tests: with the real tasks, chains, gates and checkpoints, without a cluster.

``run_graph(graph)`` runs a job graph to its end and gives its rows; ``JobHarness`` lets a
test trigger checkpoints, kill, and restore at another parallelism.

The conformance kits (``SourceConformance`` …) test the plug-ins of other packages: docs/extending.
"""

from penstock.testing.conformance import (
    AggregateConformance,
    BadTable,
    Conformance,
    Failure,
    FormatConformance,
    LeaseStoreConformance,
    LookupConformance,
    ObjectStoreConformance,
    ProviderConformance,
    ScalarConformance,
    SinkConformance,
    SourceConformance,
    StateBackendConformance,
    TableConformance,
    run_kit,
)
from penstock.testing.graphs import GraphBuilder, with_parallelism
from penstock.testing.harness import JobHarness, ManualClock, run_graph
from penstock.testing.memory import MemoryTable
from penstock.testing.mini_cluster import MiniCluster, MiniJob, TableFeed
from penstock.testing.operators import OperatorConformance
from penstock.testing.results import Checkpoint, RunResult

__all__ = [
    "AggregateConformance",
    "BadTable",
    "Checkpoint",
    "Conformance",
    "Failure",
    "FormatConformance",
    "GraphBuilder",
    "JobHarness",
    "LeaseStoreConformance",
    "LookupConformance",
    "ManualClock",
    "MemoryTable",
    "MiniCluster",
    "MiniJob",
    "ObjectStoreConformance",
    "OperatorConformance",
    "ProviderConformance",
    "RunResult",
    "ScalarConformance",
    "SinkConformance",
    "SourceConformance",
    "StateBackendConformance",
    "TableConformance",
    "TableFeed",
    "run_graph",
    "run_kit",
    "with_parallelism",
]
