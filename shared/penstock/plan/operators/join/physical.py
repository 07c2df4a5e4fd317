"""Regular, interval and window joins as operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import JOIN_UNBOUNDED_STATE
from penstock.errors import UnsupportedError
from penstock.functions.expr import input_refs
from penstock.jobgraph import specs as s
from penstock.plan.changelog import smallest_key
from penstock.plan.operator_graph import OperatorInput, fetched_late
from penstock.plan.operators.join.maximum import RowsOfMaximum, rows_of_maximum
from penstock.plan.state_size import join_growth, join_words
from penstock.plan.words import lifetime_text
from penstock.types.durations import shifted

if TYPE_CHECKING:
    from penstock.plan.operator_graph import Note, PlannedOperator
    from penstock.plan.operators.join.node import Join
    from penstock.plan.translation import Translator


def join(tr: Translator, node: Join) -> PlannedOperator:
    """The operator of a join: regular, interval or window join."""
    beaten = rows_of_maximum(node, tr.analysis)
    if beaten is None:
        left, right = tr.visit(node.left), tr.visit(node.right)
    else:
        left, right = _top_rows(tr, node, beaten)
    if node.window is not None:
        return _window_join(tr, node, left, right)
    known = (tr.analysis.of(node.left), tr.analysis.of(node.right))
    first_ms, second_ms = node.lifetimes
    lifetimes = (tr.ttl_ms if first_ms is None else first_ms, tr.ttl_ms if second_ms is None else second_ms)
    if node.interval is None:
        _check_unbounded(tr, node, known, lifetimes)
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
        ttl_ms=0 if node.interval else lifetimes[0],
        right_ttl_ms=None if node.interval or lifetimes[0] == lifetimes[1] else lifetimes[1],
        strategy=node.strategy,
    )
    hashed = node.left_keys if node.left_keys and node.kind in ("inner", "left", "semi", "anti") else None
    size = join_words(node.left.schema.types, node.right.schema.types)
    if node.interval:
        low, high = node.interval[2], node.interval[3]
        span = f"{shifted('left.time', low)} AND {shifted('left.time', high)}"
        keeps = f"rows of both sides while right.time BETWEEN {span} can match"
        return tr.add(
            node, "interval-join", f"IntervalJoin({node.kind})", spec, [first, second],
            parallelism=parallelism, hashed=hashed, keeps=f"{keeps} ({size})", notes=_notes(spec, node),
        )  # fmt: skip
    return tr.add(
        node, "join", f"Join({node.kind})", spec, [first, second], parallelism=parallelism, hashed=hashed,
        keeps=f"all rows of both sides{_kept(lifetimes)} ({size})", notes=_notes(spec, node),
    )  # fmt: skip


def _kept(lifetimes: tuple[int, int]) -> str:
    """How long a join keeps the rows of its sides, in words."""
    left, right = (lifetime_text(ms) for ms in lifetimes)
    return left if left == right else f": the left{left.lstrip(',')}, the right{right.lstrip(',')}"


def _notes(spec: s.JoinSpec, node: Join) -> tuple[Note, ...]:
    left, right = node.left.schema.names, node.right.schema.names
    width = len(left)
    used = {*spec.left_keys, *(width + k for k in spec.right_keys)}
    used |= input_refs(spec.condition) if spec.condition is not None else set()
    bounded: tuple[Note, ...] = ()
    if spec.interval is not None:
        a, b, low, high = spec.interval
        used |= {a, width + b}
        span = f"{shifted(left[a], low)} to {shifted(left[a], high)}"
        bounded = (("bounded", f"right {right[b]} between left {span}; the watermark drops what is past"),)
    names = left if node.one_sided else [*left, *(f"right {x}" for x in right)]
    return (*bounded, *fetched_late(names, used))


def _top_rows(tr: Translator, node: Join, beaten: RowsOfMaximum) -> tuple[OperatorInput, OperatorInput]:
    """Both inputs of a join with a maximum, without rows that are smaller than an earlier row of their
    window."""
    rows = tr.visit(node.left)
    top = tr.add(
        node.left, "window-maximum", "WindowMaximum", beaten.spec, [rows], hashed=rows.source.hashed,
        notes=(("bounded", "rows below a value seen in their window are dropped where they are made"),),
    )  # fmt: skip
    if not beaten.shared:
        return OperatorInput(top), tr.visit(node.right)
    # The reduced rows are for this join only: other consumers of ``node.left`` need all its rows.
    everything = tr.memo[id(node.left)]
    tr.memo[id(node.left)] = OperatorInput(top)
    right = tr.visit(node.right)
    tr.memo[id(node.left)] = everything
    return OperatorInput(top), right


def _check_unbounded(tr: Translator, node: Join, known: tuple[Any, ...], lifetimes: tuple[int, int]) -> None:
    if all(p.bounded for p in known) or all(lifetimes):
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


def _window_join(tr: Translator, node: Join, left: OperatorInput, right: OperatorInput) -> PlannedOperator:
    assert node.window is not None
    # A join without keys is spread over the subtasks by the end of the window.
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
        notes=(("bounded", "both sides are dropped when their window ends"),),
    )  # fmt: skip
