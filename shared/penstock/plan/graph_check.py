"""Checks that a job graph equals the physical plan: every edge, its partitioning, its rows' distribution.

The check is linear in the number of operators, so the planner checks every job graph that it makes. A
difference is a mistake in Penstock that could give wrong rows: the planner refuses such a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.jobgraph.graph import Forward, Rebalance, Rescale
from penstock.plan.distribution import Distributions, input_schema, meets, required_keys
from penstock.plan.operator_graph import all_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.graph import ChainInput, JobEdge, JobVertex
    from penstock.plan.distribution import PartitioningOf
    from penstock.plan.operator_graph import OperatorInput, PlannedOperator

REMEDY = "this is a mistake of Penstock's: report it with the statement; nothing was started"


def check_job_graph(
    operators: Sequence[PlannedOperator],
    vertices: Sequence[JobVertex],
    edges: Sequence[JobEdge],
    partitioning_of: PartitioningOf,
) -> None:
    """Raises InternalError if the graph differs from the operators, or if an operator's rows are not spread
    over the subtasks as its state needs."""
    _Check(operators, vertices, edges, partitioning_of).run()
    distributions = Distributions(partitioning_of)
    for op in operators:
        check_distribution(op, distributions, partitioning_of)


def check_distribution(
    op: PlannedOperator, distributions: Distributions, partitioning_of: PartitioningOf
) -> None:
    """Raises InternalError if rows that an operator must see together may reach different subtasks, or if
    one update may overtake another."""
    for inp in all_inputs(op):
        partitioning = partitioning_of(op, inp)
        updates = inp.tag is None and inp.source.mode != "append"
        # A partitioning that the user named is allowed: a DataStream program may call ``rebalance()`` on a
        # changelog.
        if inp.partitioning is None and updates and isinstance(partitioning, Rebalance | Rescale):
            raise InternalError(
                "updates of one row would be spread over several subtasks",
                expected="a hash, forward or global edge",
                got=f"{type(partitioning).__name__.lower()} behind '{inp.source.name}' ({inp.source.mode})",
                where=f"operator '{op.name}'",
                remedy=REMEDY,
            )
    if not meets(op, distributions):
        ports = [sorted(distributions.port(op, i)) for i in range(len(op.inputs))]
        raise InternalError(
            "rows that an operator must see together may reach different subtasks",
            expected=f"inputs spread by columns of {required_keys(op)}",
            got=f"{ports} at parallelism {op.parallelism}",
            where=f"operator '{op.name}'",
            remedy=REMEDY,
        )


class _Check:
    def __init__(
        self,
        operators: Sequence[PlannedOperator],
        vertices: Sequence[JobVertex],
        edges: Sequence[JobEdge],
        partitioning_of: PartitioningOf,
    ) -> None:
        self.operators = operators
        self.vertices = vertices
        self.partitioning_of = partitioning_of
        self.gates = {(e.target, e.target_gate): e for e in edges}
        self.edges = edges
        #: uid → (vertex, position in it)
        self.at: dict[str, tuple[JobVertex, int]] = {}
        self.used: set[tuple[str, int]] = set()

    def run(self) -> None:
        order: dict[str, int] = {}
        for rank, vertex in enumerate(self.vertices):
            order[vertex.id] = rank
            for position, node in enumerate(vertex.operators):
                self.at[node.uid] = (vertex, position)
        nodes = sum(len(v.operators) for v in self.vertices)
        if not (len(order) == len(self.vertices) and len(self.at) == nodes == len(self.operators)):
            raise InternalError(
                "the job graph has other operators than the plan, or two of one uid",
                expected=f"{len(self.operators)} operators",
                got=f"{nodes} operators with {len(self.at)} uids in {len(order)} vertices",
                remedy=REMEDY,
            )
        for op in self.operators:
            self._operator(op)
        for edge in self.edges:
            if (edge.target, edge.target_gate) not in self.used or len(self.gates) != len(self.edges):
                raise InternalError(f"edge {edge.id} of the job graph is none of the plan", remedy=REMEDY)
            if order[edge.source] >= order[edge.target]:
                raise InternalError(f"edge {edge.id} closes a cycle of vertices", remedy=REMEDY)

    def _operator(self, op: PlannedOperator) -> None:
        if op.uid not in self.at:
            raise InternalError(f"operator '{op.name}' of the plan is not in the job graph", remedy=REMEDY)
        vertex, position = self.at[op.uid]
        node = vertex.operators[position]
        same = (
            (node.spec is op.spec or node.spec.own() == op.spec)
            and vertex.parallelism == op.parallelism
            and vertex.slot_sharing_group == op.slot_sharing_group
            and node.output == op.output
            and [len(port) for port in node.inputs] == [len(port) for port in op.inputs]
        )
        if not same:
            raise InternalError(
                f"operator '{op.name}' of the job graph is not the plan's",
                expected=f"parallelism {op.parallelism}, {[len(p) for p in op.inputs]} producers per input",
                got=f"parallelism {vertex.parallelism}, {[len(p) for p in node.inputs]} producers per input",
                remedy=REMEDY,
            )
        for planned, made in zip(op.inputs, node.inputs, strict=True):
            for inp, where in zip(planned, made, strict=True):
                wrong = self._input(op, inp, vertex, position, where)
                if wrong:
                    partitioning = type(self.partitioning_of(op, inp)).__name__.lower()
                    raise InternalError(
                        "the job graph lost an edge of the plan",
                        expected=f"{partitioning} from '{inp.source.name}' (uid {inp.source.uid})",
                        got=wrong,
                        where=f"operator '{op.name}' (uid {op.uid})",
                        remedy=REMEDY,
                    )

    def _input(
        self, op: PlannedOperator, inp: OperatorInput, vertex: JobVertex, position: int, made: ChainInput
    ) -> str:
        """The mistake in an input, in words; empty if the input is right."""
        wanted = self.partitioning_of(op, inp)
        source_vertex, source_position = self.at[inp.source.uid]
        if made.gate is None:
            if source_vertex is not vertex or (made.operator, made.tag) != (source_position, inp.tag):
                return f"operator {made.operator} of its own chain"
            if source_position >= position:
                return "an operator behind it in its chain"
            forward = isinstance(wanted, Forward) and inp.source.parallelism == op.parallelism
            return "" if forward and op.chain else "a chain"
        edge = self.gates.get((vertex.id, made.gate))
        if edge is None:
            return f"gate {made.gate}, to which no edge leads"
        self.used.add((vertex.id, made.gate))
        if (edge.source, edge.source_operator, edge.tag) != (source_vertex.id, source_position, inp.tag):
            return f"an edge from operator {edge.source_operator} of vertex {edge.source}"
        if edge.partitioning != wanted:
            return f"a {type(edge.partitioning).__name__.lower()} edge {edge.partitioning}"
        if isinstance(wanted, Forward) and source_vertex.parallelism != vertex.parallelism:
            return f"a forward edge from parallelism {source_vertex.parallelism} to {vertex.parallelism}"
        return "" if edge.schema == input_schema(inp) else f"an edge of {edge.schema}"
