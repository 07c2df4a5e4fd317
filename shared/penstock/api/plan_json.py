"""A job graph as the JSON of Flink's ``get_execution_plan``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.jobgraph import Broadcast, Custom, Forward, Global, Hash, Rebalance, Rescale
from penstock.jobgraph.specs import UnionSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobGraph

#: (vertex id, number of the operator)
_Place = tuple[str, int]
_WAYS = {
    Forward: "FORWARD", Hash: "HASH", Rebalance: "REBALANCE", Rescale: "RESCALE", Broadcast: "BROADCAST",
    Global: "GLOBAL", Custom: "CUSTOM",
}  # fmt: skip


def plan_json(graph: JobGraph) -> str:
    """The steps of ``graph`` in Flink's form. As in Flink, unions and partitionings are not steps but
    properties of the connections."""
    operators = {(v.id, i): op for v in graph.vertices for i, op in enumerate(v.operators)}
    steps = [place for place, op in operators.items() if not isinstance(op.spec, UnionSpec)]
    number = {place: k + 1 for k, place in enumerate(steps)}
    edges = {(e.target, e.target_gate): e for e in graph.edges}

    def before(place: _Place, way: str) -> Iterator[tuple[int, str]]:
        """The steps that feed ``place``, with their ship strategies. ``way``: the strategy between a union
        and the step after it."""
        for port in operators[place].inputs:
            for origin in port:
                if origin.gate is not None:
                    edge = edges[place[0], origin.gate]
                    source, ship = (edge.source, edge.source_operator), _WAYS[type(edge.partitioning)]
                else:
                    assert origin.operator is not None
                    source, ship = (place[0], origin.operator), "FORWARD"
                ship = way if ship == "FORWARD" else ship
                if source in number:
                    yield number[source], ship
                else:
                    yield from before(source, ship)

    parallelism = {v.id: v.parallelism for v in graph.vertices}
    nodes = []
    for place in steps:
        op = operators[place]
        pact = "Data Source" if op.spec.is_source or not op.inputs else "Operator"
        node: dict[str, Any] = {
            "id": number[place],
            "type": op.name,
            "pact": "Data Sink" if op.spec.is_sink else pact,
            "contents": op.name,
            "parallelism": parallelism[place[0]],
        }
        found = [{"id": k, "ship_strategy": ship, "side": "second"} for k, ship in before(place, "FORWARD")]
        if found:
            node["predecessors"] = found
        nodes.append(node)
    return json.dumps({"nodes": nodes}, indent=2)
