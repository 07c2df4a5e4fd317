"""What each operator does, as data.

``penstock.operators.factory`` makes an operator of each. Indices always mean columns of
the operator's input. Durations are milliseconds (``_ms``) or microseconds (``_us``).
Fields are only added, with defaults.
"""

from __future__ import annotations

from typing import Any, Literal, Union

import msgspec

from penstock.functions.expr import AggregateCall, Expr, PythonCall
from penstock.types.logical import LogicalType, Schema


class _Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    pass


# -- sources and sinks ----------------------------------------------------------------


class WatermarkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a source makes watermarks, per split.

    ``rowtime``: index of the event-time column in the source's output, or None when the
    records' ``times`` are meant. watermark = max(event time) − ``delay_us`` − 1 µs.
    ``expr``: a watermark expression other than ``column − constant``; then the watermark
    is its highest value so far − 1 µs.
    """

    rowtime: int | None = None
    delay_us: int = 0
    expr: Expr | None = None
    idle_timeout_ms: int = 5_000
    interval_ms: int = 200


class EnumeratorSpec(_Spec, frozen=True, kw_only=True, tag="enumerator"):
    """Parallelism 1: discovers splits and assigns them to the readers (broadcast edge)."""

    connector: str
    options: dict[str, str]
    schema: Schema
    reader_parallelism: int


class SourceSpec(_Spec, frozen=True, kw_only=True, tag="source"):
    """A reader. Its only input is the enumerator's assignments.

    ``schema``: the table's physical columns. ``projection``: which of them, in order, are
    the leading output columns. ``metadata``: metadata keys (``timestamp``, ``subject`` …)
    appended after them. ``arrival``: append a hidden BIGINT arrival-order column last.
    ``pushed``: what the connector agreed to apply itself (e.g. ``{"event_type": 2}``).
    ``computed``: expressions over those columns giving the final output, or None.
    """

    connector: str
    options: dict[str, str]
    schema: Schema
    projection: tuple[int, ...]
    metadata: tuple[str, ...] = ()
    arrival: bool = False
    pushed: dict[str, Any] = {}
    computed: tuple[Expr, ...] | None = None
    watermark: WatermarkSpec | None = None
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class CollectionSourceSpec(_Spec, frozen=True, kw_only=True, tag="values"):
    """Rows given in the plan (VALUES, ``from_collection``), bounded. ``data``: Arrow IPC
    stream of the physical batch, base64."""

    data: str
    watermark: WatermarkSpec | None = None


class SinkSpec(_Spec, frozen=True, kw_only=True, tag="sink"):
    """``mode``: the changelog it receives. ``keys``: primary key columns for an upsert."""

    connector: str
    options: dict[str, str]
    schema: Schema
    mode: Literal["append", "upsert", "retract"] = "append"
    keys: tuple[int, ...] = ()
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: What becomes of a NULL for a NOT NULL column; None: a result, whose rows nobody checks.
    not_null: Literal["ERROR", "DROP"] | None = None
    #: What becomes of a text or bytes of another length than declared.
    type_length: Literal["IGNORE", "TRIM_PAD", "ERROR"] = "IGNORE"


# -- stateless -------------------------------------------------------------------------


class CalcSpec(_Spec, frozen=True, kw_only=True, tag="calc"):
    """Filter by ``condition`` (TRUE passes), then project. ``projections`` None = all."""

    condition: Expr | None = None
    projections: tuple[Expr, ...] | None = None
    #: What becomes of a row whose expression fails (a CAST, a user's function).
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class AsyncCalcSpec(_Spec, frozen=True, kw_only=True, tag="async-calc"):
    """Appends what async functions give for each row; many calls are under way at once."""

    calls: tuple[PythonCall, ...]
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class UnionSpec(_Spec, frozen=True, kw_only=True, tag="union"):
    """All rows of all inputs; the watermark is the lowest of theirs."""


class AssignWatermarksSpec(_Spec, frozen=True, kw_only=True, tag="watermark"):
    """A watermark strategy in the middle of a plan (DataStream API, views)."""

    watermark: WatermarkSpec
    #: DataStream: a function record → event time ms; sets the records' ``times``.
    timestamp_function: str | None = None


class WindowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A window assigner. Times in µs; window [start, end); slide divides nothing: panes
    are gcd(size, slide). ``time``: index of the time column; -1 = the records' own event
    times (``Batch.times``); None = processing time."""

    kind: Literal["tumble", "hop", "cumulate", "session", "global"]
    time: int | None = None
    size_us: int = 0
    slide_us: int = 0
    offset_us: int = 0
    gap_us: int = 0
    #: True for TIMESTAMP_LTZ window columns.
    ltz: bool = False


