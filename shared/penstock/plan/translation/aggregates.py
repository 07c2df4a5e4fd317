"""Grouped and windowed aggregation, in one phase or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.functions.accumulators import accumulator_types
from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.plan.operators import OperatorInput, PlannedOperator
from penstock.plan.rewriting import walk
from penstock.plan.state_size import INDEX_BYTES, about, aggregates_bytes, row_bytes
from penstock.types.durations import duration_text
from penstock.types.logical import BigIntType, Field, Schema

if TYPE_CHECKING:
    from penstock.plan.translation.translator import Translator


def window_table(tr: Translator, node: n.WindowTable) -> PlannedOperator:
    inp = tr.visit(node.input)
    name = f"WindowTable({node.window.kind})"
    if node.window.kind != "session":
        return tr.add(
            node, "window-table", name, s.WindowTableSpec(window=node.window), [inp], hashed=inp.source.hashed
        )
    if tr.analysis.of(node.input).updating:
        raise UnsupportedError(
            "a SESSION table function over rows that are updated, without an aggregation",
            expected="GROUP BY its PARTITION BY columns, window_start, window_end right above it",
            got="an updating input",
            remedy="aggregate right above TABLE(SESSION(…)), or over rows that are only added",
        )
    source, parallelism = tr.keyed(inp, node.keys)
    size = about(INDEX_BYTES + row_bytes(node.input.schema.types), "row")
    return tr.add(
        node,
        "window-table",
        name,
        s.WindowTableSpec(window=node.window, keys=node.keys),
        [source],
        parallelism=parallelism,
        hashed=node.keys or None,
        keeps=f"rows until their session has ended, {duration_text(node.window.gap_us)} after its last ({size})",
    )


def window_aggregate(tr: Translator, node: n.WindowAggregate) -> PlannedOperator:
    inp = tr.visit(node.input)
    types = node.input.schema.types
    fields: dict = {
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
        partial = _partials(tr, node, (Field("$pane_end", BigIntType(nullable=False)),))
        local = tr.add(
            node,
            "local-window-aggregate",
            f"LocalWindowAggregate({node.window.kind})",
            s.WindowAggregateSpec(phase="local", keys=node.keys, late_tag=node.late_tag, **fields),
            [inp],
            output=partial,
            side_outputs=late,
            mode="append",
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
            # The side output comes from the local phase, where the lateness test is.
            for consumer in _late_consumers(tr, node):
                tr.memo[id(consumer)] = OperatorInput(local, None, node.late_tag)
        return op
    source, parallelism = tr.keyed(inp, node.keys)
    spec = s.WindowAggregateSpec(phase="single", keys=node.keys, late_tag=node.late_tag, **fields)
    return tr.add(
        node, "window-aggregate", f"WindowAggregate({node.window.kind})", spec, [source],
        parallelism=parallelism, hashed=keys, keeps=kept, side_outputs=late,
    )  # fmt: skip


def _late_consumers(tr: Translator, node: n.WindowAggregate) -> list[n.Node]:
    return [x for x in walk(tr.sinks) if isinstance(x, n.SideOutput) and x.input is node]


def _two_phases(tr: Translator, node: n.WindowAggregate) -> bool:
    """A local phase pays when rows would cross an exchange and can be summed up first."""
    if node.window.time is None or node.windowed_input or node.allowed_lateness_us:
        return False
    if node.window.kind not in ("tumble", "hop", "cumulate") or tr.parallelism == 1:
        return False
    if tr.analysis.of(node.input).updating:
        return False
    return _splits(tr, node)


def aggregate(tr: Translator, node: n.Aggregate) -> PlannedOperator:
    inp = tr.visit(node.input)
    known = tr.analysis.of(node.input)
    common: dict = {
        "aggregates": node.aggregates,
        "retracts": known.updating,
        "emit_before": tr.modes.before(node),
        "bounded_final": tr.analysis.final,
        "ttl_ms": tr.ttl_ms,
    }
    keys = tuple(range(len(node.keys)))
    types = node.input.schema.types
    size, growing = aggregates_bytes([types[k] for k in node.keys], node.aggregates, types)
    kept = "until the end" if tr.analysis.final else tr.ttl_words().lstrip(", ")
    facts: dict = {
        "hashed": keys or None,
        "keeps": f"one row per key {kept} ({about(size, 'key')}{growing})",
    }
    name = "GroupAggregate" if node.aggregates else "Distinct"
    if tr.parallelism > 1 and not known.updating and _splits(tr, node):
        local = tr.add(
            node, "local-group-aggregate", f"Local{name}",
            s.GroupAggregateSpec(phase="local", keys=node.keys, **common), [inp],
            output=_partials(tr, node, ()), mode="append",
        )  # fmt: skip
        source, parallelism = tr.keyed(OperatorInput(local), keys)
        spec = s.GroupAggregateSpec(phase="global", keys=keys, local_types=tuple(types), **common)
        return tr.add(
            node, "group-aggregate", f"Global{name}", spec, [source], parallelism=parallelism, **facts
        )
    source, parallelism = tr.keyed(inp, node.keys)
    spec = s.GroupAggregateSpec(keys=node.keys, **common)
    return tr.add(node, "group-aggregate", name, spec, [source], parallelism=parallelism, **facts)


def _splits(tr: Translator, node: n.Aggregate | n.WindowAggregate) -> bool:
    """Whether every aggregate has partial accumulators."""
    types = node.input.schema.types
    return all(accumulator_types(c, [types[a] for a in c.args]) is not None for c in node.aggregates)


def _partials(tr: Translator, node: n.Aggregate | n.WindowAggregate, between: tuple[Field, ...]) -> Schema:
    """What a local phase sends: keys, ``between``, the accumulators' columns."""
    types = node.input.schema.types
    cells = [*(node.input.schema.fields[k] for k in node.keys), *between]
    for i, call in enumerate(node.aggregates):
        parts = accumulator_types(call, [types[a] for a in call.args])
        assert parts is not None
        cells += [Field(f"$a{i}_{j}", part) for j, part in enumerate(parts)]
    taken: set[str] = set()
    return Schema(tuple(Field(_free(f.name, taken), f.type) for f in cells))


def _free(name: str, taken: set[str]) -> str:
    candidate, i = name, 0
    while candidate in taken:
        candidate, i = f"{name}_{i}", i + 1
    taken.add(candidate)
    return candidate


def _window_words(window: s.WindowSpec) -> str:
    if window.kind == "session":
        return f"one row per key and open session, until {duration_text(window.gap_us)} without rows"
    panes = f"pane of {duration_text(window.slide_us)}" if window.kind == "hop" else "window"
    return f"one row per key and {panes}, until the watermark passes its window ({duration_text(window.size_us)})"
