"""Aggregation per key and window, in one phase or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.jobgraph import specs as s
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.operators.aggregate.partials import partials, splits
from penstock.plan.operators.aggregate.physical import SUMMED_BEFORE
from penstock.plan.operators.side_output.node import SideOutput
from penstock.plan.rewriting import walk
from penstock.plan.state_size import about, aggregates_bytes
from penstock.types.durations import duration_text
from penstock.types.logical import BigIntType, Field

if TYPE_CHECKING:
    from penstock.plan.node import Node
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.window_aggregate.node import WindowAggregate
    from penstock.plan.translation import Translator


def window_aggregate(tr: Translator, node: WindowAggregate) -> PlannedOperator:
    """The operators of a window aggregate, in one phase or two."""
    inp = tr.visit(node.input)
    types = node.input.schema.types
    fields: dict[str, Any] = {
        "window": node.window,
        "aggregates": node.aggregates,
        "window_columns": node.window_columns,
        "windowed_input": node.windowed_input,
        "allowed_lateness_us": node.allowed_lateness_us,
        "retracts": tr.analysis.of(node.input).updating,
    }
    size, growing = aggregates_bytes([types[k] for k in node.keys], node.aggregates, types)
    kept = f"{_window_words(node.window)} ({about(size + 8, 'key and window')}{growing})"
    late = {node.late_tag: node.input.schema} if node.late_tag else {}
    keys = tuple(range(len(node.keys)))
    if _two_phases(tr, node):
        partial = partials(node, (Field("$pane_end", BigIntType(nullable=False)),))
        local = tr.add(
            node,
            "local-window-aggregate",
            f"LocalWindowAggregate({node.window.kind})",
            s.WindowAggregateSpec(phase="local", keys=node.keys, late_tag=node.late_tag, **fields),
            [inp],
            output=partial,
            side_outputs=late,
            mode="append",
            notes=(SUMMED_BEFORE,),
        )
        source, parallelism = tr.keyed(OperatorInput(local), keys)
        spec = s.WindowAggregateSpec(
            phase="global", keys=keys, local_types=tuple(types), **{**fields, "retracts": False}
        )
        op = tr.add(
            node, "window-aggregate", f"GlobalWindowAggregate({node.window.kind})", spec, [source],
            parallelism=parallelism, hashed=keys, keeps=kept,
        )  # fmt: skip
        if node.late_tag:
            # The local phase tests for late rows, so the side output is the local phase's.
            for consumer in _late_consumers(tr, node):
                tr.memo[id(consumer)] = OperatorInput(local, None, node.late_tag)
        return op
    source, parallelism = tr.keyed(inp, node.keys)
    spec = s.WindowAggregateSpec(phase="single", keys=node.keys, late_tag=node.late_tag, **fields)
    return tr.add(
        node, "window-aggregate", f"WindowAggregate({node.window.kind})", spec, [source],
        parallelism=parallelism, hashed=keys, keeps=kept, side_outputs=late,
    )  # fmt: skip


def _late_consumers(tr: Translator, node: WindowAggregate) -> list[Node]:
    return [x for x in walk(tr.sinks) if isinstance(x, SideOutput) and x.input is node]


def _two_phases(tr: Translator, node: WindowAggregate) -> bool:
    """Whether a local phase pays: rows would cross an exchange, and can be combined before it."""
    if node.window.time is None or node.windowed_input or node.allowed_lateness_us:
        return False
    if node.window.kind not in ("tumble", "hop", "cumulate") or tr.parallelism == 1:
        return False
    if tr.analysis.of(node.input).updating:
        return False
    return splits(node)


def _window_words(window: s.WindowSpec) -> str:
    if window.kind == "session":
        return f"one row per key and open session, until {duration_text(window.gap_us)} without rows"
    panes = f"pane of {duration_text(window.slide_us)}" if window.kind == "hop" else "window"
    return f"one row per key and {panes}, until the watermark passes its window ({duration_text(window.size_us)})"
