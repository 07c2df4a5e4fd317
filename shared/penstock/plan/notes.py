"""EXPLAIN's notes on the optimizer's decisions (pushed down, reused, bounded, split, fetched late), and
EXPLAIN's warnings about cross products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plan.operator_graph import all_inputs
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.nodes import LogicalPlan
    from penstock.plan.operator_graph import PlannedOperator


def notes(optimized: LogicalPlan, operators: Sequence[PlannedOperator]) -> str:
    """One line for each decision; numbers are those of the physical plan."""
    number = {id(op): i + 1 for i, op in enumerate(operators)}
    nodes, known = walk(optimized.sinks), Analysis()
    lines = [f"warning: {text}" for node in nodes for text in node.warnings(known)]
    lines += dict.fromkeys(text for node in nodes if (text := node.pushed_words()))
    lines += _reused(operators, number)
    for op in operators:
        at = f"#{number[id(op)]} {op.name}"
        lines += [f"{what} {at}: {text}" for what, text in op.notes]
    return "\n".join(lines) + "\n" if lines else ""


def _reused(operators: Sequence[PlannedOperator], number: dict[int, int]) -> Iterator[str]:
    readers: dict[int, list[int]] = {}
    for op in operators:
        for inp in all_inputs(op):
            if inp.tag is None:
                readers.setdefault(id(inp.source), []).append(number[id(op)])
    for op in operators:
        found = sorted(set(readers.get(id(op), [])))
        if len(found) > 1:
            yield f"reused #{number[id(op)]} {op.name}: read by " + ", ".join(f"#{i}" for i in found)
