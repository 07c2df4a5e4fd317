"""Specs of operators that order rows: Top-N, deduplication, OVER, sort and limit."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs.base import UPDATES, Keys, Spec
from penstock.jobgraph.specs.parts import SortKey


class TopNSpec(Spec, frozen=True, kw_only=True, tag="top-n"):
    """Rows whose ROW_NUMBER, RANK or DENSE_RANK is between ``first`` and ``last`` within their partition.

    ``rank_column``: append the number (BIGINT). ``retracts``: the input contains −U and −D.
    ``emit_before``: emit −U before +U. ``unique_keys``: columns that identify an input row. ``window``:
    (start index, end index) of a window Top-N, which is emitted when the window closes.
    """

    keeps_columns: ClassVar[bool] = True

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int = 1
    last: int
    rank: Literal["row_number", "rank", "dense_rank"] = "row_number"
    rank_column: bool = False
    retracts: bool = False
    emit_before: bool = True
    unique_keys: tuple[int, ...] = ()
    window: tuple[int, int] | None = None
    ttl_ms: int = 0
    #: Whether the order has only one column, of fixed width.
    fixed_order: bool = False

    def required_keys(self, width: int) -> Keys:
        return ((*self.partition, *(self.window or ())),)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.partition or (() if self.window is None else (self.window[1],))

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return None if self.window is None else self.window[0]

    def compaction(self) -> tuple[int, ...] | None:
        return () if self.window is None else None

    def not_streamed(self) -> str | None:
        return UPDATES if self.window is None else None

    def native(self) -> str:
        return "penstock.spark.ordering:top_n"


class DeduplicateSpec(Spec, frozen=True, kw_only=True, tag="deduplicate"):
    """The first or the last row per key, by event time (``time``: its column) or, if that is None, by
    arrival.

    ``window``: (start index, end index) if rows are compared within their window only.
    """

    keeps_columns: ClassVar[bool] = True

    keys: tuple[int, ...]
    keep: Literal["first", "last"]
    time: int | None = None
    emit_before: bool = True
    window: tuple[int, int] | None = None
    ttl_ms: int = 0

    def required_keys(self, width: int) -> Keys:
        return ((*self.keys, *(self.window or ())),)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys or (() if self.window is None else (self.window[1],))

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return None if self.window is None else self.window[0]

    def compaction(self) -> tuple[int, ...] | None:
        return () if self.window is None else None

    def not_streamed(self) -> str | None:
        final = self.window is not None or (self.keep == "first" and self.time is None)
        return None if final else UPDATES

    def native(self) -> str:
        return "penstock.spark.ordering:deduplicate"


class OverSpec(Spec, frozen=True, kw_only=True, tag="over"):
    """OVER aggregates of a stream, appended to each row. The frame, of rows or of a range, ends at the
    current row. ``preceding``: its length (rows, or µs for a range); None: unbounded.

    ``lags``: for each LAG (argument, rows back, column of the default or None). They are appended after
    the aggregates, and ``preceding`` is then the furthest of them, in rows. ``skipping``: the numbers of those
    that count only rows with a value (IGNORE NULLS).
    """

    keeps_columns: ClassVar[bool] = True

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    ttl_ms: int = 0
    #: Where each aggregate's running value is read: at the end of the row's frame (also if this is empty), at
    #: the row itself (COUNT(*) is then ROW_NUMBER), or at the row's first peer (COUNT(*) is then RANK).
    read_at: tuple[Literal["frame", "row", "first-peer"], ...] = ()
    lags: tuple[tuple[int, int, int | None], ...] = ()
    skipping: tuple[int, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return (self.partition,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.partition

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return self.order[0].index if self.order and not self.order[0].descending else None


class OverFinalSpec(Spec, frozen=True, kw_only=True, tag="over-final"):
    """OVER functions of a bounded input, computed at its end. Any order and frame is allowed. ``aggregates``
    may contain ranking functions, LAG and LEAD (args (value[, default]), constants (rows,)), and NTILE
    (constants (buckets,)).

    The frame reaches from ``preceding`` before to ``following`` after the current row, in rows, or for a
    range in units of the order column. A negative number lies on the other side of the row; None:
    unbounded.
    """

    keeps_columns: ClassVar[bool] = True

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0

    def required_keys(self, width: int) -> Keys:
        return (self.partition,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.partition

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def not_streamed(self) -> str | None:
        return "an order over a stream that does not end"


class SortSpec(Spec, frozen=True, kw_only=True, tag="sort"):
    """Sorts a bounded input at its end, with offset and limit."""

    keeps_columns: ClassVar[bool] = True

    order: tuple[SortKey, ...]
    offset: int = 0
    limit: int | None = None

    def required_keys(self, width: int) -> Keys:
        return ((),)

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def not_streamed(self) -> str | None:
        return "an order over a stream that does not end"

    def native(self) -> str:
        return "penstock.spark.ordering:sort"


class LimitSpec(Spec, frozen=True, kw_only=True, tag="limit"):
    """The first ``limit`` rows after ``offset`` rows, in any order."""

    keeps_columns: ClassVar[bool] = True

    offset: int = 0
    limit: int

    def required_keys(self, width: int) -> Keys:
        return ((),)

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def not_streamed(self) -> str | None:
        return "an order over a stream that does not end"

    def native(self) -> str:
        return "penstock.spark.ordering:limit"


class TemporalSortSpec(Spec, frozen=True, kw_only=True, tag="temporal-sort"):
    """Emits rows in the order of event time, as far as the watermark allows. ``order``: further sort keys."""

    keeps_columns: ClassVar[bool] = True

    time: int
    order: tuple[SortKey, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return ((),)

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return self.time

    def not_streamed(self) -> str | None:
        return "an order over a stream that does not end"

    def native(self) -> str:
        return "penstock.spark.ordering:temporal_sort"
