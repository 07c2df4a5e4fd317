"""EXPLAIN: logical plan, physical plan, job graph, modes, state and guarantees as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.graph import Broadcast, Custom, Forward, Global, Hash, Partitioning, Rebalance, Rescale
from penstock.plan import guarantees
from penstock.plan.chaining import partitioning_of
from penstock.plan.notes import notes
from penstock.plan.operator_graph import PlannedOperator, all_inputs
from penstock.plan.rewriting import Interner, walk
from penstock.plan.words import column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.graph import JobEdge, JobVertex
    from penstock.jobgraph.guarantees import ChainGuarantee
    from penstock.plan.changelog import ChangelogModes
    from penstock.plan.node import Node
    from penstock.plan.nodes import LogicalPlan
    from penstock.plan.properties import Analysis
    from penstock.types.logical import Schema


def explain(
    plan: LogicalPlan,
    optimized: LogicalPlan,
    analysis: Analysis,
    modes: ChangelogModes,
    operators: Sequence[PlannedOperator],
    vertices: Sequence[JobVertex],
    edges: Sequence[JobEdge],
    chains: Sequence[ChainGuarantee],
) -> str:
    """The text of EXPLAIN: the logical plan, the optimized plan, the operators, the guarantees and the job graph."""
    final = " (bounded: final rows once)" if analysis.final else ""
    parts = [
        "== Logical Plan ==",
        logical_text(plan),
        "== Optimized Logical Plan ==",
        logical_text(optimized),
        f"== Physical Plan =={final}",
        physical_text(operators),
        *_section("== Notes ==", notes(optimized, operators)),
        *_section("== Guarantees ==", guarantees.text(chains)),
        "== Job Graph ==",
        graph_text(vertices, edges),
    ]
    return "\n".join(parts)


def _section(title: str, text: str) -> list[str]:
    return [title, text] if text else []


# -- logical ----------------------------------------------------------------------------------------


def logical_text(plan: LogicalPlan) -> str:
    """One tree for each sink. A sub-plan that occurs again is referred to by its number."""
    interner = Interner()
    sinks = [interner.intern(s) for s in plan.sinks]
    uses: dict[int, int] = {}
    for node in walk(sinks):
        for child in node.children():
            uses[id(child)] = uses.get(id(child), 0) + 1
    numbers: dict[int, int] = {}
    lines: list[str] = []

    def show(node: Node, depth: int) -> None:
        shared = uses.get(id(node), 0) > 1 and bool(node.children())
        prefix = "  " * depth
        if shared and id(node) in numbers:
            lines.append(f"{prefix}Reused(#{numbers[id(node)]})")
            return
        label = ""
        if shared:
            numbers[id(node)] = len(numbers) + 1
            label = f"#{numbers[id(node)]} "
        lines.append(f"{prefix}{label}{node.explained()}")
        for child in node.children():
            show(child, depth + 1)

    for sink in sinks:
        show(sink, 0)
    return "\n".join(lines) + "\n"


# -- physical ---------------------------------------------------------------------------------------


def physical_text(operators: Sequence[PlannedOperator]) -> str:
    """One line for each operator: number, inputs with their partitioning, mode, state, guarantee."""
    number = {id(op): i + 1 for i, op in enumerate(operators)}
    lines = []
    for op in operators:
        inputs = []
        for inp in all_inputs(op):
            how = partitioning_text(partitioning_of(op, inp), inp.source.output)
            tag = f" '{inp.tag}'" if inp.tag else ""
            inputs.append(f"{how} #{number[id(inp.source)]}{tag}")
        source = f" <- {', '.join(inputs)}" if inputs else ""
        facts = [f"p={op.parallelism}", op.mode]
        if op.keeps:
            facts.append(f"keeps {op.keeps}")
        if op.guarantee:
            facts.append(op.guarantee)
        lines.append(f"#{number[id(op)]} {op.name}{source}  [{'; '.join(facts)}]")
    return "\n".join(lines) + "\n"


def partitioning_text(partitioning: Partitioning, schema: Schema) -> str:
    """The partitioning of an edge in words."""
    match partitioning:
        case Forward():
            return "forward"
        case Hash(keys=keys):
            return f"hash({column_names(keys, schema)})"
        case Rebalance():
            return "rebalance"
        case Rescale():
            return "rescale"
        case Broadcast():
            return "broadcast"
        case Global():
            return "global"
        case Custom():
            return "custom"


def graph_text(vertices: Sequence[JobVertex], edges: Sequence[JobEdge]) -> str:
    """The job graph as text: a line for each vertex and each edge."""
    number = {v.id: i + 1 for i, v in enumerate(vertices)}
    lines = [f"v{number[v.id]} (parallelism {v.parallelism}): {v.name}" for v in vertices]
    for edge in edges:
        how = partitioning_text(edge.partitioning, edge.schema)
        tag = f" '{edge.tag}'" if edge.tag else ""
        lines.append(f"v{number[edge.source]}{tag} -> v{number[edge.target]} gate {edge.target_gate}: {how}")
    return "\n".join(lines) + "\n"
