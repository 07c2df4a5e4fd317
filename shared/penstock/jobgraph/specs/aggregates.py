"""Aggregation per key, windowed or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs.base import PROCESSING_TIME, UPDATES, Keys, Spec, Spread, mapped
from penstock.jobgraph.specs.parts import RECORD_TIME, WindowSpec
from penstock.types.logical import LogicalType

#: Aggregates whose result depends on the order of rows.
ORDERED_AGGREGATES = frozenset(
    ("FIRST_VALUE", "LAST_VALUE", "SINGLE_VALUE", "LISTAGG", "COLLECT", "ARRAY_AGG", "JSON_ARRAYAGG",
     "JSON_OBJECTAGG")
)  # fmt: skip


class WindowAggregateSpec(Spec, frozen=True, kw_only=True, tag="window-aggregate"):
    """Aggregation per key and window, emitted when the watermark passes the window.

    Output: key columns, aggregates, then ``window_columns`` in the named order.
    ``phase``: ``single``; or ``local`` (before the exchange: partial accumulators per key
    and pane, output = keys, pane end BIGINT µs, accumulator columns; holds no keyed
    state: it flushes at every barrier, watermark and on size) then ``global``.
    ``late_tag``: side output for input rows later than every window of theirs (whole
    input rows; a two-phase plan puts the lateness test in ``local``).
    ``allowed_lateness_us``: keeps a fired window for late updates (DataStream).
    ``windowed_input``: (start index, end index) when the input already carries window
    columns (a window aggregate over a windowed table): then ``window`` only says size.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window_columns: tuple[Literal["start", "end", "time"], ...] = ("start", "end", "time")
    phase: Literal["single", "local", "global"] = "single"
    late_tag: str | None = None
    allowed_lateness_us: int = 0
    windowed_input: tuple[int, int] | None = None
    retracts: bool = False
    #: ``global`` only: types of the columns that ``aggregates`` index (the local input's).
    local_types: tuple[LogicalType, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return () if self.phase == "local" else ((*self.keys, *(self.windowed_input or ())),)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        return mapped(ports[0], {k: i for i, k in reversed(list(enumerate(self.keys)))})

    def keeps_state(self) -> bool:
        return self.phase != "local"

    def passes_time(self) -> bool:
        return False

    def reads_arrival(self) -> bool:
        return any(c.function.upper() in ORDERED_AGGREGATES or c.python for c in self.aggregates)

    def reads_time(self) -> bool:
        return self.window.time == RECORD_TIME

    def event_order(self, index: int) -> str | int | None:
        return self.window.order() if self.windowed_input is None else self.windowed_input[0]

    def not_streamed(self) -> str | None:
        return PROCESSING_TIME if self.window.time is None else None

    def native(self) -> str:
        return "penstock.spark.aggregates:window_aggregate"


class GroupAggregateSpec(Spec, frozen=True, kw_only=True, tag="group-aggregate"):
    """Unwindowed aggregation: a changelog of one row per key.

    Output: key columns, then aggregates. ``retracts``: the input has −U/−D.
    ``emit_before``: send −U before +U (else upsert: +I / +U / −D only).
    ``phase``: ``local`` emits partial accumulators (keys, accumulator columns).
    ``bounded_final``: emit +I once at the end of a bounded input.
    """

    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    retracts: bool = False
    emit_before: bool = True
    phase: Literal["single", "local", "global"] = "single"
    bounded_final: bool = False
    ttl_ms: int = 0
    #: ``global`` only: types of the columns that ``aggregates`` index (the local input's).
    local_types: tuple[LogicalType, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return () if self.phase == "local" else (self.keys,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        return mapped(ports[0], {k: i for i, k in reversed(list(enumerate(self.keys)))})

    def keeps_state(self) -> bool:
        return self.phase != "local"

    def passes_time(self) -> bool:
        return False

    def reads_arrival(self) -> bool:
        return any(c.function.upper() in ORDERED_AGGREGATES or c.python for c in self.aggregates)

    def passes_arrival(self) -> bool:
        return False

    def not_streamed(self) -> str | None:
        return UPDATES

    def native(self) -> str:
        return "penstock.spark.aggregates:group_aggregate"
