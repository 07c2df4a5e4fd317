"""Versioned views: a temporal join with a view of the newest row of each key reads every version instead.

For a temporal join on ``key``, the view ``(SELECT … ROW_NUMBER() OVER (PARTITION BY key ORDER BY row time
DESC) AS n …) WHERE n = 1`` stands for the history of its rows: the join itself looks for the newest row that
is old enough. A deduplication before the join would repeat that work, and over a bounded input would give the
last version alone.

A version is looked up by the table's key alone. Further equalities in ON are tested on the version found: if
an update changes a column that such an equality reads, the new row is the key's next version, not a row of
its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.plan import nodes as n
from penstock.plan.changelog import smallest_key
from penstock.plan.rewriting import conjunction, conjuncts, identity, substitute
from penstock.types.logical import BigIntType, BooleanType

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.plan.properties import Analysis

replace = msgspec.structs.replace


def read_versions(node: n.Node, analysis: Analysis) -> n.Node:
    """Rewrites a temporal join: its keys become the key of the versions, and it reads the input of a
    versioned view instead of the view."""
    if not isinstance(node, n.TemporalJoin) or node.lookup:
        return node
    return _of_table(_of_view(node, analysis), analysis)


def _of_view(node: n.TemporalJoin, analysis: Analysis) -> n.TemporalJoin:
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
    at = {e.index: k for k in reversed(node.right_keys) if isinstance(e := outputs[k], InputRef)}
    if not set(below.partition) <= at.keys():
        return node
    one = Literal(1, BigIntType(nullable=False))
    rows = [*identity(below.input), *([one] if below.rank_column else [])]
    expressions = tuple(substitute(e, rows) for e in outputs) if steps else tuple(rows)
    right = n.Project(input=below.input, expressions=expressions, schema=node.right.schema)
    return _by_key(replace(node, right=right, versions=True), {at[k] for k in below.partition})


def _of_table(node: n.TemporalJoin, analysis: Analysis) -> n.TemporalJoin:
    keys = [key for key in analysis.of(node.right).unique if key <= set(node.right_keys)]
    return node if node.versions or not keys else _by_key(node, smallest_key(keys))


def _by_key(node: n.TemporalJoin, key: Collection[int]) -> n.TemporalJoin:
    """The join with one equality for each column of ``key``; its other equalities become conditions."""
    width = len(node.left.schema)
    pairs: dict[int, int] = {}
    more: list[Expr] = []
    for a, b in zip(node.left_keys, node.right_keys, strict=True):
        if b in key and b not in pairs:
            pairs[b] = a
            continue
        sides = InputRef(a, node.left.schema.types[a]), InputRef(b + width, node.right.schema.types[b])
        more.append(Call("=", sides, BooleanType()))
    if not more:
        return node
    condition = conjunction([*more, *conjuncts(node.condition)])
    return replace(node, left_keys=tuple(pairs.values()), right_keys=tuple(pairs), condition=condition)


def _is_newest(top: n.TopN, analysis: Analysis) -> bool:
    """Whether a Top-N gives one row for each key, the newest in event time, of an append-only input."""
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
