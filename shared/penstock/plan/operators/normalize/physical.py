"""Translates a normaliser, whose state is the newest row of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s
from penstock.plan.operator_graph import fetched_late
from penstock.plan.state_size import a_row

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.normalize.node import Normalize
    from penstock.plan.translation import Translator


def normalize(tr: Translator, node: Normalize) -> PlannedOperator:
    """The operator that completes an upsert changelog."""
    source, parallelism = tr.keyed(tr.visit(node.input), node.keys)
    schema = node.input.schema
    spec = s.NormalizeSpec(keys=node.keys, ttl_ms=tr.ttl_ms, emit_before=tr.modes.mode(node) == "retract")
    return tr.add(
        node, "normalize", "Normalize", spec, [source], parallelism=parallelism, hashed=node.keys,
        keeps=f"one row per key{tr.ttl_words()} ({a_row(schema)})", notes=fetched_late(schema.names, set(node.keys)),
    )  # fmt: skip
