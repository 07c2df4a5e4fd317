"""Parts of a plan that give no row: LIMIT 0, and conditions that are never true.

They become ``Values`` without rows, so that no source behind them is read: such a query over an unbounded
source ends at once, as in Flink (its PruneEmptyRules).
"""

from __future__ import annotations

import msgspec

from penstock.plan import nodes as n
from penstock.plan.operators.values.node import encoded
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema


def without_rows(node: n.Node) -> n.Node:
    """A rule for ``bottom_up``: replaces a node that gives no row by a ``Values`` without rows of the same
    schema."""
    if node.gives_nothing([is_empty(child) for child in node.children()]):
        return empty(node.schema)
    if isinstance(node, n.Union_) and any(map(is_empty, node.inputs)):
        return msgspec.structs.replace(node, inputs=tuple(i for i in node.inputs if not is_empty(i)))
    return node


def empty(schema: Schema) -> n.Values:
    """A plan node of this schema without rows."""
    rows = Batch(schema, [Column.of(field.type, []) for field in schema.fields])
    return n.Values(schema=schema, data=encoded(rows))


def is_empty(node: n.Node) -> bool:
    """Whether the node is known to have no rows."""
    return isinstance(node, n.Values) and node.data == empty(node.schema).data
