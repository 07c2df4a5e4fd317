"""A join of rows with the maximum of their window.

``FROM x JOIN (SELECT MAX(v), … FROM x GROUP BY window) m ON x.v = m.v AND <x in m's window>``
asks for the top of each window, ties included. Of both inputs only rows matter that no
earlier row of their window and subtask has beaten, so they are dropped right where they
are made: what crosses the exchange, waits in the join and is read by the (global, parallelism
1) maximum is a handful of rows a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Call, Expr, InputRef
from penstock.jobgraph.specs import WindowMaximumSpec
from penstock.plan import nodes as n
from penstock.plan.rewriting import conjuncts

if TYPE_CHECKING:
    from penstock.plan.properties import Analysis


def rows_of_maximum(join: n.Join, analysis: Analysis) -> WindowMaximumSpec | None:
    """What may be dropped of ``join.left``, which feeds the maximum on the right as well."""
    if join.kind not in ("inner", "semi") or (join.window is None and join.interval is None):
        return None
    node: n.Node = join.right
    exprs: list[Expr] = [InputRef(i, type_) for i, type_ in enumerate(node.schema.types)]
    while isinstance(node, n.Project):
        exprs = [node.expressions[e.index] if isinstance(e, InputRef) else e for e in exprs]
        node = node.input
    if not isinstance(node, n.WindowAggregate) or node.input is not join.left:
        return None
    if node.keys or len(node.aggregates) != 1 or node.late_tag or node.allowed_lateness_us:
        return None
    call = node.aggregates[0]
    if call.function.upper() != "MAX" or call.filter is not None or call.python is not None:
        return None
    known = analysis.of(join.left)
    if known.updating or call.args[0] in known.proctimes:
        return None
    origin = [e.index if isinstance(e, InputRef) else None for e in exprs]
    maximum = {i for i, column in enumerate(origin) if column == 0}
    if not _on_value(join, call.args[0], maximum):
        return None
    if node.windowed_input is not None:
        return _carried_window(join, node, call.args[0], analysis)
    return _own_window(join, node, call.args[0], origin)


def _on_value(join: n.Join, value: int, maximum: set[int]) -> bool:
    """The condition demands ``left.value >= right.maximum`` (or ``=``)."""
    if any(a == value and b in maximum for a, b in zip(join.left_keys, join.right_keys, strict=True)):
        return True
    width = len(join.left.schema)
    for part in conjuncts(join.condition):
        if not isinstance(part, Call) or len(part.args) != 2:
            continue
        one, two, op = part.args[0], part.args[1], part.function
        if not isinstance(one, InputRef) or not isinstance(two, InputRef):
            continue
        if one.index >= width:
            one, two, op = two, one, {">=": "<=", "<=": ">="}.get(op, op)
        if one.index == value and two.index - width in maximum and op in (">=", "="):
            return True
    return False


def _carried_window(
    join: n.Join, node: n.WindowAggregate, value: int, analysis: Analysis
) -> WindowMaximumSpec | None:
    """Rows that carry their window, joined on it."""
    window = analysis.of(join.left).window
    if join.window is None or window is None or window.spec.time is None or window.end is None:
        return None
    if window.spec.kind not in ("tumble", "hop") or join.window[0] != node.windowed_input:
        return None
    return WindowMaximumSpec(value=value, time=window.end)


def _own_window(
    join: n.Join, node: n.WindowAggregate, value: int, origin: list[int | None]
) -> WindowMaximumSpec | None:
    """Rows with a time, joined with the tumbling window that they lie in."""
    window = node.window
    if join.interval is None or window.kind != "tumble" or window.time is None or window.time < 0:
        return None
    time, bound, low, high = join.interval
    if time != window.time or "end" not in node.window_columns:
        return None
    # Columns of the aggregate: the maximum, then those of the window.
    if origin[bound] != 1 + node.window_columns.index("end") or low < 0 or high > window.size_us:
        return None
    return WindowMaximumSpec(value=value, time=time, window=window)
