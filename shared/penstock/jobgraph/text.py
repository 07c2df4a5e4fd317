"""A job graph as text: Flink's JSON execution plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.jobgraph.graph import JobGraph


def execution_plan(graph: JobGraph) -> str:
    """``{"nodes": [{"id", "type", "contents", "parallelism", "predecessors": [{"id", "ship_strategy"}]}]}``
    as JSON text, with one node for each vertex."""
    nodes = []
    for vertex in graph.vertices:
        inputs = [e for e in graph.edges if e.target == vertex.id]
        nodes.append(
            {
                "id": vertex.id,
                "type": vertex.name,
                "contents": " -> ".join(operator.name for operator in vertex.operators),
                "parallelism": vertex.parallelism,
                "predecessors": [
                    {"id": e.source, "ship_strategy": type(e.partitioning).__name__.upper()} for e in inputs
                ],
            }
        )
    return json.dumps({"nodes": nodes}, indent=2) + "\n"
