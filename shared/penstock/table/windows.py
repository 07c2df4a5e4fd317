"""The group windows ``Tumble``, ``Slide`` and ``Session``, and ``Over`` windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.table.expression_base import node_of
from penstock.table.marks import Bound, RowCount
from penstock.table.syntax import call, identifier

if TYPE_CHECKING:
    from penstock.table.expression import Expression


def window_name(alias: Any) -> str:
    """The name that a program gives a window: a text, or a column."""
    if isinstance(alias, str):
        return alias
    node = node_of(alias)
    if isinstance(node, exp.Column):
        return node.name
    raise SpecError("not a window's name", expected="'w' or col('w')", got=str(alias))


@dataclass(frozen=True)
class GroupWindow:
    """A named group window. ``function``: TUMBLE, HOP, SESSION or COUNT; ``time``: the time column; ``spans``: the
    intervals in the order of the function's arguments; ``rows``: size and slide of a window of a number of rows."""

    function: str
    spans: tuple[exp.Expression, ...]
    time: exp.Expression
    name: str
    rows: tuple[int, int] | None = None

    def call(self, suffix: str = "") -> exp.Expression:
        """The call ``TUMBLE(time, …)``, or with a suffix such as START ``TUMBLE_START(time, …)``."""
        arguments = [self.time.copy(), *(span.copy() for span in self.spans)]
        return call(f"{self.function}_{suffix}" if suffix else self.function, arguments)


@dataclass(frozen=True)
class _OnTime:
    function: str
    spans: tuple[exp.Expression, ...]
    time: exp.Expression
    rows: tuple[int, int] | None = None

    def alias(self, alias: Any) -> GroupWindow:
        """Name the window: ``group_by(col('w'), …)``, ``col('w').start``."""
        return GroupWindow(self.function, self.spans, self.time, window_name(alias), self.rows)


@dataclass(frozen=True)
class _Sized:
    function: str
    spans: tuple[exp.Expression, ...]
    rows: tuple[int, int] | None = None

    def on(self, time_field: Expression) -> _OnTime:
        """Window by the time column ``time_field``; windows of a number of rows take them in its order."""
        return _OnTime(self.function, self.spans, node_of(time_field), self.rows)


def _rows(value: Any) -> int | None:
    """The number of rows of ``row_interval(n)``; None for an interval of time."""
    node = node_of(value)
    return int(str(node.this)) if isinstance(node, RowCount) else None


class Tumble:
    """Windows of a fixed size, one after the other."""

    @classmethod
    def over(cls, size: Expression) -> _Sized:
        """Windows of ``size``: ``lit(10).minutes``, or ``row_interval(5)`` rows of a key."""
        count = _rows(size)
        if count is not None:
            return _Sized("COUNT", (), _checked(count, count, "Tumble.over"))
        return _Sized("TUMBLE", (node_of(size),))


class Session:
    """Windows that end when no row has come for a while."""

    @classmethod
    def with_gap(cls, gap: Expression) -> _Sized:
        """Windows that end when no row has come for ``gap``."""
        if (count := _rows(gap)) is not None:
            raise SpecError(
                "a session's gap of a number of rows",
                expected="an interval, such as lit(10).minutes",
                got=f"row_interval({count})",
            )
        return _Sized("SESSION", (node_of(gap),))


@dataclass(frozen=True)
class _Sliding:
    size: Any

    def every(self, slide: Expression) -> _Sized:
        """Windows of which one begins every ``slide``: an interval, or a number of rows, as the size is."""
        size, step = _rows(self.size), _rows(slide)
        if (size is None) != (step is None):
            raise SpecError(
                "a window whose size and slide are of two kinds",
                expected="two intervals, or two row_interval(n)",
                got="one of each",
            )
        if size is not None and step is not None:
            return _Sized("COUNT", (), _checked(size, step, "Slide.over"))
        return _Sized("HOP", (node_of(slide), node_of(self.size)))


def _checked(size: int, slide: int, what: str) -> tuple[int, int]:
    if size < 1 or slide < 1:
        raise SpecError(
            f"{what}: a window of rows", expected="at least one row", got=f"{size} rows every {slide}"
        )
    return size, slide


class Slide:
    """Windows of a fixed size that begin at regular times and overlap."""

    @classmethod
    def over(cls, size: Expression) -> _Sliding:
        """Windows of ``size``: an interval, or ``row_interval(5)`` rows of a key."""
        return _Sliding(size)


@dataclass(frozen=True)
class OverWindow:
    """A named OVER window: its name, PARTITION BY, ORDER BY and frame."""

    name: str
    partition: tuple[exp.Expression, ...]
    order: exp.Expression
    before: exp.Expression | None = None
    behind: exp.Expression | None = None

    def node(self) -> exp.Window:
        """The window's definition in a WINDOW clause."""
        order = self.order
        if not isinstance(order, exp.Ordered):
            order = exp.Ordered(this=order.copy(), nulls_first=True)
        args: dict[str, Any] = {}
        if self.partition:
            args["partition_by"] = [p.copy() for p in self.partition]
        if self.before is not None:
            args["spec"] = self._frame(self.before)
        return exp.Window(this=identifier(self.name), order=exp.Order(expressions=[order.copy()]), **args)

    def _frame(self, before: exp.Expression) -> exp.WindowSpec:
        kind = "ROWS" if isinstance(before, RowCount) or before.args.get("kind") == "ROWS" else "RANGE"
        args: dict[str, Any] = {"kind": kind, "start": _edge(before), "start_side": "PRECEDING"}
        if args["start"] == "CURRENT ROW":
            del args["start_side"]
        behind = self.behind
        args["end"] = "CURRENT ROW" if behind is None else _edge(behind)
        if args["end"] != "CURRENT ROW":
            args["end_side"] = "FOLLOWING"
        return exp.WindowSpec(**args)


def _edge(bound: exp.Expression) -> Any:
    if isinstance(bound, Bound):
        return str(bound.this)
    if isinstance(bound, RowCount):
        return exp.Literal.number(str(bound.this))
    return bound.copy()


@dataclass(frozen=True)
class _Framed:
    window: OverWindow

    def alias(self, alias: Any) -> OverWindow:
        """Name the window: ``col('a').sum.over(col('w'))``."""
        return replace(self.window, name=window_name(alias))

    def preceding(self, preceding: Expression) -> _Framed:
        """Begin the frame before the row: ``row_interval(2)``, ``lit(1).hours``, ``UNBOUNDED_RANGE``."""
        return _Framed(replace(self.window, before=node_of(preceding)))

    def following(self, following: Expression) -> _Framed:
        """End the frame after the row. The default is the row itself."""
        return _Framed(replace(self.window, behind=node_of(following)))


@dataclass(frozen=True)
class _Partitioned:
    partition: tuple[exp.Expression, ...]

    def order_by(self, order_by: Expression) -> _Framed:
        """Order the rows of a partition by a time column."""
        return _Framed(OverWindow("", self.partition, node_of(order_by)))


class Over:
    """Windows around every row."""

    @classmethod
    def order_by(cls, order_by: Expression) -> _Framed:
        """One partition of all rows, in the order of a time column."""
        return _Partitioned(()).order_by(order_by)

    @classmethod
    def partition_by(cls, *partition_by: Expression) -> _Partitioned:
        """Partitions of rows that have the same values of ``partition_by``."""
        return _Partitioned(tuple(node_of(p) for p in partition_by))
