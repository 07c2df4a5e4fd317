"""Derived properties of a node's output: boundedness, time, windows, unique keys, changelog.

The binder uses them for time attributes and windows, the optimizer for interval bounds, the physical planner
for changelog modes. They are always derived, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.types.logical import INTERVALS, YearMonthIntervalType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.jobgraph.specs import WindowSpec
    from penstock.plan.node import Node

MS = 1_000


@dataclass(frozen=True, slots=True)
class WindowProperty:
    """The columns that carry a window, as indices; None: a projection has removed the column."""

    spec: WindowSpec
    start: int | None
    end: int | None
    time: int | None

    def moved(self, mapping: dict[int, int]) -> WindowProperty | None:
        """The property under other column numbers (``mapping``: old -> new); None if no window column is left."""
        move = {name: mapping.get(i) if i is not None else None
                for name, i in (("start", self.start), ("end", self.end), ("time", self.time))}  # fmt: skip
        if all(i is None for i in move.values()):
            return None
        return WindowProperty(self.spec, **move)


@dataclass(frozen=True, slots=True)
class Properties:
    """What holds for the rows of a node.

    ``lags``: column → µs such that value + lag > watermark holds for every row to come (rowtime: 0;
    window_start of a 10 s window: 10 s). ``rowtimes``: the columns of ``lags`` that are time attributes.
    ``updating``: rows are updated or deleted. ``unique``: sets of columns that are a key. ``timeline``: the
    time zone whose clock the watermarks follow; empty = UTC.
    """

    bounded: bool = False
    lags: dict[int, int] = field(default_factory=dict)
    rowtimes: frozenset[int] = frozenset()
    proctimes: frozenset[int] = frozenset()
    window: WindowProperty | None = None
    updating: bool = False
    unique: tuple[frozenset[int], ...] = ()
    timeline: str = ""

    def moved(self, mapping: dict[int, int]) -> Properties:
        """The same properties over another column layout: old index → new index."""
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

    def timed(self, lags: dict[int, int], rowtimes: Iterable[int], proctimes: Iterable[int]) -> Properties:
        """The same properties with other time attributes."""
        return replace(self, lags=lags, rowtimes=frozenset(rowtimes), proctimes=frozenset(proctimes))


class Analysis:
    """Properties of every node of a plan, as the node declares them. Each is computed once.

    ``final``: the job emits final rows once, at the end of its bounded inputs, so aggregates do not update.
    """

    def __init__(self, *, final: bool = False) -> None:
        self.final = final
        self._memo: dict[int, tuple[Node, Properties]] = {}

    def of(self, node: Node) -> Properties:
        """The properties of a node's rows."""
        found = self._memo.get(id(node))
        if found is None:
            found = (node, node.properties(self))
            self._memo[id(node)] = found
        return found[1]

    def in_order(self, node: Node, key: frozenset[int]) -> bool:
        """Whether all changes of a row with this key come out of one subtask, and those of the old row come
        before those of the new one. If so, a −U may delete by key."""
        return not self.of(node).updating or node.in_order(key, self)


def is_proctime(expr: Expr) -> bool:
    """Whether the expression is PROCTIME()."""
    return isinstance(expr, Call) and expr.function == "PROCTIME"


def constant_shift(expr: Expr) -> tuple[int, int] | None:
    """(column, µs) if the expression is ``column ± INTERVAL day-time``; casts between timestamps of one kind
    are ignored."""
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


def window_times(
    spec: WindowSpec, window: WindowProperty
) -> tuple[dict[int, int], frozenset[int], frozenset[int]]:
    """Lags, event times and processing times among a window's own columns."""
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