class WindowMaximumSpec(_Spec, frozen=True, kw_only=True, tag="window-maximum"):
    """Drops rows whose ``value`` is below one seen before in the same window. ``time``: the
    event-time column, with the tumbling ``window`` that it falls in; or, without ``window``,
    a column of window ends."""

    value: int
    time: int
    window: WindowSpec | None = None


class LocalTimeSpec(_Spec, frozen=True, kw_only=True, tag="local-time"):
    """Appends the TIMESTAMP that the clock of ``zone`` shows at the TIMESTAMP_LTZ ``time``, and
    turns watermarks into that clock's."""

    time: int
    zone: str


class WindowTableSpec(_Spec, frozen=True, kw_only=True, tag="window-table"):
    """A window table function that is not aggregated: each row once per window, with
    window_start, window_end, window_time appended. ``keys``: of a session, whose rows wait
    until it has ended."""

    window: WindowSpec
    keys: tuple[int, ...] = ()


class ExpandSpec(_Spec, frozen=True, kw_only=True, tag="expand"):
    """GROUPING SETS: each row once per projection list."""

    projections: tuple[tuple[Expr, ...], ...]


# -- keyed, columnar ---------------------------------------------------------------------


class WindowAggregateSpec(_Spec, frozen=True, kw_only=True, tag="window-aggregate"):
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


class GroupAggregateSpec(_Spec, frozen=True, kw_only=True, tag="group-aggregate"):
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


class JoinSpec(_Spec, frozen=True, kw_only=True, tag="join"):
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


class WindowJoinSpec(_Spec, frozen=True, kw_only=True, tag="window-join"):
    """Join of two windowed inputs on keys and equal window, when the window closes."""

    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_window: tuple[int, int]
    right_window: tuple[int, int]
    condition: Expr | None = None


