"""What is known of a node's output: boundedness, time, windows, unique keys, changelog.

The binder asks it for time attributes and windows, the optimiser for interval bounds,
the physical planner for changelog modes. All of it is derived, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.jobgraph.specs import CollectionSourceSpec, WindowSpec
from penstock.plan import nodes as n
from penstock.types.logical import INTERVALS, LogicalType, YearMonthIntervalType

MS = 1_000


@dataclass(frozen=True, slots=True)
class WindowProperty:
    """Columns that carry a window: indices, None when projected away."""

    spec: WindowSpec
    start: int | None
    end: int | None
    time: int | None

    def moved(self, mapping: dict[int, int]) -> WindowProperty | None:
        move = {name: mapping.get(i) if i is not None else None
                for name, i in (("start", self.start), ("end", self.end), ("time", self.time))}  # fmt: skip
        if all(i is None for i in move.values()):
            return None
        return WindowProperty(self.spec, **move)


@dataclass(frozen=True, slots=True)
class Properties:
    """``lags``: column → µs such that value + lag > watermark holds for every row to come
    (rowtime: 0; window_start of a 10 s window: 10 s). ``rowtimes`` ⊆ lags: usable as a time
    attribute. ``updating``: not append-only. ``unique``: sets of columns that are a key.
    ``timeline``: the time zone on whose clock watermarks are; empty = UTC."""

    bounded: bool = False
    lags: dict[int, int] = field(default_factory=dict)
    rowtimes: frozenset[int] = frozenset()
    proctimes: frozenset[int] = frozenset()
    window: WindowProperty | None = None
    updating: bool = False
    unique: tuple[frozenset[int], ...] = ()
    timeline: str = ""

    def moved(self, mapping: dict[int, int]) -> Properties:
        """Over another column layout: old index → new index."""
        return replace(
            self,
            lags={mapping[i]: lag for i, lag in self.lags.items() if i in mapping},
            rowtimes=frozenset(mapping[i] for i in self.rowtimes if i in mapping),
            proctimes=frozenset(mapping[i] for i in self.proctimes if i in mapping),
            window=self.window.moved(mapping) if self.window else None,
            unique=tuple(
                frozenset(mapping[i] for i in key) for key in self.unique if all(i in mapping for i in key)
            ),
        )


class Analysis:
    """Properties of every node of a plan, computed once each.

    ``final``: the job gives final rows once, at the end of its bounded inputs: aggregates
    do not update."""

    def __init__(self, *, final: bool = False) -> None:
        self.final = final
        self._memo: dict[int, tuple[n.Node, Properties]] = {}

    def of(self, node: n.Node) -> Properties:
        found = self._memo.get(id(node))
        if found is None:
            found = (node, self._derive(node))
            self._memo[id(node)] = found
        return found[1]

    def _derive(self, node: n.Node) -> Properties:
        match node:
            case n.Scan():
                return _scan(node)
            case n.Values():
                return Properties(bounded=True)
            case n.Filter() | n.Limit() | n.AsyncCalc() | n.Sink():
                return self.of(node.input)
            case n.Sort():
                return self._sort(node)
            case n.AssignWatermarks():
                inner = self.of(node.input)
                at = node.watermark.rowtime
                if at is None:
                    return inner
                return replace(inner, lags={at: 0}, rowtimes=frozenset({at}))
            case n.LocalTime():
                inner = self.of(node.input)
                new = len(node.input.schema)
                # Other times are on another clock than the watermarks now.
                return replace(
                    inner, lags={new: 0}, rowtimes=frozenset({new}), window=None, timeline=node.zone
                )
            case n.Project():
                return _project(node, self.of(node.input))
            case n.WindowTable():
                return _window_table(node, self.of(node.input))
            case n.Expand():
                inner = self.of(node.input)
                return Properties(bounded=inner.bounded, updating=inner.updating)
            case n.Aggregate():
                return self._aggregate(node)
            case n.WindowAggregate():
                return self._window_aggregate(node)
            case n.Join():
                return self._join(node)
            case n.TemporalJoin():
                left, right = self.of(node.left), self.of(node.right)
                one_at_most = any(key <= set(node.right_keys) for key in right.unique)
                return left if one_at_most else replace(left, unique=())
            case n.Union_():
                return self._union(node)
            case n.SetOperation():
                both = (self.of(node.left), self.of(node.right))
                everything = frozenset(range(len(node.schema)))
                return Properties(
                    bounded=all(p.bounded for p in both),
                    updating=True,
                    unique=() if node.all else (everything,),
                )
            case n.TopN():
                return self._top_n(node)
            case n.Over() | n.Correlate():
                inner = self.of(node.input)
                return inner if isinstance(node, n.Over) else replace(inner, unique=())
            case n.Transform():
                inputs = [self.of(i) for i in node.inputs]
                bounded = (
                    all(p.bounded for p in inputs) if inputs else isinstance(node.spec, CollectionSourceSpec)
                )
                return Properties(bounded=bounded)
            case n.SideOutput():
                if isinstance(node.input, n.WindowAggregate):
                    return replace(self.of(node.input.input), updating=False)
                return Properties(bounded=self.of(node.input).bounded)
        raise AssertionError(node)

    def _aggregate(self, node: n.Aggregate) -> Properties:
        inner = self.of(node.input)
        keys = frozenset(range(len(node.keys)))
        # Without aggregates a key never changes once seen: DISTINCT of an append-only input is append-only.
        distinct_only = not node.aggregates and not inner.updating and bool(node.keys)
        return Properties(
            bounded=inner.bounded,
            updating=not distinct_only and not self.final,
            unique=(keys,),
        )

    def _window_aggregate(self, node: n.WindowAggregate) -> Properties:
        inner = self.of(node.input)
        first = len(node.keys) + len(node.aggregates)
        at = {name: first + i for i, name in enumerate(node.window_columns)}
        window = WindowProperty(node.window, at.get("start"), at.get("end"), at.get("time"))
        lags, rowtimes, proctimes = _window_times(node.window, window)
        keys = frozenset(range(len(node.keys)))
        unique = tuple(keys | {at[side]} for side in ("end", "start", "time") if side in at)
        return Properties(
            bounded=inner.bounded,
            lags=lags,
            rowtimes=rowtimes,
            proctimes=proctimes,
            window=window,
            unique=unique,
            timeline=inner.timeline,
        )

    def _join(self, node: n.Join) -> Properties:
        left, right = self.of(node.left), self.of(node.right)
        bounded = left.bounded and right.bounded
        width = len(node.left.schema)
        shifted = right.moved({i: i + width for i in range(len(node.right.schema))})
        one_sided = node.kind in ("semi", "anti")
        unique = left.unique if one_sided else _join_keys(node, left, right, shifted)
        if node.interval or node.window:
            lags = dict(left.lags) if one_sided else {**left.lags, **shifted.lags}
            rowtimes = left.rowtimes if one_sided else left.rowtimes | shifted.rowtimes
            keeps = left.window if node.window else None
            return Properties(
                bounded=bounded,
                lags=lags,
                rowtimes=rowtimes,
                window=keeps,
                unique=unique,
                timeline=left.timeline,
            )
        updating = left.updating or right.updating or node.kind not in ("inner", "semi")
        return Properties(bounded=bounded, updating=updating, unique=unique)

    def _union(self, node: n.Union_) -> Properties:
        inputs = [self.of(i) for i in node.inputs]
        if len({p.timeline for p in inputs}) > 1:
            # Watermarks of different clocks: their lowest says nothing of either.
            return Properties(
                bounded=all(p.bounded for p in inputs), updating=any(p.updating for p in inputs)
            )
        lags = {i: max(p.lags[i] for p in inputs) for i in inputs[0].lags if all(i in p.lags for p in inputs)}
        return Properties(
            bounded=all(p.bounded for p in inputs),
            lags=lags,
            rowtimes=frozenset.intersection(*(p.rowtimes for p in inputs)),
            proctimes=frozenset.intersection(*(p.proctimes for p in inputs)),
            window=inputs[0].window if all(p.window == inputs[0].window for p in inputs) else None,
            updating=any(p.updating for p in inputs),
            timeline=inputs[0].timeline,
        )

    def _sort(self, node: n.Sort) -> Properties:
        """With a limit the first rows change as others come, unless all come before any goes out."""
        inner = self.of(node.input)
        if self.final or node.limit is None:
            return inner
        return Properties(
            bounded=inner.bounded, proctimes=inner.proctimes, updating=True, unique=inner.unique
        )

    def _top_n(self, node: n.TopN) -> Properties:
        inner = self.of(node.input)
        unique = list(inner.unique)
        if node.last == 1 and node.rank == "row_number":
            unique.append(frozenset(node.partition))
        if node.rank_column and node.rank == "row_number":
            unique.append(frozenset(node.partition) | {len(node.input.schema)})
        if node.window:
            return replace(inner, unique=tuple(unique))
        return Properties(
            bounded=inner.bounded, proctimes=inner.proctimes, updating=True, unique=tuple(unique)
        )


def _scan(node: n.Scan) -> Properties:
    table = node.table
    columns = node.projection if node.projection is not None else tuple(range(len(table.schema)))
    position = {column: i for i, column in enumerate(columns)}
    lags: dict[int, int] = {}
    if table.watermark is not None and table.watermark.rowtime in position:
        lags[position[table.watermark.rowtime]] = 0
    names = table.schema.names
    key = [names.index(name) for name in table.primary_key]
    unique = (frozenset(position[i] for i in key),) if key and all(i in position for i in key) else ()
    computed = table.computed or ()
    proctimes = frozenset(position[i] for i, e in enumerate(computed) if i in position and is_proctime(e))
    return Properties(
        bounded=table.bounded, lags=lags, rowtimes=frozenset(lags), proctimes=proctimes, unique=unique
    )


def is_proctime(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function == "PROCTIME"


def constant_shift(expr: Expr) -> tuple[int, int] | None:
    """(column, µs) when the expression is ``column ± INTERVAL day-time``; casts between
    timestamps of one kind are looked through."""
    match expr:
        case InputRef(index=i):
            return i, 0
        case Call(function="CAST", args=(inner,), type=type_) if type(type_) is type(inner.type):
            return constant_shift(inner)
        case Call(function="+" | "-", args=(left, right)):
            sign = 1 if expr.function == "+" else -1
            if isinstance(left, Literal) and sign == 1:
                left, right = right, left
            if not isinstance(right, Literal) or not isinstance(right.type, INTERVALS):
                return None
            if isinstance(right.type, YearMonthIntervalType) or right.value is None:
                return None
            inner_shift = constant_shift(left)
            return (inner_shift[0], inner_shift[1] + sign * right.value) if inner_shift else None
    return None


def _project(node: n.Project, inner: Properties) -> Properties:
    mapping: dict[int, int] = {}
    lags: dict[int, int] = {}
    rowtimes: set[int] = set()
    proctimes: set[int] = set()
    for i, expr in enumerate(node.expressions):
        if isinstance(expr, InputRef):
            mapping.setdefault(expr.index, i)
            if expr.index in inner.lags:
                lags[i] = inner.lags[expr.index]
            if expr.index in inner.rowtimes:
                rowtimes.add(i)
            if expr.index in inner.proctimes:
                proctimes.add(i)
            continue
        if is_proctime(expr):
            proctimes.add(i)
            continue
        shift = constant_shift(expr)
        if shift and shift[0] in inner.lags:
            lags[i] = inner.lags[shift[0]] - shift[1]
    moved = inner.moved(mapping)
    return replace(moved, lags=lags, rowtimes=frozenset(rowtimes), proctimes=frozenset(proctimes))


def _window_times(
    spec: WindowSpec, window: WindowProperty
) -> tuple[dict[int, int], frozenset[int], frozenset[int]]:
    if spec.time is None:
        return {}, frozenset(), frozenset() if window.time is None else frozenset({window.time})
    lags: dict[int, int] = {}
    if window.time is not None:
        lags[window.time] = 0
    if window.end is not None:
        lags[window.end] = -MS
    if window.start is not None and spec.kind in ("tumble", "hop", "cumulate"):
        lags[window.start] = spec.size_us - MS
    rowtimes = frozenset() if window.time is None else frozenset({window.time})
    return lags, rowtimes, frozenset()


def _window_table(node: n.WindowTable, inner: Properties) -> Properties:
    first = len(node.input.schema)
    window = WindowProperty(node.window, first, first + 1, first + 2)
    lags, rowtimes, proctimes = _window_times(node.window, window)
    return Properties(
        bounded=inner.bounded,
        # Rows of a session come when it is over: behind the watermark.
        lags=lags if node.window.kind == "session" else {**inner.lags, **lags},
        rowtimes=rowtimes,
        proctimes=proctimes,
        window=window,
        updating=inner.updating,
        timeline=inner.timeline,
    )


def _join_keys(
    node: n.Join, left: Properties, right: Properties, shifted: Properties
) -> tuple[frozenset[int], ...]:
    out: list[frozenset[int]] = []
    right_fixed = any(key <= set(node.right_keys) for key in right.unique)
    left_fixed = any(key <= set(node.left_keys) for key in left.unique)
    if right_fixed and node.kind in ("inner", "left"):
        out.extend(left.unique)
    if left_fixed and node.kind in ("inner", "right"):
        out.extend(shifted.unique)
    pairs = [a | b for a in left.unique for b in shifted.unique]
    if node.kind == "full":
        # A row of NULL key, padded on the right, is not to be confused with one padded on the left.
        pairs = [key for key in pairs if any(not _padded_type(node, i).nullable for i in key)]
    out.extend(pairs)
    return tuple(dict.fromkeys(out))


def _padded_type(node: n.Join, column: int) -> LogicalType:
    """Type of an output column in its own input, where it is not padded."""
    width = len(node.left.schema)
    return node.left.schema.types[column] if column < width else node.right.schema.types[column - width]
