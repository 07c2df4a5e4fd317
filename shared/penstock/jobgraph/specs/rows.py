"""Specs of operators that handle each row on its own and keep no state, except for session windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from penstock.functions.expr import Expr, InputRef, PythonCall
from penstock.functions.watermark_calls import NAME, watermark_calls
from penstock.jobgraph.specs.base import Keys, Spec, Spread, mapped
from penstock.jobgraph.specs.parts import RECORD_TIME, WatermarkSpec, WindowSpec


class CalcSpec(Spec, frozen=True, kw_only=True, tag="calc"):
    """Filters by ``condition`` (a row passes if it is TRUE), then projects. ``projections`` None: all
    columns."""

    cheap: ClassVar[bool] = True

    condition: Expr | None = None
    projections: tuple[Expr, ...] | None = None
    #: What happens to a row for which an expression fails (a CAST, a user's function).
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"

    def not_streamed(self) -> str | None:
        exprs = (*(self.projections or ()), *(() if self.condition is None else (self.condition,)))
        return NAME if any(True for expr in exprs for _ in watermark_calls(expr)) else None

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        if self.projections is None:
            return ports[0]
        at: dict[int, int] = {}
        for i, e in enumerate(self.projections):
            if isinstance(e, InputRef):
                at.setdefault(e.index, i)
        return mapped(ports[0], at)


class AsyncCalcSpec(Spec, frozen=True, kw_only=True, tag="async-calc"):
    """Appends the results of async functions to each row. Many calls run at the same time."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    calls: tuple[PythonCall, ...]
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class UnionSpec(Spec, frozen=True, kw_only=True, tag="union"):
    """All rows of all inputs. The watermark is the lowest watermark of the inputs."""

    keeps_columns: ClassVar[bool] = True
    cheap: ClassVar[bool] = True


class AssignWatermarksSpec(Spec, frozen=True, kw_only=True, tag="watermark"):
    """Makes watermarks in the middle of a plan (DataStream API, views)."""

    keeps_columns: ClassVar[bool] = True
    cheap: ClassVar[bool] = True

    watermark: WatermarkSpec
    #: DataStream: a function from a record to its event time in ms, which becomes the record's own event
    #: time.
    timestamp_function: str | None = None
    #: DataStream: the program's own watermark generator. Of ``watermark`` the interval and the idle time-out count then.
    generator: str | None = None

    def reads_time(self) -> bool:
        return self.timestamp_function is not None or self.generator is not None

    def native(self) -> str:
        return "penstock.spark.stateless:unchanged" if self.timestamp_function is None else ""


class WindowMaximumSpec(Spec, frozen=True, kw_only=True, tag="window-maximum"):
    """Drops rows whose ``value`` is below one that was seen before in the same window.

    ``time``: the event-time column, if ``window`` gives the tumbling window; without ``window``, a column
    of window ends.
    """

    keeps_columns: ClassVar[bool] = True

    value: int
    time: int
    window: WindowSpec | None = None

    def native(self) -> str:
        return "penstock.spark.stateless:unchanged"  # the maximum that reads the rows drops the same ones


class LocalTimeSpec(Spec, frozen=True, kw_only=True, tag="local-time"):
    """Appends the local TIMESTAMP in time zone ``zone`` of the TIMESTAMP_LTZ column ``time``, and converts
    watermarks to local time."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    time: int
    zone: str

    def not_streamed(self) -> str | None:
        return "windows on the clock of a time zone: Spark's watermark is UTC"


class WindowTableSpec(Spec, frozen=True, kw_only=True, tag="window-table"):
    """A window table function without aggregation: each row once for each of its windows, with window_start,
    window_end and window_time appended. ``keys``: those of a session window, whose rows wait until the
    session has ended."""

    keeps_columns: ClassVar[bool] = True

    window: WindowSpec
    keys: tuple[int, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return (self.keys,) if self.keeps_state() else ()

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def keeps_state(self) -> bool:
        return self.window.kind == "session"  # its rows wait until the session has ended

    def reads_time(self) -> bool:
        return self.window.time == RECORD_TIME

    def event_order(self, index: int) -> str | int | None:
        return self.window.order()

    def native(self) -> str:
        return "penstock.spark.stateless:window_table"


class ExpandSpec(Spec, frozen=True, kw_only=True, tag="expand"):
    """GROUPING SETS: emits each row once for each list of projections."""

    projections: tuple[tuple[Expr, ...], ...]

    def native(self) -> str:
        return "penstock.spark.stateless:expand"