class TemporalJoinSpec(_Spec, frozen=True, kw_only=True, tag="temporal-join"):
    """Left rows joined with the right side's version as of left's event time."""

    kind: Literal["inner", "left"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int
    right_time: int
    condition: Expr | None = None


class LookupJoinSpec(_Spec, frozen=True, kw_only=True, tag="lookup-join"):
    """Left rows joined with an external table, by key, with a cache."""

    kind: Literal["inner", "left"]
    connector: str
    options: dict[str, str]
    schema: Schema
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    projection: tuple[int, ...]
    condition: Expr | None = None


class SortKey(msgspec.Struct, frozen=True):
    index: int
    descending: bool = False
    nulls_first: bool = True


class TopNSpec(_Spec, frozen=True, kw_only=True, tag="top-n"):
    """ROW_NUMBER/RANK ≤ n per partition. ``rank_column``: append the number (BIGINT).
    ``window``: (start index, end index) of a window Top-N, emitted at window end."""

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


class DeduplicateSpec(_Spec, frozen=True, kw_only=True, tag="deduplicate"):
    """First or last row per key, by event time (``time``) or by arrival."""

    keys: tuple[int, ...]
    keep: Literal["first", "last"]
    time: int | None = None
    emit_before: bool = True
    window: tuple[int, int] | None = None
    ttl_ms: int = 0


class OverSpec(_Spec, frozen=True, kw_only=True, tag="over"):
    """OVER aggregates as rows come: appended columns. Rows or range frame ending at the
    current row; ``preceding`` None = unbounded (rows, or µs for a range).

    ``lags``: (argument, rows back, default's column or None) of each LAG, appended behind
    the aggregates; ``preceding`` is then the furthest of them, in rows.
    """

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


class OverFinalSpec(_Spec, frozen=True, kw_only=True, tag="over-final"):
    """OVER functions of a bounded input, at its end: any order, any frame, ranking and
    shifting functions among ``aggregates`` (LAG and LEAD: args (value[, default]), constants
    (rows,); NTILE: constants (buckets,)).

    The frame is from ``preceding`` before to ``following`` after the current row: rows, or
    the order column's units for a range; negative = on the other side; None = unbounded.
    """

    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0


class SortSpec(_Spec, frozen=True, kw_only=True, tag="sort"):
    """A bounded sort at the end of input, with offset and limit."""

    order: tuple[SortKey, ...]
    offset: int = 0
    limit: int | None = None


class LimitSpec(_Spec, frozen=True, kw_only=True, tag="limit"):
    offset: int = 0
    limit: int


class TemporalSortSpec(_Spec, frozen=True, kw_only=True, tag="temporal-sort"):
    """Rows in event-time order, released by the watermark."""

    time: int
    order: tuple[SortKey, ...] = ()


class MaterializeSpec(_Spec, frozen=True, kw_only=True, tag="materialize"):
    """The upsert materialiser: restores order per key before a keyed sink."""

    keys: tuple[int, ...]
    ttl_ms: int = 0


class NormalizeSpec(_Spec, frozen=True, kw_only=True, tag="normalize"):
    """Upsert changelog → full changelog with −U, per key."""

    keys: tuple[int, ...]
    ttl_ms: int = 0


class SetOperationSpec(_Spec, frozen=True, kw_only=True, tag="set-operation"):
    """INTERSECT / EXCEPT [ALL] over (left, right) hashed on all columns."""

    kind: Literal["intersect", "except"]
    all: bool = False


# -- user functions -----------------------------------------------------------------------


class PythonSpec(_Spec, frozen=True, kw_only=True, tag="python"):
    """map, flat_map, filter over one input, per record or per Arrow batch.

    ``function``: an entry of ``JobGraph.functions``.
    """

    kind: Literal["map", "flat_map", "filter"]
    function: str
    per: Literal["record", "batch"] = "record"
    blocking: bool = False
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"


class RecordTimeSpec(_Spec, frozen=True, kw_only=True, tag="record-time"):
    """Between the records' ``times`` and a column: ``append`` adds ``times`` as the last
    column; ``assign`` sets ``times`` from ``column`` (× ``unit_us``; and drops it);
    ``function`` sets them from a user's function (record, old time) → ms."""

    kind: Literal["append", "assign", "function"]
    column: int | None = None
    drop: bool = False
    unit_us: int = 1
    function: str | None = None


class TableFunctionSpec(_Spec, frozen=True, kw_only=True, tag="table-function"):
    """LATERAL TABLE(f(args)), UNNEST: input columns then the function's."""

    function: str
    args: tuple[Expr, ...]
    kind: Literal["inner", "left"] = "inner"
    builtin: bool = True
    per: Literal["record", "batch"] = "record"
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: ``function`` is async: rows are awaited, many at once.
    asynchronous: bool = False


class KeyedProcessSpec(_Spec, frozen=True, kw_only=True, tag="keyed-process"):
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


class KeyedWindowSpec(_Spec, frozen=True, kw_only=True, tag="keyed-window"):
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


class SparkQuerySpec(_Spec, frozen=True, kw_only=True, tag="spark-query"):
    """A source whose rows Spark computes. ``graph``: the job graph (JSON, compressed, base64)
    that the streaming engine would run. Of its sinks those named in ``sinks`` (indices in
    topological order) are this operator's: Spark writes them itself when ``rows`` is None;
    else there is one, and the rows of that schema that it would get come out here.
    ``backfill``: Spark reads only what of the graph's sources is history, and leaves the state
    of its operators (``plan.backfill``); there are no sinks and no rows."""

    graph: str
    sinks: tuple[int, ...]
    rows: Schema | None = None
    backfill: bool = False


class SparkProgramSpec(_Spec, frozen=True, kw_only=True, tag="spark-program"):
    """A function of the user's that is given Spark: the only operator in the graph of its
    ``SparkQuerySpec``. ``function``: its name in the job's function table. ``tables``: by name
    the graph (encoded as there) whose one sink gets the table's rows; ``refused``: why others
    cannot be read; ``sinks``: tables to insert into. ``folder``: the project's."""

    function: str
    folder: str = ""
    tables: dict[str, str] = {}
    refused: dict[str, str] = {}
    sinks: dict[str, SinkSpec] = {}


OperatorSpec = Union[
    SparkQuerySpec, SparkProgramSpec, EnumeratorSpec, SourceSpec, CollectionSourceSpec, SinkSpec, CalcSpec, AsyncCalcSpec, UnionSpec,
    AssignWatermarksSpec, WindowMaximumSpec, LocalTimeSpec, WindowTableSpec, ExpandSpec, WindowAggregateSpec,
    GroupAggregateSpec, JoinSpec, WindowJoinSpec, TemporalJoinSpec, LookupJoinSpec,
    TopNSpec, DeduplicateSpec, OverSpec, OverFinalSpec, SortSpec, LimitSpec, TemporalSortSpec,
    MaterializeSpec, NormalizeSpec, SetOperationSpec, PythonSpec, RecordTimeSpec, TableFunctionSpec,
    KeyedProcessSpec, KeyedWindowSpec,
]  # fmt: skip
