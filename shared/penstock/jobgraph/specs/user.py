"""Functions of the user's, over rows and keyed state."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import PROCESSING_TIME, Keys, Spec
from penstock.jobgraph.specs.parts import WindowSpec


class PythonSpec(Spec, frozen=True, kw_only=True, tag="python"):
    """map, flat_map, filter over one input, per record or per Arrow batch.

    ``function``: an entry of ``JobGraph.functions``.
    """

    kind: Literal["map", "flat_map", "filter"]
    function: str
    per: Literal["record", "batch"] = "record"
    blocking: bool = False
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class RecordTimeSpec(Spec, frozen=True, kw_only=True, tag="record-time"):
    """Between the records' ``times`` and a column: ``append`` adds ``times`` as the last
    column; ``assign`` sets ``times`` from ``column`` (× ``unit_us``; and drops it);
    ``function`` sets them from a user's function (record, old time) → ms."""

    kind: Literal["append", "assign", "function"]
    column: int | None = None
    drop: bool = False
    unit_us: int = 1
    function: str | None = None

    def reads_time(self) -> bool:
        return self.kind != "assign"

    def passes_time(self) -> bool:
        return self.kind == "append"


class TableFunctionSpec(Spec, frozen=True, kw_only=True, tag="table-function"):
    """LATERAL TABLE(f(args)), UNNEST: input columns then the function's."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    function: str
    args: tuple[Expr, ...]
    kind: Literal["inner", "left"] = "inner"
    builtin: bool = True
    per: Literal["record", "batch"] = "record"
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: ``function`` is async: rows are awaited, many at once.
    asynchronous: bool = False


class KeyedProcessSpec(Spec, frozen=True, kw_only=True, tag="keyed-process"):
    """A KeyedProcessFunction (two inputs: KeyedCoProcessFunction), with keyed state and
    timers. ``keys[i]``: key columns of input i. Also reduce and aggregate without window
    (``kind``)."""

    kind: Literal["process", "reduce", "aggregate", "co-process", "broadcast-process"] = "process"
    function: str
    keys: tuple[tuple[int, ...], ...]
    per: Literal["record", "batch"] = "record"
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: Leading columns of each input that make the record (those after them are computed
    #: keys); empty = all.
    record_columns: tuple[int, ...] = ()
    #: Side outputs that are read.
    tags: tuple[str, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return tuple(keys or None for keys in self.keys)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        if self.kind == "broadcast-process":
            return ()  # every rule must reach every key: one partition
        return self.keys[index] if index < len(self.keys) else ()

    def keeps_state(self) -> bool:
        return True

    def reads_time(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return "time"

    def not_streamed(self) -> str | None:
        if self.kind == "broadcast-process":
            return "broadcast state: every group of keys would need all of it"
        return None


class KeyedWindowSpec(Spec, frozen=True, kw_only=True, tag="keyed-window"):
    """A DataStream window with a Python reduce / aggregate / process window function.

    Built-in aggregates over a window plan to ``WindowAggregateSpec`` instead.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    function: str
    kind: Literal["reduce", "aggregate", "process"]
    trigger: str | None = None
    allowed_lateness_us: int = 0
    late_tag: str | None = None
    #: True: by the records' ``times``; False: by processing time. (``window.time`` is unused.)
    event_time: bool = True
    #: Leading columns that make the record; 0 = all.
    record_columns: int = 0
    tags: tuple[str, ...] = ()
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"

    def required_keys(self, width: int) -> Keys:
        return (self.keys,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def keeps_state(self) -> bool:
        return True

    def reads_time(self) -> bool:
        return self.event_time

    def reads_arrival(self) -> bool:
        return True

    def event_order(self, index: int) -> str | int | None:
        return "time" if self.event_time else None

    def not_streamed(self) -> str | None:
        return None if self.event_time else PROCESSING_TIME
