"""Regular, interval, window, temporal and lookup joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import JOIN_UNBOUNDED_STATE
from penstock.errors import UnsupportedError
from penstock.functions.expr import Call, InputRef
from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.plan.changelog import smallest_key
from penstock.plan.explain import text
from penstock.plan.maximum import RowsOfMaximum, rows_of_maximum
from penstock.plan.operators import OperatorInput, PlannedOperator
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import conjuncts
from penstock.plan.state_size import join_growth, join_words
from penstock.types import logical as t
from penstock.types.durations import shifted

if TYPE_CHECKING:
    from penstock.plan.translation.translator import Translator


def join(tr: Translator, node: n.Join) -> PlannedOperator:
    beaten = rows_of_maximum(node, tr.analysis)
    if beaten is None:
        left, right = tr.visit(node.left), tr.visit(node.right)
    else:
        left, right = _top_rows(tr, node, beaten)
    if node.window is not None:
        return _window_join(tr, node, left, right)
    known = (tr.analysis.of(node.left), tr.analysis.of(node.right))
    if node.interval is None:
        _check_unbounded(tr, node, known)
    first, parallelism = tr.keyed(left, node.left_keys)
    second, _ = tr.keyed(right, node.right_keys)
    spec = s.JoinSpec(
        kind=node.kind,
        left_keys=node.left_keys,
        right_keys=node.right_keys,
        condition=node.condition,
        interval=node.interval,
        null_safe=node.null_safe,
        left_unique=smallest_key(known[0].unique),
        right_unique=smallest_key(known[1].unique),
        ttl_ms=0 if node.interval else tr.ttl_ms,
    )
    hashed = node.left_keys if node.left_keys and node.kind in ("inner", "left", "semi", "anti") else None
    size = join_words(node.left.schema.types, node.right.schema.types)
    if node.interval:
        low, high = node.interval[2], node.interval[3]
        span = f"{shifted('left.time', low)} AND {shifted('left.time', high)}"
        keeps = f"rows of both sides while right.time BETWEEN {span} can match"
        return tr.add(
            node, "interval-join", f"IntervalJoin({node.kind})", spec, [first, second],
            parallelism=parallelism, hashed=hashed, keeps=f"{keeps} ({size})",
        )  # fmt: skip
    return tr.add(
        node, "join", f"Join({node.kind})", spec, [first, second], parallelism=parallelism, hashed=hashed,
        keeps=f"all rows of both sides{tr.ttl_words()} ({size})",
    )  # fmt: skip


def _top_rows(tr: Translator, node: n.Join, beaten: RowsOfMaximum) -> tuple[OperatorInput, OperatorInput]:
    """Both inputs of a join with a maximum, without rows that are beaten already."""
    rows = tr.visit(node.left)
    top = tr.add(node.left, "window-maximum", "WindowMaximum", beaten.spec, [rows], hashed=rows.source.hashed)
    if not beaten.shared:
        return OperatorInput(top), tr.visit(node.right)
    # Others that read the same rows need them all.
    everything = tr.memo[id(node.left)]
    tr.memo[id(node.left)] = OperatorInput(top)
    right = tr.visit(node.right)
    tr.memo[id(node.left)] = everything
    return OperatorInput(top), right


def _check_unbounded(tr: Translator, node: n.Join, known: tuple) -> None:
    if all(p.bounded for p in known) or tr.ttl_ms:
        return
    if JOIN_UNBOUNDED_STATE.read(tr.config) == "allow":
        return
    sides = [word for word, p in zip(("left", "right"), known, strict=True) if not p.bounded]
    raise UnsupportedError(
        "this join keeps every row for ever: it has no window, no time bound and no TTL",
        expected="a time bound on both event-time columns (interval join), equal windows, or a state TTL",
        got=f"a regular {node.kind} join with unbounded input on the {' and '.join(sides)} side; it would keep "
        + join_growth(node.left.schema.types, node.right.schema.types),
        remedy="SET 'table.exec.state.ttl' = '1 d', add e.g. r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND l.ts, "
        "or SET 'table.exec.join.unbounded-state' = 'allow'",
    )


def _window_join(tr: Translator, node: n.Join, left: OperatorInput, right: OperatorInput) -> PlannedOperator:
    assert node.window is not None
    # Without a key of its own the join spreads over the subtasks by window.
    left_keys = node.left_keys or (node.window[0][1],)
    right_keys = node.right_keys or (node.window[1][1],)
    first, parallelism = tr.keyed(left, left_keys)
    second, _ = tr.keyed(right, right_keys)
    spec = s.WindowJoinSpec(
        kind=node.kind,
        left_keys=left_keys,
        right_keys=right_keys,
        left_window=node.window[0],
        right_window=node.window[1],
        condition=node.condition,
    )
    return tr.add(
        node, "window-join", f"WindowJoin({node.kind})", spec, [first, second], parallelism=parallelism,
        keeps=f"rows of both sides until their window ends ({join_words(node.left.schema.types, node.right.schema.types)})",
    )  # fmt: skip


def temporal_join(tr: Translator, node: n.TemporalJoin) -> PlannedOperator:
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
    if Analysis().of(node.right).updating:
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


def _condition_text(node: n.TemporalJoin) -> str:
    """ON, with the types of both sides of its equalities: they may be why none is a key."""
    schema = t.Schema((*node.left.schema.fields, *node.right.schema.fields))
    equalities = [x for x in conjuncts(node.condition) if isinstance(x, Call) and x.function == "="]
    types = "; ".join(f"{x.args[0].type} = {x.args[1].type}" for x in equalities)
    if node.condition is None:
        return "a condition without one"
    return f"ON {text(node.condition, schema)}" + (f" ({types})" if types else "")


def _lookup(tr: Translator, node: n.TemporalJoin, left: OperatorInput) -> PlannedOperator:
    right = node.right
    assert isinstance(right, n.Scan)
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
