"""Runs jobs in one process for tests: with the real tasks, chains, gates and checkpoints, without a cluster.

``run_graph(graph)`` runs a job graph to its end and gives its rows; ``JobHarness`` lets a
test trigger checkpoints, kill, and restore at another parallelism.

The conformance kits (``SourceConformance`` …) test the plug-ins of other packages: docs/extending.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

#: Name → the module that defines it.
_PLACES = {
    "AggregateConformance": "conformance",
    "BadTable": "conformance",
    "Checkpoint": "results",
    "Conformance": "conformance",
    "Failure": "conformance",
    "FormatConformance": "conformance",
    "GraphBuilder": "graphs",
    "JobHarness": "harness",
    "LeaseStoreConformance": "conformance",
    "LookupConformance": "conformance",
    "ManualClock": "harness",
    "MemoryTable": "memory",
    "MiniCluster": "mini_cluster",
    "MiniJob": "mini_cluster",
    "ObjectStoreConformance": "conformance",
    "OperatorConformance": "operators",
    "ProviderConformance": "conformance",
    "RunResult": "results",
    "ScalarConformance": "conformance",
    "SinkConformance": "conformance",
    "SourceConformance": "conformance",
    "StateBackendConformance": "conformance",
    "TableConformance": "conformance",
    "TableFeed": "mini_cluster",
    "run_graph": "harness",
    "run_kit": "conformance",
    "with_parallelism": "graphs",
}
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


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Loaded when first used: pytest imports this package at every start, for its plugin, also where no
        test uses it."""
        if name not in _PLACES:
            raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
        return getattr(importlib.import_module(f"penstock.testing.{_PLACES[name]}"), name)
