"""Operator graph → job graph: chains (small DAGs) joined by edges.

An operator is chained to its producers over forward edges of equal parallelism. There are two exceptions:
the merge would make a cycle between vertices, or the two chains are also connected by an edge that cannot
become a call (such as a hash edge beside the forward edge).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.graph import (
    ChainInput,
    Forward,
    Global,
    JobEdge,
    JobVertex,
    OperatorNode,
    Partitioning,
    Rebalance,
)
from penstock.jobgraph.identity import vertex_id_of
from penstock.jobgraph.specs import EnumeratorSpec, as_sent
from penstock.plan.graph_check import check_job_graph
from penstock.plan.operator_graph import OperatorInput, PlannedOperator, all_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence


def build_vertices(
    operators: Sequence[PlannedOperator], *, max_parallelism: int, chaining: bool
) -> tuple[tuple[JobVertex, ...], tuple[JobEdge, ...]]:
    """The vertices and edges of the job graph. ``operators`` are in topological order."""
    groups = _Groups(operators)
    if chaining:
        for op in operators:
            for inp in all_inputs(op):
                if _chainable(op, inp):
                    groups.try_merge(inp.source, op)
    vertices, edges = _emit(operators, groups, max_parallelism)
    check_job_graph(operators, vertices, edges, partitioning_of)
    return vertices, edges


def partitioning_of(op: PlannedOperator, inp: OperatorInput) -> Partitioning:
    """The partitioning of an edge; where the plan leaves it open (None), it is chosen here. An operator that
    emits updates sends them to one subtask, in the order in which it made them: if they were spread over
    subtasks, a row's new value could arrive before its old one."""
    if inp.partitioning is not None and not isinstance(inp.partitioning, Forward):
        return inp.partitioning
    if inp.source.parallelism == op.parallelism:
        return Forward()
    updates = inp.tag is None and inp.source.mode != "append"
    return Global() if op.parallelism == 1 or updates else Rebalance()


def _chainable(op: PlannedOperator, inp: OperatorInput) -> bool:
    return (
        isinstance(partitioning_of(op, inp), Forward)
        and op.chain
        and op.slot_sharing_group == inp.source.slot_sharing_group
        and not isinstance(inp.source.spec, EnumeratorSpec)
    )


class _Groups:
    """Groups of operators that share a vertex. A merge of two groups that would close a cycle is refused."""

    def __init__(self, operators: Sequence[PlannedOperator]) -> None:
        self.operators = operators
        self.group = {id(op): i for i, op in enumerate(operators)}

    def of(self, op: PlannedOperator) -> int:
        return self.group[id(op)]

    def try_merge(self, upstream: PlannedOperator, op: PlannedOperator) -> None:
        a, b = self.of(upstream), self.of(op)
        if a == b or not self._all_chainable(a, b) or self._other_path(a, b):
            return
        for one in self.operators:
            if self.of(one) == b:
                self.group[id(one)] = a

    def _all_chainable(self, a: int, b: int) -> bool:
        """Whether each direct edge between the groups may become a call inside one chain."""
        return all(
            _chainable(op, inp)
            for op in self.operators
            for inp in all_inputs(op)
            if {self.of(op), self.of(inp.source)} == {a, b}
        )

    def _other_path(self, a: int, b: int) -> bool:
        """Whether a path leads from a to b through a third group, or any path leads from b back to a."""
        successors: dict[int, set[int]] = {}
        for op in self.operators:
            for inp in all_inputs(op):
                source, target = self.of(inp.source), self.of(op)
                if source != target:
                    successors.setdefault(source, set()).add(target)
        open_groups = [g for g in successors.get(a, ()) if g != b]
        seen: set[int] = set()
        while open_groups:
            group = open_groups.pop()
            if group == b:
                return True
            if group not in seen:
                seen.add(group)
                open_groups += successors.get(group, ())
        # A path back from b to a would close a cycle as well.
        open_groups, seen = list(successors.get(b, ())), set()
        while open_groups:
            group = open_groups.pop()
            if group == a:
                return True
            if group not in seen:
                seen.add(group)
                open_groups += successors.get(group, ())
        return False


def _emit(
    operators: Sequence[PlannedOperator], groups: _Groups, max_parallelism: int
) -> tuple[tuple[JobVertex, ...], tuple[JobEdge, ...]]:
    members: dict[int, list[PlannedOperator]] = {}
    for op in operators:
        members.setdefault(groups.of(op), []).append(op)
    position = {id(op): i for ops in members.values() for i, op in enumerate(ops)}
    ids = {group: vertex_id_of(ops[0].uid) for group, ops in members.items()}
    vertices: list[JobVertex] = []
    edges: list[JobEdge] = []
    for group in _topological(members, groups):
        ops = members[group]
        gates: dict[tuple[int, str | None, Partitioning], int] = {}
        nodes = []
        for op in ops:
            inputs = tuple(
                tuple(_chain_input(op, inp, group, groups, position, gates) for inp in port)
                for port in op.inputs
            )
            nodes.append(
                OperatorNode(
                    uid=op.uid,
                    name=op.name,
                    spec=as_sent(op.spec),
                    inputs=inputs,
                    output=op.output,
                    side_outputs=op.side_outputs,
                    identity=op.identity,
                )
            )
        vertices.append(
            JobVertex(
                id=ids[group],
                name=" -> ".join(op.name for op in ops),
                operators=tuple(nodes),
                parallelism=ops[0].parallelism,
                max_parallelism=max_parallelism,
                slot_sharing_group=ops[0].slot_sharing_group,
            )
        )
        by_id = {id(op): op for op in operators}
        for (source_id, tag, partitioning), gate in gates.items():
            source = by_id[source_id]
            edges.append(
                JobEdge(
                    id=f"{ids[groups.of(source)]}-{ids[group]}-{gate}",
                    source=ids[groups.of(source)],
                    source_operator=position[source_id],
                    tag=tag,
                    target=ids[group],
                    target_gate=gate,
                    partitioning=partitioning,
                    schema=source.side_outputs[tag] if tag is not None else source.output,
                )
            )
    return tuple(vertices), tuple(edges)


def _chain_input(
    op: PlannedOperator,
    inp: OperatorInput,
    group: int,
    groups: _Groups,
    position: dict[int, int],
    gates: dict[tuple[int, str | None, Partitioning], int],
) -> ChainInput:
    partitioning = partitioning_of(op, inp)
    if groups.of(inp.source) == group:
        return ChainInput(operator=position[id(inp.source)], tag=inp.tag)
    # Two operators of a chain that read one output the same way share its gate.
    key = (id(inp.source), inp.tag, partitioning)
    return ChainInput(gate=gates.setdefault(key, len(gates)))


def _topological(members: dict[int, list[PlannedOperator]], groups: _Groups) -> list[int]:
    out: list[int] = []

    def visit(group: int) -> None:
        if group in out:
            return
        for op in members[group]:
            for inp in all_inputs(op):
                source = groups.of(inp.source)
                if source != group:
                    visit(source)
        out.append(group)

    for group in members:
        visit(group)
    return out
