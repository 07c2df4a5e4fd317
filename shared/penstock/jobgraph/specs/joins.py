"""Specs of joins: of two inputs, and with external tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import UPDATES, Keys, Spec, Spread, joined
from penstock.types.logical import Schema


class JoinSpec(Spec, frozen=True, kw_only=True, tag="join"):
    """Equi-join of two inputs on ``left_keys`` = ``right_keys``, with a further ``condition`` over the
    columns of both (left columns first).

    ``interval``: (left time index, right time index, low_us, high_us) for right.time BETWEEN left.time +
    low AND left.time + high. The watermark then removes state and releases the rows of an outer join, so
    the output is append-only. None: a regular join. ``left_unique``, ``right_unique``: columns that
    identify a row of that side.
    """

    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    condition: Expr | None = None
    interval: tuple[int, int, int, int] | None = None
    #: For each key: whether NULL matches NULL (IS NOT DISTINCT FROM).
    null_safe: tuple[bool, ...] = ()
    left_unique: tuple[int, ...] = ()
    right_unique: tuple[int, ...] = ()
    ttl_ms: int = 0
    #: The time to live of the right side's rows; None: ``ttl_ms``, as that of the left side's.
    right_ttl_ms: int | None = None
    #: How Spark is to run the join, and the input that this is said of. It changes no row.
    strategy: tuple[Literal["broadcast", "shuffle_hash", "merge"], Literal["left", "right"]] | None = None

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
    """Joins two windowed inputs on keys and equal windows. The result is emitted when the window closes.

    ``left_window`` and ``right_window``: (start index, end index).
    """

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
    """Joins each left row with the version of the right row that was valid at the left row's event time.

    ``left_time`` and ``right_time``: indices of the time columns.
    """

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
    """Joins left rows with an external table by key, with a cache.

    ``projection``: the columns of the external table in the output. ``right_keys`` are indices into
    ``schema``.
    """

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
