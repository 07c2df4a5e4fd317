"""Translates ORDER BY: a sort at the end of the input, a sort by event time at watermarks, or the first rows
alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.plan.changelog import keys_in_order, smallest_key
from penstock.plan.operators.top_n.physical import notes_of
from penstock.plan.state_size import a_row

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.sort.node import Sort
    from penstock.plan.translation import Translator


def sort(tr: Translator, node: Sort) -> PlannedOperator:
    """The operator of ORDER BY, LIMIT and OFFSET."""
    inp = tr.visit(node.input)
    known = tr.analysis.of(node.input)
    if tr.analysis.final:
        spec: s.OperatorSpec = s.SortSpec(order=node.order, offset=node.offset, limit=node.limit)
        return tr.add(
            node,
            "sort",
            "Sort",
            spec,
            [tr.single(inp)],
            parallelism=1,
            keeps=f"all rows until the end ({a_row(node.input.schema)})",
        )
    first = node.order[0]
    by_time = first.index in known.rowtimes and not first.descending and not known.updating
    if by_time and node.limit is None and not node.offset:
        spec = s.TemporalSortSpec(time=first.index, order=node.order[1:])
        return tr.add(
            node, "temporal-sort", "TemporalSort", spec, [tr.single(inp)], parallelism=1,
            keeps=f"rows until the watermark ({a_row(node.input.schema)})",
        )  # fmt: skip
    if node.limit is not None:
        spec = s.TopNSpec(
            partition=(), order=node.order, first=node.offset + 1, last=node.offset + node.limit,
            retracts=known.updating, emit_before=tr.modes.before(node),
            unique_keys=smallest_key(keys_in_order(node.input, tr.analysis)), ttl_ms=tr.ttl_ms,
        )  # fmt: skip
        return tr.add(
            node,
            "top-n",
            f"TopN({node.limit})",
            spec,
            [tr.single(inp)],
            parallelism=1,
            keeps=f"the first {node.offset + node.limit} rows ({a_row(node.input.schema)})",
            notes=notes_of(spec, node.input.schema),
        )
    raise UnsupportedError(
        "ORDER BY of an unbounded query",
        expected="ORDER BY an ascending event-time column first, or with LIMIT",
        remedy="add LIMIT, or sort what a bounded source gives",
    )
