"""Orders, first rows and functions over them."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs.base import UPDATES, Keys, Spec
from penstock.jobgraph.specs.parts import SortKey


class TopNSpec(Spec, frozen=True, kw_only=True, tag="top-n"):
    """ROW_NUMBER/RANK ≤ n per partition. ``rank_column``: append the number (BIGINT).
    ``window``: (start index, end index) of a window Top-N, emitted at window end."""

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
    #: The order is of one column of fixed width.
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
    """First or last row per key, by event time (``time``) or by arrival."""

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
    """OVER aggregates as rows come: appended columns. Rows or range frame ending at the
    current row; ``preceding`` None = unbounded (rows, or µs for a range).

    ``lags``: (argument, rows back, default's column or None) of each LAG, appended behind
    the aggregates; ``preceding`` is then the furthest of them, in rows.
    """

    keeps_columns: ClassVar[bool] = True

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    ttl_ms: int = 0
    #: Where each aggregate's running value is read: at the end of the row's frame (also
    #: when empty), at the row itself, at its first peer (so COUNT(*) is ROW_NUMBER, RANK).
    read_at: tuple[Literal["frame", "row", "first-peer"], ...] = ()
    lags: tuple[tuple[int, int, int | None], ...] = ()

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
    """OVER functions of a bounded input, at its end: any order, any frame, ranking and
    shifting functions among ``aggregates`` (LAG and LEAD: args (value[, default]), constants
    (rows,); NTILE: constants (buckets,)).

    The frame is from ``preceding`` before to ``following`` after the current row: rows, or
    the order column's units for a range; negative = on the other side; None = unbounded.
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
    """A bounded sort at the end of input, with offset and limit."""

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
    """Rows in event-time order, released by the watermark."""

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
