"""Versioned views: a temporal join with the newest row of each key reads every version instead.

``(SELECT … ROW_NUMBER() OVER (PARTITION BY key ORDER BY row time DESC) AS n …) WHERE n = 1`` is, for a
temporal join on that key, the history of its rows: the join itself looks for the newest row that is old
enough. The deduplication in between would only repeat that, and over a bounded input would give the last
version alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.plan import nodes as n
from penstock.plan.rewriting import identity, substitute
from penstock.types.logical import BigIntType

if TYPE_CHECKING:
    from penstock.plan.properties import Analysis

replace = msgspec.structs.replace


def read_versions(node: n.Node, analysis: Analysis) -> n.Node:
    """The join over the view's input, if the view is one of these and the join is on its key."""
    if not isinstance(node, n.TemporalJoin) or node.lookup:
        return node
    steps: list[n.Project] = []
    below: n.Node = node.right
    while isinstance(below, n.Project):
        steps.append(below)
        below = below.input
    if not isinstance(below, n.TopN) or not _is_newest(below, analysis):
        return node
    outputs: list[Expr] = identity(below)
    for step in reversed(steps):
        outputs = [substitute(e, outputs) for e in step.expressions]
    joined_on = {e.index for e in (outputs[k] for k in node.right_keys) if isinstance(e, InputRef)}
    if not set(below.partition) <= joined_on:
        return node
    one = Literal(1, BigIntType(nullable=False))
    rows = [*identity(below.input), *([one] if below.rank_column else [])]
    expressions = tuple(substitute(e, rows) for e in outputs) if steps else tuple(rows)
    right = n.Project(input=below.input, expressions=expressions, schema=node.right.schema)
    return replace(node, right=right, versions=True)


def _is_newest(top: n.TopN, analysis: Analysis) -> bool:
    """Whether it gives one row for each key, the youngest in event time, of rows that are only added."""
    known = analysis.of(top.input)
    return (
        top.first == top.last == 1
        and top.rank == "row_number"
        and top.window is None
        and not known.updating
        and len(top.order) == 1
        and top.order[0].descending
        and top.order[0].index in known.rowtimes
    )
