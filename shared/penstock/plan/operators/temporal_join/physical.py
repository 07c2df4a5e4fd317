"""Translates joins with versions by event time, and lookup joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.functions.expr import Call, InputRef
from penstock.functions.expression_text import text
from penstock.jobgraph import specs as s
from penstock.plan.operators.project.node import Project
from penstock.plan.operators.scan.node import Scan
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import conjuncts
from penstock.plan.state_size import join_words
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.node import Node
    from penstock.plan.operator_graph import OperatorInput, PlannedOperator
    from penstock.plan.operators.temporal_join.node import TemporalJoin
    from penstock.plan.translation import Translator


def temporal_join(tr: Translator, node: TemporalJoin) -> PlannedOperator:
    """The operator of a temporal join or lookup join. Raises UnsupportedError for a join without an equality."""
    left = tr.visit(node.left)
    if not node.left_keys:
        raise UnsupportedError(
            "a temporal join without an equality",
            expected="ON l.key = r.key" + (", r.key a column of the table" if node.lookup else ""),
            got=_condition_text(node),
            remedy="add the key to ON; where the types differ, CAST the left side to the type of the table's column",
        )
    if tr.analysis.of(node.left).updating:
        raise UnsupportedError(
            f"a {'lookup' if node.lookup else 'temporal'} join of rows that are updated",
            expected="an append-only left side",
            got="an updating left side",
            remedy="aggregate or deduplicate after the join, or over windows before it",
        )
    if node.lookup:
        return _lookup(tr, node, left)
    if Analysis().of(node.right).updating and not _is_table(node.right):
        raise UnsupportedError(
            "a temporal join with versions that a query computes",
            expected="a table with PRIMARY KEY and WATERMARK, or a view of the newest row per key: ROW_NUMBER() "
            "OVER (PARTITION BY key ORDER BY row time DESC) = 1, joined on that key",
            got="a right side whose rows are updated",
            remedy="filter and aggregate after the join",
        )
    known = tr.analysis.of(node.right)
    if tr.analysis.of(node.left).timeline != known.timeline:
        raise UnsupportedError(
            "a temporal join of event times on different clocks",
            expected="both sides before, or both behind windows over TIMESTAMP_LTZ in one time zone",
            got=f"{tr.analysis.of(node.left).timeline or 'UTC'} and {known.timeline or 'UTC'}",
            remedy="SET 'table.local-time-zone' = 'UTC', or join before the windows",
        )
    if not node.versions and not any(key <= set(node.right_keys) for key in known.unique):
        names = node.right.schema.names
        raise UnsupportedError(
            "the versions of a temporal join have no primary key among the columns of ON",
            expected="PRIMARY KEY (…) NOT ENFORCED on the versioned table, all of it compared in ON",
            got="ON " + ", ".join(names[k] for k in node.right_keys),
            remedy="declare the key, or join a view: SELECT … FROM (SELECT *, ROW_NUMBER() OVER "
            "(PARTITION BY key ORDER BY row time DESC) AS n FROM t) WHERE n = 1",
        )
    right = tr.visit(node.right)
    assert node.left_time is not None
    assert node.right_time is not None
    first, parallelism = tr.keyed(left, node.left_keys)
    second, _ = tr.keyed(right, node.right_keys)
    spec = s.TemporalJoinSpec(
        kind=node.kind, left_keys=node.left_keys, right_keys=node.right_keys, left_time=node.left_time,
        right_time=node.right_time, condition=node.condition,
    )  # fmt: skip
    return tr.add(
        node, "temporal-join", f"TemporalJoin({node.kind})", spec, [first, second], parallelism=parallelism,
        hashed=node.left_keys, keeps="left rows until the watermark, right versions until superseded "
        f"({join_words(node.left.schema.types, node.right.schema.types)})",
    )  # fmt: skip


def _is_table(node: Node) -> bool:
    """Whether the node's rows are the changelog of a table: each row begins a version or ends one."""
    while isinstance(node, Project):
        node = node.input
    return isinstance(node, Scan)


def _condition_text(node: TemporalJoin) -> str:
    """The ON condition in words, with the types on both sides of each equality: different types may be the
    reason why no equality is a key."""
    schema = Schema((*node.left.schema.fields, *node.right.schema.fields))
    equalities = [x for x in conjuncts(node.condition) if isinstance(x, Call) and x.function == "="]
    types = "; ".join(f"{x.args[0].type} = {x.args[1].type}" for x in equalities)
    if node.condition is None:
        return "a condition without one"
    return f"ON {text(node.condition, schema)}" + (f" ({types})" if types else "")


def _lookup(tr: Translator, node: TemporalJoin, left: OperatorInput) -> PlannedOperator:
    right = node.right
    assert isinstance(right, Scan)
    table = right.table
    columns = right.projection if right.projection is not None else tuple(range(len(table.schema)))
    physical: list[int] = []
    for column in columns:
        source = (
            table.computed[column]
            if table.computed is not None
            else InputRef(column, table.schema.types[column])
        )
        if not isinstance(source, InputRef) or source.index >= len(table.physical):
            raise UnsupportedError(
                f"column '{table.schema.names[column]}' of a table that is looked up",
                expected="physical columns only",
                got="a computed or metadata column",
                where=f"table '{table.name}'",
                remedy="compute it in SELECT, from the physical columns",
            )
        physical.append(source.index)
    spec = s.LookupJoinSpec(
        kind=node.kind, connector=table.connector, options=table.options, schema=table.physical,
        left_keys=node.left_keys, right_keys=tuple(physical[k] for k in node.right_keys),
        projection=tuple(physical), condition=node.condition,
    )  # fmt: skip
    return tr.add(
        node, "lookup-join", f"LookupJoin({table.name})", spec, [left], keeps=table.lookup,
        guarantee="rows as the table is when asked: another answer after a restart",
    )  # fmt: skip
