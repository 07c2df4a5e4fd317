"""Rules on single nodes: merging projections, windows, Top-N, interval and window joins."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, FieldAccess, InputRef, Literal, input_refs, transform
from penstock.functions.registry import is_deterministic, make_call
from penstock.plan import nodes as n
from penstock.plan.operators.filter.node import filtered
from penstock.plan.operators.join.pushdown import grown, narrowed, wide_schema
from penstock.plan.operators.project.appending import append_columns
from penstock.plan.properties import constant_shift
from penstock.plan.rewriting import conjunction, conjuncts, identity, position, reads, substitute
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.jobgraph.specs import WindowSpec
    from penstock.plan.properties import Analysis

replace = msgspec.structs.replace


def merge_projects(node: n.Node) -> n.Node:
    """Merges a projection over a projection into one. Removes a projection of all columns under the same
    names."""
    if not isinstance(node, n.Project):
        return node
    inner = node.input
    if isinstance(inner, n.Project) and _cheap_to_inline(node, inner):
        node = replace(
            node,
            input=inner.input,
            expressions=tuple(substitute(e, inner.expressions) for e in node.expressions),
        )
    same = node.schema.names == node.input.schema.names and list(node.expressions) == identity(node.input)
    return node.input if same else node


def _cheap_to_inline(outer: n.Project, inner: n.Project) -> bool:
    """Whether the inner projection's expressions can move into the outer one: none would be computed twice,
    and those that are used are deterministic."""
    uses = Counter(column for expr in outer.expressions for column in reads(expr))
    return all(
        isinstance(inner.expressions[i], (InputRef, Literal, FieldAccess))
        or (count == 1 and is_deterministic(inner.expressions[i]))
        or _is_clock(inner.expressions[i])
        for i, count in uses.items()
    )


def _is_clock(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function == "PROCTIME"


def merge_window_table(node: n.Node) -> n.Node:
    """A window aggregate right above its window table assigns the windows itself.

    Filters and projections between the two move below if they do not read the window; filters of the window
    alone move above.
    """
    if not isinstance(node, n.WindowAggregate) or node.windowed_input is None:
        return node
    steps: list[n.Filter | n.Project] = []
    table: n.Node = node.input
    while isinstance(table, (n.Filter, n.Project)):
        steps.append(table)
        table = table.input
    if not isinstance(table, n.WindowTable):
        return node
    session = table.window.kind == "session"
    if session and not _same_session_keys(node, steps, table):
        return node  # The sessions of more rows, or of fewer, than those of a group.
    width = len(table.input.schema)
    sides = {width, width + 1, width + 2}
    # The origin of each column of the current step, as an expression over the table's input.
    exprs: list[Expr] = identity(table)
    conditions: list[Expr] = []
    of_windows: list[Expr] = []
    for step in reversed(steps):
        if isinstance(step, n.Filter):
            for part in conjuncts(substitute(step.condition, exprs)):
                if not input_refs(part) & sides:
                    if session and not input_refs(part) <= set(table.keys):
                        return node  # Leaving a row out could split its session in two.
                    conditions.append(part)
                elif input_refs(part) <= sides and is_deterministic(part):
                    of_windows.append(part)
                else:
                    return node
        else:
            exprs = [substitute(e, exprs) for e in step.expressions]
    needed = {*node.keys, *(a for c in node.aggregates for a in c.args)}
    needed |= {c.filter for c in node.aggregates if c.filter is not None}
    if any(input_refs(exprs[i]) & sides for i in needed):
        return node
    start, end = node.windowed_input
    if exprs[start] != InputRef(width, exprs[start].type) or exprs[end] != InputRef(
        width + 1, exprs[end].type
    ):
        return node
    at = _window_columns(node, width)
    if not all(input_refs(part) <= set(at) for part in of_windows):
        return node
    base = filtered(table.input, conditions)
    columns: dict[int, int] = {}
    extra: list[Expr] = []
    for i in sorted(needed):
        expr = exprs[i]
        if isinstance(expr, InputRef):
            columns[i] = expr.index
        else:
            known = position(expr, extra)
            if known is None:
                extra.append(expr)
                known = len(extra) - 1
            columns[i] = width + known
    if extra:
        base = append_columns(base, extra)
    merged = replace(
        node,
        input=base,
        window=table.window,
        keys=tuple(columns[k] for k in node.keys),
        aggregates=tuple(
            replace(
                c,
                args=tuple(columns[a] for a in c.args),
                filter=columns[c.filter] if c.filter is not None else None,
            )
            for c in node.aggregates
        ),
        windowed_input=None,
    )
    types = node.schema.types
    above = [
        transform(part, lambda e: InputRef(at[e.index], types[at[e.index]]) if isinstance(e, InputRef) else e)
        for part in of_windows
    ]
    return filtered(merged, above)


def _window_columns(node: n.WindowAggregate, width: int) -> dict[int, int]:
    """Window column of the window table (at ``width`` or above) → the aggregate's column with the same
    value."""
    first = len(node.keys) + len(node.aggregates)
    names = ("start", "end", "time")
    return {width + names.index(name): first + i for i, name in enumerate(node.window_columns)}


def _same_session_keys(
    node: n.WindowAggregate, steps: list[n.Filter | n.Project], table: n.WindowTable
) -> bool:
    exprs: list[Expr] = identity(table)
    for step in reversed(steps):
        if isinstance(step, n.Project):
            exprs = [substitute(e, exprs) for e in step.expressions]
    grouped = [exprs[k] for k in node.keys]
    keys = {e.index if isinstance(e, InputRef) else -1 for e in grouped}
    return keys == set(table.keys)


def rank_to_top_n(node: n.Node, analysis: Analysis) -> n.Node:
    """Makes a Top-N of ``rank <= n`` over ROW_NUMBER, RANK or DENSE_RANK."""
    if not isinstance(node, n.Filter) or not isinstance(node.input, n.Over):
        return node
    over = node.input
    if len(over.aggregates) != 1 or over.aggregates[0].function not in ("ROW_NUMBER", "RANK", "DENSE_RANK"):
        return node
    rank = len(over.input.schema)
    first, last, rest = 1, None, []
    for part in conjuncts(node.condition):
        bound = _rank_bound(part, rank)
        if bound is None:
            rest.append(part)
            continue
        low, high = bound
        first = max(first, low) if low is not None else first
        if high is not None:
            last = high if last is None else min(last, high)
    if last is None:
        return node
    window = analysis.of(over.input).window
    at = None
    if window is not None and window.start in over.partition and window.end in over.partition:
        at = (window.start, window.end)
    top = n.TopN(
        input=over.input,
        partition=over.partition,
        order=over.order,
        first=first,
        last=last,
        rank=over.aggregates[0].function.lower(),  # type: ignore[arg-type]
        rank_column=True,
        window=at,
        schema=over.schema,
    )
    return filtered(top, rest)


def _rank_bound(part: Expr, rank: int) -> tuple[int | None, int | None] | None:
    if not isinstance(part, Call) or len(part.args) != 2:
        return None
    left, right = (_uncast(a) for a in part.args)
    op = part.function
    if isinstance(left, Literal):
        left, right = right, left
        op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    if not isinstance(left, InputRef) or left.index != rank or not isinstance(right, Literal):
        return None
    if not isinstance(right.value, int) or not isinstance(right.type, t.INTEGERS):
        return None
    value = right.value
    return {"=": (value, value), "<=": (None, value), "<": (None, value - 1), ">=": (value, None),
            ">": (value + 1, None)}.get(op)  # fmt: skip


def _uncast(expr: Expr) -> Expr:
    while isinstance(expr, Call) and expr.function == "CAST" and isinstance(expr.type, t.INTEGERS):
        expr = expr.args[0]
    return expr


def recognise_join(node: n.Node, analysis: Analysis) -> n.Node:
    """Turns a join into a window join or an interval join, if its condition allows that."""
    if not isinstance(node, n.Join) or node.interval is not None or node.window is not None:
        return node
    left, right = analysis.of(node.left), analysis.of(node.right)
    if left.updating or right.updating or left.timeline != right.timeline:
        return node
    return _window_join(node, analysis) or _interval_join(node, analysis) or node


def _window_join(node: n.Join, analysis: Analysis) -> n.Join | None:
    left, right = analysis.of(node.left).window, analysis.of(node.right).window
    if left is None or right is None or not _same_window(left.spec, right.spec):
        return None
    pairs = list(zip(node.left_keys, node.right_keys, strict=True))
    wanted = [(left.start, right.start), (left.end, right.end)]
    if any(None in pair or pair not in pairs for pair in wanted):
        return None
    rest = [p for p in pairs if p not in wanted and p != (left.time, right.time)]
    return replace(
        node,
        left_keys=tuple(a for a, _ in rest),
        right_keys=tuple(b for _, b in rest),
        window=((left.start, left.end), (right.start, right.end)),
    )


def _same_window(a: WindowSpec, b: WindowSpec) -> bool:
    if (a.time is None) != (b.time is None):
        return False
    return replace(a, time=0) == replace(b, time=0)


def _interval_join(node: n.Join, analysis: Analysis) -> n.Node | None:
    """Makes an interval join of comparisons of time columns: ``right BETWEEN left + low AND left + high``."""
    width = len(node.left.schema)
    left, right = analysis.of(node.left).lags, analysis.of(node.right).lags
    bounds: dict[tuple[int, int], list[int | None]] = {}
    used: dict[tuple[int, int], list[Expr]] = {}
    for part in conjuncts(node.condition):
        found = _time_bound(part, width, left, right)
        if found is None:
            continue
        pair, low, high = found
        entry = bounds.setdefault(pair, [None, None])
        if low is not None:
            entry[0] = low if entry[0] is None else max(entry[0], low)
        if high is not None:
            entry[1] = high if entry[1] is None else min(entry[1], high)
        used.setdefault(pair, []).append(part)
    for a, b in zip(node.left_keys, node.right_keys, strict=True):
        if a in left and b in right:
            bounds[(a, b)] = [0, 0]
    complete = [
        (pair, low, high) for pair, (low, high) in bounds.items() if low is not None and high is not None
    ]
    if not complete:
        return None
    (a, b), low, high = min(complete, key=lambda item: item[2] - item[1])
    residual = [p for p in conjuncts(node.condition) if p not in used.get((a, b), [])]
    return _with_time_columns(node, a, b, low, high, residual, left, right)


def _time_bound(
    part: Expr, width: int, left: dict[int, int], right: dict[int, int]
) -> tuple[tuple[int, int], int | None, int | None] | None:
    if not isinstance(part, Call) or part.function not in ("<", "<=", ">", ">=", "="):
        return None
    one, two = constant_shift(part.args[0]), constant_shift(part.args[1])
    if one is None or two is None:
        return None
    op = part.function
    if one[0] < width <= two[0]:
        one, two = two, one
        op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    if not (two[0] < width <= one[0]):
        return None
    a, b = two[0], one[0] - width
    if a not in left or b not in right:
        return None
    # right.b + one[1]  op  left.a + two[1]   →   right.b - left.a  op  two[1] - one[1]
    distance = two[1] - one[1]
    low = high = None
    if op in (">", ">=", "="):
        low = distance + (1 if op == ">" else 0)
    if op in ("<", "<=", "="):
        high = distance - (1 if op == "<" else 0)
    return (a, b), low, high


def _with_time_columns(
    node: n.Join, a: int, b: int, low: int, high: int, residual: list[Expr],
    left: dict[int, int], right: dict[int, int],
) -> n.Node:  # fmt: skip
    """Replaces a time column that lags behind the watermark (window_start) by a shifted copy that does not,
    so that the watermark can drop state."""
    width = len(node.left.schema)
    new_left, new_right = node.left, node.right
    more = 0
    if left[a] > 0:
        new_left, a, low, high = (
            _shifted(node.left, a, left[a]),
            len(node.left.schema),
            low - left[a],
            high - left[a],
        )
        more = 1
    if right[b] > 0:
        new_right, b, low, high = (
            _shifted(node.right, b, right[b]),
            len(node.right.schema),
            low + right[b],
            high + right[b],
        )
    condition = conjunction(residual)
    if more and condition is not None:
        condition = grown(condition, width, more)
    schema = node.schema
    if node.kind in ("semi", "anti"):
        schema = new_left.schema
    elif new_left is not node.left or new_right is not node.right:
        schema = wide_schema(node, new_left, new_right, width)
    joined = replace(
        node, left=new_left, right=new_right, condition=condition, interval=(a, b, low, high), schema=schema
    )
    if len(schema) == len(node.schema):
        return joined
    return narrowed(joined, node, len(new_left.schema), width)


def _shifted(node: n.Node, column: int, by_us: int) -> n.Project:
    type_ = node.schema.types[column]
    literal = Literal(by_us, t.DayTimeIntervalType(nullable=False))
    return append_columns(node, [make_call("+", [InputRef(column, type_), literal])])
