"""A join of rows with the maximum of their window.

``FROM x JOIN (SELECT MAX(v), … FROM x GROUP BY window) m ON x.v = m.v AND <x in m's window>`` asks for the
top of each window, ties included. A row that is smaller than an earlier row of its window and subtask cannot
be in the result. So it is dropped where it is made, and only a few rows of each window cross the exchange,
wait in the join and reach the (global, parallelism 1) maximum. If the left side has filters of its own, rows
are dropped on that side alone: the maximum still needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, InputRef
from penstock.functions.registry import is_deterministic
from penstock.jobgraph.specs import WindowMaximumSpec
from penstock.plan import nodes as n
from penstock.plan.rewriting import conjuncts, identity, position, same, substitute

if TYPE_CHECKING:
    from penstock.plan.properties import Analysis


@dataclass(frozen=True)
class RowsOfMaximum:
    """How to drop rows of a join's left input. ``shared``: the maximum is taken of the same rows, so rows may
    be dropped before both inputs."""

    spec: WindowMaximumSpec
    shared: bool


def rows_of_maximum(join: n.Join, analysis: Analysis) -> RowsOfMaximum | None:
    """Says which rows may be dropped if every row of ``join.left`` also goes into the maximum on the right;
    None otherwise. The left side may have filters of its own."""
    if join.kind not in ("inner", "semi") or (join.window is None and join.interval is None):
        return None
    node: n.Node = join.right
    exprs: list[Expr] = identity(node)
    # A filter above the maximum only drops maxima.
    while isinstance(node, (n.Project, n.Filter)):
        if isinstance(node, n.Project):
            exprs = [substitute(e, node.expressions) for e in exprs]
        node = node.input
    if not isinstance(node, n.WindowAggregate):
        return None
    if node.keys or len(node.aggregates) != 1 or node.late_tag or node.allowed_lateness_us:
        return None
    call = node.aggregates[0]
    if call.function.upper() != "MAX" or call.filter is not None or call.python is not None:
        return None
    rows = _among(join.left, node.input)
    if rows is None:
        return None
    origin = [e.index if isinstance(e, InputRef) else None for e in exprs]
    value = _value(join, {i for i, column in enumerate(origin) if column == 0})
    known = analysis.of(join.left)
    if value is None or not rows.same(value, call.args[0]) or known.updating or value in known.proctimes:
        return None
    if node.windowed_input is not None:
        spec = _carried_window(join, node, value, rows, analysis)
    else:
        spec = _own_window(join, node, value, rows, origin)
    return RowsOfMaximum(spec, join.left is node.input) if spec is not None else None


@dataclass(frozen=True)
class _Chain:
    """Filters and projections over ``base``: their conditions and output columns as expressions over
    ``base``."""

    base: n.Node
    conditions: list[Expr]
    outputs: list[Expr]

    @classmethod
    def of(cls, node: n.Node) -> _Chain:
        steps: list[n.Filter | n.Project] = []
        base = node
        while isinstance(base, (n.Filter, n.Project)):
            steps.append(base)
            base = base.input
        conditions: list[Expr] = []
        outputs = identity(base)
        for step in reversed(steps):
            if isinstance(step, n.Filter):
                conditions += [substitute(part, outputs) for part in conjuncts(step.condition)]
            else:
                outputs = [substitute(e, outputs) for e in step.expressions]
        return cls(base, conditions, outputs)


@dataclass(frozen=True)
class _Among:
    """Two relations; each row of the first is a row of the second, too."""

    few: _Chain
    many: _Chain

    def same(self, of_few: int, of_many: int) -> bool:
        """Whether two columns have the same value."""
        a, b = self.few.outputs[of_few], self.many.outputs[of_many]
        return same(a, b) and is_deterministic(a)


def _among(few: n.Node, many: n.Node) -> _Among | None:
    """The relation of two nodes that read one node, if every filter of ``many`` also filters ``few``;
    otherwise None."""
    a, b = _Chain.of(few), _Chain.of(many)
    if a.base is not b.base:
        return None
    if few is not many:
        kept = all(
            is_deterministic(part) and position(part, a.conditions) is not None for part in b.conditions
        )
        if not kept:
            return None
    return _Among(a, b)


def _value(join: n.Join, maximum: set[int]) -> int | None:
    """The column of which the condition demands ``left.value >= right.maximum`` (or ``=``)."""
    for a, b in zip(join.left_keys, join.right_keys, strict=True):
        if b in maximum:
            return a
    width = len(join.left.schema)
    for part in conjuncts(join.condition):
        if not isinstance(part, Call) or len(part.args) != 2:
            continue
        one, two, op = part.args[0], part.args[1], part.function
        if not isinstance(one, InputRef) or not isinstance(two, InputRef):
            continue
        if one.index >= width:
            one, two, op = two, one, {">=": "<=", "<=": ">="}.get(op, op)
        if one.index < width and two.index - width in maximum and op in (">=", "="):
            return one.index
    return None


def _carried_window(
    join: n.Join, node: n.WindowAggregate, value: int, rows: _Among, analysis: Analysis
) -> WindowMaximumSpec | None:
    """The spec for rows that carry their window and are joined on it; None if they are not."""
    window = analysis.of(join.left).window
    if join.window is None or window is None or window.spec.time is None or window.end is None:
        return None
    assert node.windowed_input is not None
    if window.spec.kind not in ("tumble", "hop"):
        return None
    if not all(rows.same(a, b) for a, b in zip(join.window[0], node.windowed_input, strict=True)):
        return None
    return WindowMaximumSpec(value=value, time=window.end)


def _own_window(
    join: n.Join, node: n.WindowAggregate, value: int, rows: _Among, origin: list[int | None]
) -> WindowMaximumSpec | None:
    """The spec for rows with a time that are joined with their tumbling window; None if they are not."""
    window = node.window
    if join.interval is None or window.kind != "tumble" or window.time is None or window.time < 0:
        return None
    time, bound, low, high = join.interval
    if not rows.same(time, window.time) or "end" not in node.window_columns:
        return None
    # The aggregate's columns are the maximum, then the window's columns.
    if origin[bound] != 1 + node.window_columns.index("end") or low < 0 or high > window.size_us:
        return None
    return WindowMaximumSpec(value=value, time=time, window=msgspec.structs.replace(window, time=time))
