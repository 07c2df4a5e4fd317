"""Rows with their windows, assigned as they come or when their session has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.plan.state_size import INDEX_BYTES, about, row_bytes
from penstock.types.durations import duration_text

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.window_table.node import WindowTable
    from penstock.plan.translation import Translator


def window_table(tr: Translator, node: WindowTable) -> PlannedOperator:
    """The operator of a window table function."""
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
