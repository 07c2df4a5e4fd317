"""A job graph for Spark: one node for each operator, with the hidden columns that its output must carry.

The graph has no enumerators and no partitionings: an operator's spec says by which columns its inputs are
keyed. Two hidden columns exist only where a later operator needs them: ``__time``, the records' event time
(DataStream), and ``__arrival``, their order of arrival, which breaks ties as on the streaming engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.graph import JobGraph, OperatorNode
    from penstock.jobgraph.specs import OperatorSpec
    from penstock.types.logical import Schema

TIME = "__time"
ARRIVAL = "__arrival"


@dataclass(eq=False, slots=True)
class Edge:
    """The output of an operator that another one reads; ``tag`` names a side output (None: the main output)."""

    source: Node
    tag: str | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the output."""
        return self.source.output if self.tag is None else self.source.node.side_outputs[self.tag]


@dataclass(eq=False, slots=True)
class Node:
    """An operator. ``inputs[i]``: the producers whose rows together are input i. ``consumers``: (node,
    input). ``wants_time``, ``wants_arrival``: the output must carry the hidden column."""

    node: OperatorNode
    inputs: list[list[Edge]]
    consumers: list[tuple[Node, int]] = field(default_factory=list)
    wants_time: bool = False
    wants_arrival: bool = False

    @property
    def spec(self) -> OperatorSpec:
        """The operator's specification."""
        return self.node.spec

    @property
    def output(self) -> Schema:
        """The columns of the main output."""
        return self.node.output

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.node.name

    def input_schema(self, index: int) -> Schema:
        """The columns of input ``index``."""
        return self.inputs[index][0].schema


def flatten(graph: JobGraph) -> list[Node]:
    """The graph's operators in topological order, enumerators left out."""
    made: dict[tuple[str, int], Node] = {}
    nodes: list[Node] = []
    for vertex in graph.vertices:
        edges = {e.target_gate: e for e in graph.inputs_of(vertex.id)}
        producers: dict[int, list[Edge]] = {}
        for gate, edge in edges.items():
            source = made.get((edge.source, edge.source_operator))
            if source is not None:
                producers.setdefault(gate, []).append(Edge(source, edge.tag))
        for index, operator in enumerate(vertex.operators):
            if isinstance(operator.spec, s.EnumeratorSpec):
                continue
            inputs: list[list[Edge]] = []
            if not isinstance(operator.spec, s.SourceSpec):
                for port in operator.inputs:
                    found: list[Edge] = []
                    for source_input in port:
                        if source_input.gate is not None:
                            found += producers.get(source_input.gate, [])
                        else:
                            assert source_input.operator is not None
                            found.append(Edge(made[vertex.id, source_input.operator], source_input.tag))
                    inputs.append(found)
            node = Node(operator, inputs)
            made[vertex.id, index] = node
            nodes.append(node)
            for i, port_edges in enumerate(inputs):
                for edge_ in port_edges:
                    edge_.source.consumers.append((node, i))
    _mark(nodes)
    return nodes


def _mark(nodes: list[Node]) -> None:
    for node in reversed(nodes):
        for consumer, _ in node.consumers:
            spec = consumer.spec
            node.wants_time |= spec.reads_time() or (consumer.wants_time and spec.passes_time())
            node.wants_arrival |= spec.reads_arrival() or (consumer.wants_arrival and spec.passes_arrival())


def sink_nodes(nodes: Sequence[Node]) -> list[Node]:
    """The sinks in topological order. A sink's index in this list is its number."""
    return [node for node in nodes if isinstance(node.spec, s.SinkSpec)]
