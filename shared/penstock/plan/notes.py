"""What the planner did for speed, for EXPLAIN: pushed down, reused, bounded, split, fetched late; and
what it could do nothing about: cross products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import input_refs
from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.plan.operators import all_inputs
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import walk
from penstock.types.durations import shifted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.operators import PlannedOperator
    from penstock.types.logical import Schema


def notes(optimized: n.LogicalPlan, operators: Sequence[PlannedOperator]) -> str:
    """One line a decision; numbers are those of the physical plan."""
    number = {id(op): i + 1 for i, op in enumerate(operators)}
    lines = [*_crossed(optimized), *_pushed(optimized), *_reused(operators, number)]
    for op in operators:
        at = f"#{number[id(op)]} {op.name}"
        lines += [f"{what} {at}: {text}" for what, text in _of(op)]
    return "\n".join(lines) + "\n" if lines else ""


def _crossed(plan: n.LogicalPlan) -> Iterator[str]:
    """Joins of every row with every row, but where one side is a single row."""
    known = Analysis()
    for node in walk(plan.sinks):
        if not isinstance(node, n.Join) or node.left_keys or node.window or node.interval:
            continue
        if any(frozenset() in known.of(side).unique for side in n.inputs_of(node)):
            continue
        width = len(node.left.schema)
        columns = input_refs(node.condition) if node.condition is not None else set[int]()
        if columns and min(columns) < width <= max(columns):
            continue
        if node.kind in ("inner", "left", "right", "full"):
            left, right = (", ".join(side.schema.names[:3]) for side in n.inputs_of(node))
            yield (
                f"warning: cross product, Join({node.kind}): no condition connects ({left}, …) with ({right}, …), "
                "so every row meets every row; add an equality between them"
            )


def _pushed(plan: n.LogicalPlan) -> Iterator[str]:
    seen: set[str] = set()
    for node in walk(plan.sinks):
        if not isinstance(node, n.Scan):
            continue
        table = node.table
        parts = [f"{key} = {value}" for key, value in sorted(node.pushed.items())]
        if len(node.schema) < len(table.schema):
            parts.append("only " + ", ".join(node.schema.names))
        line = f"pushed down into {table.name}: " + "; ".join(parts)
        if parts and line not in seen:
            seen.add(line)
            yield line


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


def _of(op: PlannedOperator) -> Iterator[tuple[str, str]]:
    spec = op.spec
    match spec:
        case s.JoinSpec(interval=(a, b, low, high)):
            left, right = (i.source.output for group in op.inputs for i in group[:1])
            span = f"{shifted(left.names[a], low)} to {shifted(left.names[a], high)}"
            yield "bounded", f"right {right.names[b]} between left {span}; the watermark drops what is past"
        case s.WindowMaximumSpec():
            yield "bounded", "rows below a value seen in their window are dropped where they are made"
        case s.WindowJoinSpec():
            yield "bounded", "both sides are dropped when their window ends"
        case s.WindowAggregateSpec(phase="local") | s.GroupAggregateSpec(phase="local"):
            yield "split", "summed up before the exchange, merged behind it"
        case s.DeduplicateSpec(time=time) if time is not None:
            yield "recognised", f"ROW_NUMBER() = 1 by time is the {spec.keep} row per key"
        case s.TopNSpec():
            if spec.window is not None:
                yield "bounded", "the first rows of a window are dropped when it ends"
    late = list(_late(op))
    if late:
        yield "fetched late", f"{', '.join(late)}: kept beside the index, read only for rows that leave"


def _late(op: PlannedOperator) -> Iterator[str]:
    """Columns that an operator with rows in its state never looks at."""
    spec = op.spec
    inputs: list[Schema] = [group[0].source.output for group in op.inputs if group]
    match spec:
        case s.JoinSpec():
            width = len(inputs[0])
            used = {*spec.left_keys, *(width + k for k in spec.right_keys)}
            used |= input_refs(spec.condition) if spec.condition is not None else set()
            if spec.interval is not None:
                used |= {spec.interval[0], width + spec.interval[1]}
            names = [*inputs[0].names, *(f"right {x}" for x in inputs[1].names)]
            if spec.kind in ("semi", "anti"):
                names = names[:width]
        case s.TopNSpec():
            names = inputs[0].names
            used = {*spec.partition, *(k.index for k in spec.order), *(spec.window or ())}
        case s.DeduplicateSpec():
            names = inputs[0].names
            used = {*spec.keys, *((spec.time,) if spec.time is not None else ()), *(spec.window or ())}
        case _:
            return
    yield from (name for i, name in enumerate(names) if i not in used)
