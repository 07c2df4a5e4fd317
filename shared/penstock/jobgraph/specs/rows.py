"""What goes over rows as they come and keeps none, sessions apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from penstock.functions.expr import Expr, InputRef, PythonCall
from penstock.jobgraph.specs.base import Keys, Spec, Spread, mapped
from penstock.jobgraph.specs.parts import RECORD_TIME, WatermarkSpec, WindowSpec


class CalcSpec(Spec, frozen=True, kw_only=True, tag="calc"):
    """Filter by ``condition`` (TRUE passes), then project. ``projections`` None = all."""

    cheap: ClassVar[bool] = True

    condition: Expr | None = None
    projections: tuple[Expr, ...] | None = None
    #: What becomes of a row whose expression fails (a CAST, a user's function).
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        if self.projections is None:
            return ports[0]
        at: dict[int, int] = {}
        for i, e in enumerate(self.projections):
            if isinstance(e, InputRef):
                at.setdefault(e.index, i)
        return mapped(ports[0], at)


class AsyncCalcSpec(Spec, frozen=True, kw_only=True, tag="async-calc"):
    """Appends what async functions give for each row; many calls are under way at once."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    calls: tuple[PythonCall, ...]
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class UnionSpec(Spec, frozen=True, kw_only=True, tag="union"):
    """All rows of all inputs; the watermark is the lowest of theirs."""

    keeps_columns: ClassVar[bool] = True
    cheap: ClassVar[bool] = True


class AssignWatermarksSpec(Spec, frozen=True, kw_only=True, tag="watermark"):
    """A watermark strategy in the middle of a plan (DataStream API, views)."""

    keeps_columns: ClassVar[bool] = True
    cheap: ClassVar[bool] = True

    watermark: WatermarkSpec
    #: DataStream: a function record → event time ms; sets the records' ``times``.
    timestamp_function: str | None = None

    def reads_time(self) -> bool:
        return self.timestamp_function is not None

    def native(self) -> str:
        return "penstock.spark.stateless:unchanged" if self.timestamp_function is None else ""


class WindowMaximumSpec(Spec, frozen=True, kw_only=True, tag="window-maximum"):
    """Drops rows whose ``value`` is below one seen before in the same window. ``time``: the
    event-time column, with the tumbling ``window`` that it falls in; or, without ``window``,
    a column of window ends."""

    keeps_columns: ClassVar[bool] = True

    value: int
    time: int
    window: WindowSpec | None = None

    def native(self) -> str:
        return "penstock.spark.stateless:unchanged"  # it only drops what a maximum above would


class LocalTimeSpec(Spec, frozen=True, kw_only=True, tag="local-time"):
    """Appends the TIMESTAMP that the clock of ``zone`` shows at the TIMESTAMP_LTZ ``time``, and
    turns watermarks into that clock's."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    time: int
    zone: str

    def not_streamed(self) -> str | None:
        return "windows on the clock of a time zone: Spark's watermark is UTC"


class WindowTableSpec(Spec, frozen=True, kw_only=True, tag="window-table"):
    """A window table function that is not aggregated: each row once per window, with
    window_start, window_end, window_time appended. ``keys``: of a session, whose rows wait
    until it has ended."""

    keeps_columns: ClassVar[bool] = True

    window: WindowSpec
    keys: tuple[int, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return (self.keys,) if self.keeps_state() else ()

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def keeps_state(self) -> bool:
        return self.window.kind == "session"  # its rows wait until it has ended

    def reads_time(self) -> bool:
        return self.window.time == RECORD_TIME

    def event_order(self, index: int) -> str | int | None:
        return self.window.order()

    def native(self) -> str:
        return "penstock.spark.stateless:window_table"


class ExpandSpec(Spec, frozen=True, kw_only=True, tag="expand"):
    """GROUPING SETS: each row once per projection list."""

    projections: tuple[tuple[Expr, ...], ...]

    def native(self) -> str:
        return "penstock.spark.stateless:expand"
