"""Unwindowed aggregation, in one phase or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.jobgraph import specs as s
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.operators.aggregate.partials import partials, splits
from penstock.plan.state_size import about, aggregates_bytes
from penstock.plan.words import lifetime_text

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.aggregate.node import Aggregate
    from penstock.plan.translation import Translator

#: EXPLAIN's note on a local phase.
SUMMED_BEFORE = ("split", "summed up before the exchange, merged behind it")


def aggregate(tr: Translator, node: Aggregate) -> PlannedOperator:
    """The operators of a group aggregate, in one phase or two."""
    inp = tr.visit(node.input)
    known = tr.analysis.of(node.input)
    lifetime = tr.ttl_ms if node.lifetime is None else node.lifetime
    common: dict[str, Any] = {
        "aggregates": node.aggregates,
        "retracts": known.updating,
        "emit_before": tr.modes.before(node),
        "bounded_final": tr.analysis.final,
        "ttl_ms": lifetime,
    }
    keys = tuple(range(len(node.keys)))
    types = node.input.schema.types
    size, growing = aggregates_bytes([types[k] for k in node.keys], node.aggregates, types)
    kept = "until the end" if tr.analysis.final else lifetime_text(lifetime).lstrip(", ")
    facts: dict[str, Any] = {
        "hashed": keys or None,
        "keeps": f"one row per key {kept} ({about(size, 'key')}{growing})",
    }
    name = "GroupAggregate" if node.aggregates else "Distinct"
    if tr.parallelism > 1 and not known.updating and splits(node):
        local = tr.add(
            node, "local-group-aggregate", f"Local{name}",
            s.GroupAggregateSpec(phase="local", keys=node.keys, **common), [inp],
            output=partials(node, ()), mode="append", notes=(SUMMED_BEFORE,),
        )  # fmt: skip
        source, parallelism = tr.keyed(OperatorInput(local), keys)
        spec = s.GroupAggregateSpec(phase="global", keys=keys, local_types=tuple(types), **common)
        return tr.add(
            node, "group-aggregate", f"Global{name}", spec, [source], parallelism=parallelism, **facts
        )
    source, parallelism = tr.keyed(inp, node.keys)
    spec = s.GroupAggregateSpec(keys=node.keys, **common)
    return tr.add(node, "group-aggregate", name, spec, [source], parallelism=parallelism, **facts)
