"""Whether a logical plan is sound: every column that a node names is its input's, and of that type.

Run after every rule of the optimiser, so that a rule that breaks a plan is named, and no broken plan
becomes a job. Only nodes that a rule made are looked at, so it costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.functions.expr import FieldAccess, InputRef, children
from penstock.jobgraph.graph import Hash
from penstock.plan import nodes as n
from penstock.plan.join_keys import stored_alike
from penstock.plan.rewriting import walk
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.functions.expr import AggregateCall, Expr
    from penstock.types.logical import LogicalType, Schema

REMEDY = "this is a mistake of Penstock's: report it with the statement; nothing was started"


class PlanChecker:
    """The checks of one optimisation. ``after(rule, roots)`` gives the roots back, or raises an
    InternalError that names the rule."""

    def __init__(self, roots: Sequence[n.Node]) -> None:
        self._sound: dict[int, n.Node] = {}
        self._outputs = [_columns(root.schema) for root in roots]
        self._clocks = _clocks(walk(roots))
        self.after("translation of the statement", roots)

    def after(self, rule: str, roots: Sequence[n.Node]) -> list[n.Node]:
        outputs = [_columns(root.schema) for root in roots]
        if outputs[: len(self._outputs)] != self._outputs:
            raise _broken(rule, "the plan's outputs", str(self._outputs), str(outputs))
        self._outputs = outputs
        nodes = walk(roots)
        clocks = _clocks(nodes)
        if not self._clocks <= clocks:
            raise _broken(rule, "event time", ", ".join(sorted(self._clocks)), ", ".join(sorted(clocks)))
        self._clocks = clocks
        for node in nodes:
            if id(node) not in self._sound:
                try:
                    check_node(node)
                except _Unsound as err:
                    raise _broken(rule, type(node).__name__, err.expected, err.got) from None
                # Kept, so that its id stays its own.
                self._sound[id(node)] = node
        return list(roots)


def _broken(rule: str, where: str, expected: str, got: str) -> InternalError:
    return InternalError(
        f"the rule '{rule}' of the planner made a plan that is not sound",
        expected=expected,
        got=got,
        where=where,
        remedy=REMEDY,
    )


def _clocks(nodes: Iterable[n.Node]) -> frozenset[str]:
    """Where watermarks come from."""
    return frozenset(
        f"watermarks of table '{node.table.name}'" if isinstance(node, n.Scan) else type(node).__name__
        for node in nodes
        if (isinstance(node, n.Scan) and node.table.watermark is not None)
        or isinstance(node, (n.AssignWatermarks, n.LocalTime))
    )


class _Unsound(Exception):
    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected = expected
        self.got = got


def _columns(schema: Schema) -> list[LogicalType]:
    return [f.type.with_nullable(True) for f in schema.fields]


def check_node(node: n.Node) -> None:
    """Over the schemas that its inputs say they have."""
    own = node.schema.types
    names = node.schema.names
    if len(set(names)) != len(names):
        raise _Unsound("columns of different names", str(names))
    if node.schema.rowtime is not None and node.schema.rowtime not in names:
        raise _Unsound(f"a column '{node.schema.rowtime}' (the event time)", str(names))
    match node:
        case n.Scan():
            _scan(node)
        case n.Values():
            pass
        case n.Filter():
            _expression(node.condition, node.input.schema.types)
            _type(node.condition.type, t.BooleanType(), "the condition")
            _types(own, node.input.schema.types)
        case n.Project():
            for expr in node.expressions:
                _expression(expr, node.input.schema.types)
            _types(own, [e.type for e in node.expressions])
        case n.Expand():
            for one in node.projections:
                for expr in one:
                    _expression(expr, node.input.schema.types)
                _types(own, [e.type for e in one])
        case n.AssignWatermarks():
            _times(node.watermark, node.schema)
            _types(own, node.input.schema.types)
        case n.LocalTime():
            given = node.input.schema.types
            _indices([node.time], given)
            _type(given[node.time], t.TimestampLtzType(), "the time", exact=False)
            _appended(own, given, 1)
        case n.WindowTable():
            given = node.input.schema.types
            _indices(node.keys, given)
            _indices([] if node.window.time is None else [node.window.time], given)
            _appended(own, given, 3)
        case n.Aggregate() | n.WindowAggregate():
            _aggregate(node)
        case n.Join() | n.TemporalJoin():
            _join(node)
        case n.Union_():
            for child in node.inputs:
                _types(own, child.schema.types)
        case n.SetOperation():
            _types(own, node.left.schema.types)
            _types(own, node.right.schema.types)
        case n.Sort():
            _indices([k.index for k in node.order], own)
            _types(own, node.input.schema.types)
        case n.Limit():
            _types(own, node.input.schema.types)
        case n.TopN():
            given = node.input.schema.types
            _indices([*node.partition, *(k.index for k in node.order), *(node.window or ())], given)
            _appended(own, given, 1 if node.rank_column else 0)
        case n.Over():
            given = node.input.schema.types
            _indices([*node.partition, *(k.index for k in node.order)], given)
            _calls(node.aggregates, given)
            _types(own, [*given, *(c.type for c in node.aggregates)])
        case n.Correlate():
            given = node.input.schema.types
            for expr in node.args:
                _expression(expr, given)
            _types(own[: len(given)], given)
        case n.AsyncCalc():
            given = node.input.schema.types
            for expr in node.calls:
                _expression(expr, given)
            _types(own, [*given, *(c.type for c in node.calls)])
        case n.Transform():
            for child, way in zip(node.inputs, node.partitioning, strict=False):
                if isinstance(way, Hash):
                    _indices(way.keys, child.schema.types)
        case n.SideOutput():
            inner = node.input
            tags = [inner.late_tag] if isinstance(inner, n.WindowAggregate) else None
            tags = list(inner.side_outputs) if isinstance(inner, n.Transform) else tags
            if tags is not None and node.tag not in tags:
                raise _Unsound(f"side outputs of the input: {tags}", node.tag)
        case n.Sink():
            _indices(node.upsert_keys, own)
            _types(node.table.schema.types, own)
            _types(own, node.input.schema.types)


def _scan(node: n.Scan) -> None:
    table = node.table
    columns = node.projection if node.projection is not None else tuple(range(len(table.schema)))
    _indices(columns, table.schema.types)
    _types(node.schema.types, [table.schema.types[c] for c in columns])
    mark = table.watermark
    wanted = {mark.rowtime} if mark is not None and mark.rowtime is not None else set()
    if not wanted <= set(columns):
        raise _Unsound(f"the event-time column {wanted} among the columns that are read", str(columns))
    if table.computed is not None:
        below = [*table.physical.types]
        for expr in table.computed:
            _within(expr, len(below) + len(table.metadata))
        _types(table.schema.types, [e.type for e in table.computed])


def _times(mark: n.WatermarkSpec, schema: Schema) -> None:
    _indices([] if mark.rowtime is None else [mark.rowtime], schema.types)
    if mark.expr is not None:
        _expression(mark.expr, schema.types)


def _aggregate(node: n.Aggregate | n.WindowAggregate) -> None:
    given = node.input.schema.types
    _indices(node.keys, given)
    _calls(node.aggregates, given)
    own = node.schema.types
    expected = [*(given[k] for k in node.keys), *(c.type for c in node.aggregates)]
    if isinstance(node, n.Aggregate):
        _types(own, expected)
        return
    _indices(node.windowed_input or (), given)
    if node.windowed_input is None and node.window.time is not None:
        _indices([node.window.time], given)
    _appended(own, expected, len(node.window_columns))


def _join(node: n.Join | n.TemporalJoin) -> None:
    left, right = node.left.schema.types, node.right.schema.types
    _indices(node.left_keys, left)
    _indices(node.right_keys, right)
    if len(node.left_keys) != len(node.right_keys):
        raise _Unsound(f"as many right keys as left ones ({node.left_keys})", str(node.right_keys))
    for a, b in zip(node.left_keys, node.right_keys, strict=True):
        if not stored_alike(left[a], right[b]):
            raise _Unsound(
                f"join keys that are stored alike (left column {a}: {left[a]})", f"column {b}: {right[b]}"
            )
    if node.condition is not None:
        _expression(node.condition, [*left, *right])
        _type(node.condition.type, t.BooleanType(), "the condition")
    if isinstance(node, n.TemporalJoin):
        _indices([] if node.left_time is None else [node.left_time], left)
        _indices([] if node.right_time is None else [node.right_time], right)
    else:
        if node.interval is not None:
            _indices([node.interval[0]], left)
            _indices([node.interval[1]], right)
        if node.window is not None:
            _indices(node.window[0], left)
            _indices(node.window[1], right)
    one_sided = node.kind in ("semi", "anti")
    _types(node.schema.types, left if one_sided else [*left, *right])


def _calls(calls: Iterable[AggregateCall], given: Sequence[LogicalType]) -> None:
    for call in calls:
        _indices(call.args, given)
        if call.filter is not None:
            _indices([call.filter], given)
            _type(given[call.filter], t.BooleanType(), f"the filter of {call.function}")


def _within(expr: Expr, width: int) -> None:
    if isinstance(expr, InputRef) and not 0 <= expr.index < width:
        raise _Unsound(f"one of {width} columns", f"column {expr.index}")
    for child in children(expr):
        _within(child, width)


def _expression(expr: Expr, given: Sequence[LogicalType]) -> None:
    """Its columns are there and of the types that it says; fields likewise."""
    if isinstance(expr, InputRef):
        _indices([expr.index], given)
        _type(expr.type, given[expr.index], f"column {expr.index}")
        return
    if isinstance(expr, FieldAccess):
        row = expr.arg.type
        if not isinstance(row, t.RowType) or not 0 <= expr.index < len(row.fields):
            raise _Unsound(f"a row with a field {expr.index}", str(row))
        _type(expr.type, row.fields[expr.index].type, f"field {expr.index} of {row}")
    for child in children(expr):
        _expression(child, given)


def _indices(columns: Iterable[int], given: Sequence[LogicalType]) -> None:
    for column in columns:
        if not 0 <= column < len(given):
            raise _Unsound(f"one of the input's {len(given)} columns", f"column {column}")


def _types(own: Sequence[LogicalType], given: Sequence[LogicalType]) -> None:
    if len(own) != len(given):
        raise _Unsound(f"{len(given)} columns ({_listed(given)})", f"{len(own)} columns ({_listed(own)})")
    for i, (a, b) in enumerate(zip(own, given, strict=True)):
        _type(a, b, f"column {i}")


def _appended(own: Sequence[LogicalType], given: Sequence[LogicalType], count: int) -> None:
    """The input's columns, then ``count`` of the node's own."""
    if len(own) != len(given) + count:
        raise _Unsound(f"{len(given)} columns and {count} more", f"{len(own)} columns ({_listed(own)})")
    _types(own[: len(given)], given)


def _type(own: LogicalType, given: LogicalType, what: str, *, exact: bool = True) -> None:
    """Nullability apart: rules learn that a column is never NULL."""
    if own is given or (type(own) is type(given) if not exact else _same(own, given)):
        return
    raise _Unsound(f"{what}: {given}", str(own))


def _same(a: LogicalType, b: LogicalType) -> bool:
    return a == b or a.with_nullable(True) == b.with_nullable(True)


def _listed(types: Sequence[LogicalType]) -> str:
    return ", ".join(map(str, types))
