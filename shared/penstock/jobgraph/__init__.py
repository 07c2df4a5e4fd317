"""The job graph: what the planner hands to the engines.

A leaf package below ``plan`` and ``runtime``, which must not import one another. ``specs`` says what each
operator does, ``graph`` how vertices and edges connect. All of it is msgspec structs.
"""

from penstock.jobgraph.graph import (
    CLASSES,
    Broadcast,
    ChainInput,
    Custom,
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
    "Custom",
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
