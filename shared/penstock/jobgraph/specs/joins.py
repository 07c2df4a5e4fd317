"""Joins of two inputs, and with tables that are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import UPDATES, Keys, Spec, Spread, joined
from penstock.types.logical import Schema


class JoinSpec(Spec, frozen=True, kw_only=True, tag="join"):
    """Two-input equi-join on ``left_keys`` = ``right_keys`` with a residual ``condition``
    over (left columns, right columns).

    ``interval``: (left time index, right time index, low_us, high_us) when
    right.time BETWEEN left.time + low AND left.time + high: state is dropped by
    watermark and outer rows are padded then (append-only). None = regular join.
    """

    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    condition: Expr | None = None
    interval: tuple[int, int, int, int] | None = None
    #: NULL keys match NULL keys (IS NOT DISTINCT FROM), per key.
    null_safe: tuple[bool, ...] = ()
    left_unique: tuple[int, ...] = ()
    right_unique: tuple[int, ...] = ()
    ttl_ms: int = 0

    def required_keys(self, width: int) -> Keys:
        return (self.left_keys, self.right_keys)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return (self.left_keys, self.right_keys)[index]

    def keeps_state(self) -> bool:
        return True

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        return joined(self.kind, ports, left_width)

    def event_order(self, index: int) -> str | int | None:
        return None if self.interval is None else self.interval[index]

    def compaction(self) -> tuple[int, ...] | None:
        return () if self.interval is None else None

    def not_streamed(self) -> str | None:
        return UPDATES if self.interval is None and self.kind != "inner" else None

    def native(self) -> str:
        return "penstock.spark.joins:join"


class WindowJoinSpec(Spec, frozen=True, kw_only=True, tag="window-join"):
    """Join of two windowed inputs on keys and equal window, when the window closes."""

    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_window: tuple[int, int]
    right_window: tuple[int, int]
    condition: Expr | None = None

    def required_keys(self, width: int) -> Keys:
        return ((*self.left_keys, *self.left_window), (*self.right_keys, *self.right_window))

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return (self.left_keys, self.right_keys)[index]

    def keeps_state(self) -> bool:
        return True

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        return joined(self.kind, ports, left_width)

    def event_order(self, index: int) -> str | int | None:
        return (self.left_window, self.right_window)[index][0]

    def native(self) -> str:
        return "penstock.spark.joins:window_join"


class TemporalJoinSpec(Spec, frozen=True, kw_only=True, tag="temporal-join"):
    """Left rows joined with the right side's version as of left's event time."""

    keeps_columns: ClassVar[bool] = True

    kind: Literal["inner", "left"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int
    right_time: int
    condition: Expr | None = None

    def required_keys(self, width: int) -> Keys:
        return (self.left_keys, self.right_keys)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return (self.left_keys, self.right_keys)[index]

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return (self.left_time, self.right_time)[index]


class LookupJoinSpec(Spec, frozen=True, kw_only=True, tag="lookup-join"):
    """Left rows joined with an external table, by key, with a cache."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    kind: Literal["inner", "left"]
    connector: str
    options: dict[str, str]
    schema: Schema
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    projection: tuple[int, ...]
    condition: Expr | None = None

    def not_streamed(self) -> str | None:
        return "a look-up per row in an external table"
