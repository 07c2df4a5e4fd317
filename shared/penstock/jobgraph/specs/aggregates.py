"""Specs of aggregations per key, with and without windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs.base import PROCESSING_TIME, UPDATES, Keys, Spec, Spread, mapped
from penstock.jobgraph.specs.parts import RECORD_TIME, WindowSpec
from penstock.types.logical import LogicalType

#: Aggregate functions whose result depends on the order of rows.
ORDERED_AGGREGATES = frozenset(
    ("FIRST_VALUE", "LAST_VALUE", "SINGLE_VALUE", "LISTAGG", "COLLECT", "ARRAY_AGG", "JSON_ARRAYAGG",
     "JSON_OBJECTAGG")
)  # fmt: skip


class WindowAggregateSpec(Spec, frozen=True, kw_only=True, tag="window-aggregate"):
    """Aggregates per key and window. The result is emitted when the watermark passes the end of the window.

    Output: key columns, aggregates, then ``window_columns`` in that order. ``phase``: ``single``, or first
    ``local`` and then ``global``. ``local`` runs before the exchange and emits partial accumulators per
    key and pane (keys, pane end BIGINT µs, accumulator columns); it keeps no keyed state, because it
    flushes at every barrier, at every watermark, and when it is full. ``late_tag``: the side output for
    input rows whose windows have all closed (with two phases, ``local`` tests that).
    ``allowed_lateness_us``: how long a fired window is kept for late updates (DataStream).
    ``windowed_input``: (start index, end index) if the input already carries window columns; then
    ``window`` gives the size only. ``retracts``: the input contains −U and −D.
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
    #: Only with phase ``global``: the types of the local phase's input columns, to which ``aggregates``
    #: refer.
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
    """Aggregates per key without windows. The output is a changelog with one row per key.

    Output: key columns, then aggregates. ``retracts``: the input contains −U and −D. ``emit_before``: emit
    −U before +U (otherwise an upsert changelog: +I, +U and −D). ``phase``: ``local`` emits partial
    accumulators (keys, accumulator columns). ``bounded_final``: emit +I once, at the end of a bounded
    input. ``ttl_ms``: time to live of a key (0: unlimited).
    """

    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    retracts: bool = False
    emit_before: bool = True
    phase: Literal["single", "local", "global"] = "single"
    bounded_final: bool = False
    ttl_ms: int = 0
    #: Only with phase ``global``: the types of the local phase's input columns, to which ``aggregates``
    #: refer.
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
