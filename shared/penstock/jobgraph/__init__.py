"""The job graph: the contract between the planner and the runtime.

A leaf package below ``plan`` and ``runtime`` (which must not import one another): what
an operator does (``specs``), how vertices and edges connect (``graph``). Plain msgspec.
"""

from penstock.jobgraph.graph import (
    CLASSES,
    Broadcast,
    ChainInput,
    Forward,
    FunctionArtifact,
    Global,
    Hash,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorNode,
    Partitioning,
    Rebalance,
    Rescale,
)

__all__ = [
    "CLASSES",
    "Broadcast",
    "ChainInput",
    "Forward",
    "FunctionArtifact",
    "Global",
    "Hash",
    "JobEdge",
    "JobGraph",
    "JobVertex",
    "OperatorNode",
    "Partitioning",
    "Rebalance",
    "Rescale",
]
