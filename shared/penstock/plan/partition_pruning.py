"""Tells a source the conditions on partition columns: it reads only the partitions for which they hold.

The filter stays in the plan: the source leaves out whole partitions, the filter leaves out rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr, InputRef, PythonCall, children, input_refs, shift_refs
from penstock.functions.registry import is_deterministic
from penstock.plan import nodes as n
from penstock.plan.conditions import implied
from penstock.plan.rewriting import conjuncts, substitute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The options of a table by which plan and connector agree on its partitions.
PARTITION_KEYS = "partition.keys"
PARTITION_FILTER = "partition.filter"


def prune_partitions(node: n.Node, readers: Mapping[int, Sequence[n.Node]]) -> n.Node:
    """A rule for a filter over the scan of a partitioned table: gives the scan the conditions on partition
    columns.

    The scan gets one list of conditions for each of its ``readers`` (id of a scan → nodes); columns are
    numbered in the order of the partition keys. The source reads a partition if all conditions of one list
    hold.
    """
    if not isinstance(node, n.Filter) or not isinstance(node.input, n.Scan):
        return node
    scan = node.input
    table = scan.table
    if PARTITION_KEYS not in table.options:
        return node
    keys = msgspec.json.decode(table.options[PARTITION_KEYS], type=list[str])
    alternatives: list[list[Expr]] = []
    for reader in readers.get(id(scan), (node,)):
        conditions = _conditions(reader, scan, [table.physical.index(key) for key in keys])
        if not conditions:
            return node
        if conditions not in alternatives:
            alternatives.append(conditions)
    written = msgspec.json.encode(alternatives).decode()
    table = msgspec.structs.replace(table, options={**table.options, PARTITION_FILTER: written})
    return msgspec.structs.replace(node, input=msgspec.structs.replace(scan, table=table))


def _conditions(reader: n.Node, scan: n.Scan, columns: Sequence[int]) -> list[Expr]:
    """The conditions of a reader on the partition columns. ``columns``: their positions among the physical
    columns."""
    if not isinstance(reader, n.Filter):
        return []
    types = scan.table.physical.types
    computed = scan.table.computed
    given = scan.projection if scan.projection is not None else range(len(scan.table.schema))
    inputs: list[Expr] = [InputRef(c, types[c]) if computed is None else computed[c] for c in given]
    places = {column: i for i, column in enumerate(columns)}
    out: list[Expr] = []
    for part in conjuncts(reader.condition):
        bound = substitute(part, inputs)
        asked = bound if input_refs(bound) <= set(columns) else implied(bound, columns)
        if asked is not None and input_refs(asked) and is_deterministic(asked) and not _calls_python(asked):
            out.append(shift_refs(asked, places))
    return out


def _calls_python(expr: Expr) -> bool:
    return isinstance(expr, PythonCall) or any(_calls_python(c) for c in children(expr))
