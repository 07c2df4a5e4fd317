"""Specs of user functions over rows and keyed state."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import PROCESSING_TIME, UPDATES, Keys, Spec
from penstock.jobgraph.specs.parts import WindowSpec


class PythonSpec(Spec, frozen=True, kw_only=True, tag="python"):
    """map, flat_map or filter over one input, per record or per Arrow batch.

    ``function``: its name in ``JobGraph.functions``. ``blocking`` must be False: blocking functions are
    refused. ``operator_state``: the function has some; on Spark each partition has its own.
    """

    kind: Literal["map", "flat_map", "filter"]
    function: str
    per: Literal["record", "batch"] = "record"
    blocking: bool = False
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    operator_state: bool = False

    def keeps_state(self) -> bool:
        return self.operator_state

    def alone_on_spark(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return self.operator_state


class FunctionSourceSpec(Spec, frozen=True, kw_only=True, tag="function-source"):
    """Rows that a function of the program gives, in one subtask.

    ``bounded``: whether it comes to an end. ``positions``: it takes the position behind which it begins (None at first) and gives
    pairs (record, position behind it); otherwise a restart passes over as many records as went out.
    """

    is_source: ClassVar[bool] = True

    function: str
    bounded: bool = False
    positions: bool = False

    def not_streamed(self) -> str | None:
        return "a source that is a function of the program"


class AsyncWaitSpec(Spec, frozen=True, kw_only=True, tag="async-wait"):
    """An ``AsyncFunction`` of each record. ``capacity``: the most records that wait for their answers at a time;
    ``ordered``: results come out in the order of their records. Records that wait are state."""

    function: str
    ordered: bool = True
    capacity: int = 100
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"

    def keeps_state(self) -> bool:
        return True

    def alone_on_spark(self) -> bool:
        return True


class RecordTimeSpec(Spec, frozen=True, kw_only=True, tag="record-time"):
    """Copies between the records' own event times and a column, or sets the event times.

    ``append`` adds the event times as the last column. ``assign`` sets them from ``column``, multiplied by
    ``unit_us``, and removes the column if ``drop``. ``function`` sets them by a user's function (record,
    old time in ms) → ms.
    """

    kind: Literal["append", "assign", "function"]
    column: int | None = None
    drop: bool = False
    unit_us: int = 1
    function: str | None = None

    def reads_time(self) -> bool:
        return self.kind != "assign"

    def passes_time(self) -> bool:
        return self.kind == "append"


class RowKindSpec(Spec, frozen=True, kw_only=True, tag="row-kind"):
    """Copies between the kinds of a changelog's rows and a column, the last one.

    ``append`` adds the kinds as a column, so that each change becomes a row that is only inserted. ``take`` reads
    them from the column, which it removes.
    """

    kind: Literal["append", "take"]

    def not_streamed(self) -> str | None:
        return UPDATES

    def alone_on_spark(self) -> bool:
        # Changes of one row may lie in several partitions, and Spark's rows have no kinds.
        return self.kind == "append"

    def compaction(self) -> tuple[int, ...] | None:
        return () if self.kind == "take" else None


class TableFunctionSpec(Spec, frozen=True, kw_only=True, tag="table-function"):
    """LATERAL TABLE(f(args)) or UNNEST: the input columns, followed by those of the function."""

    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    function: str
    args: tuple[Expr, ...]
    kind: Literal["inner", "left"] = "inner"
    builtin: bool = True
    per: Literal["record", "batch"] = "record"
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: Whether ``function`` is async; then many calls run at the same time.
    asynchronous: bool = False


class KeyedProcessSpec(Spec, frozen=True, kw_only=True, tag="keyed-process"):
    """A KeyedProcessFunction or, with two inputs, a KeyedCoProcessFunction, with keyed state and timers; also
    a reduce or aggregate without window (``kind``). ``keys[i]``: the key columns of input i."""

    kind: Literal["process", "reduce", "aggregate", "co-process", "broadcast-process"] = "process"
    function: str
    keys: tuple[tuple[int, ...], ...]
    per: Literal["record", "batch"] = "record"
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: For each input, the number of leading columns that are the record; those after them are computed keys.
    #: Empty: all columns.
    record_columns: tuple[int, ...] = ()
    #: The side outputs that have a reader.
    tags: tuple[str, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return tuple(keys or None for keys in self.keys)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        if self.kind == "broadcast-process":
            return ()  # every broadcast element must reach every key, so there is one partition
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
    """A window of the DataStream API with a Python reduce, aggregate or process window function.

    Built-in aggregates over a window are planned as ``WindowAggregateSpec`` instead.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    function: str
    kind: Literal["reduce", "aggregate", "process"]
    trigger: str | None = None
    allowed_lateness_us: int = 0
    late_tag: str | None = None
    #: True: by the records' own event times; False: by processing time. ``window.time`` is not used.
    event_time: bool = True
    #: The number of leading columns that are the record; 0: all.
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
