"""The logical plan: one tree (a DAG by sharing) for SQL and DataStream, for both engines.

Nodes are immutable and compare by value, so equal sub-plans are found by their
fingerprint and run once. Every node knows its output ``schema``. Column indices mean
the columns of the node's input (for a join: left columns, then right).
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, Union, get_args

import msgspec

from penstock.functions.expr import AggregateCall, Expr, PythonCall
from penstock.jobgraph.graph import Partitioning
from penstock.jobgraph.specs import OperatorSpec, SortKey, WatermarkSpec, WindowSpec
from penstock.types.logical import Schema


class _Node(msgspec.Struct, frozen=True, kw_only=True, tag_field="node"):
    pass


class MetadataColumn(msgspec.Struct, frozen=True):
    """``name``'s value is the connector's metadata ``key``."""

    name: str
    key: str


class TableRef(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog table as a plan needs it. ``physical``: the connector's own columns;
    ``metadata``: appended after them; ``computed``: expressions over (physical, metadata)
    that give ``schema``; ``watermark`` is over ``schema``'s columns. ``guarantee``,
    ``sink_modes``, ``nested_projection``: what the connector says of itself."""

    name: str
    connector: str
    options: dict[str, str]
    physical: Schema
    schema: Schema
    metadata: tuple[MetadataColumn, ...] = ()
    computed: tuple[Expr, ...] | None = None
    watermark: WatermarkSpec | None = None
    primary_key: tuple[str, ...] = ()
    bounded: bool = False
    guarantee: str = ""
    sink_modes: tuple[str, ...] = ("append",)
    #: The source delivers a ROW column with fewer fields when asked to.
    nested_projection: bool = False
    #: What a lookup join with it keeps, in words; empty = it cannot be looked up.
    lookup: str = ""
    #: The options that say which data it is; None = all of them.
    location: tuple[str, ...] | None = None
    #: ``computed`` as it was before the source applied a filter itself, None = as it is.
    declared: tuple[Expr, ...] | None = None


class Scan(_Node, frozen=True, kw_only=True, tag="scan"):
    """``projection``: columns of ``table.schema`` still needed (None = all); ``pushed``:
    predicates the connector applies itself; ``uid``: given by the user."""

    table: TableRef
    schema: Schema
    projection: tuple[int, ...] | None = None
    pushed: dict[str, Any] = {}
    uid: str | None = None


class Values(_Node, frozen=True, kw_only=True, tag="values"):
    """Literal rows; ``data`` is an Arrow IPC stream of the physical batch, base64."""

    schema: Schema
    data: str
    watermark: WatermarkSpec | None = None


class Filter(_Node, frozen=True, kw_only=True, tag="filter"):
    input: Node
    condition: Expr
    schema: Schema


class Project(_Node, frozen=True, kw_only=True, tag="project"):
    input: Node
    expressions: tuple[Expr, ...]
    schema: Schema


class AssignWatermarks(_Node, frozen=True, kw_only=True, tag="watermark"):
    input: Node
    watermark: WatermarkSpec
    timestamp_function: str | None = None
    schema: Schema


class LocalTime(_Node, frozen=True, kw_only=True, tag="local-time"):
    """The input with the local TIMESTAMP of the TIMESTAMP_LTZ column ``time`` appended: the
    event time from here on, watermarks included."""

    input: Node
    time: int
    zone: str
    schema: Schema


class WindowTable(_Node, frozen=True, kw_only=True, tag="window-table"):
    """TABLE(TUMBLE/HOP/CUMULATE/SESSION(…)): window_start, window_end, window_time appended."""

    input: Node
    window: WindowSpec
    #: PARTITION BY of a session window.
    keys: tuple[int, ...] = ()
    schema: Schema


class Expand(_Node, frozen=True, kw_only=True, tag="expand"):
    """Each row once per projection list (GROUPING SETS); all lists have one layout."""

    input: Node
    projections: tuple[tuple[Expr, ...], ...]
    schema: Schema


class Aggregate(_Node, frozen=True, kw_only=True, tag="aggregate"):
    """Unwindowed grouping: ``keys``, then aggregates. Grouping sets are an ``Expand`` below
    whose set number is one of the keys."""

    input: Node
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    schema: Schema


class WindowAggregate(_Node, frozen=True, kw_only=True, tag="window-aggregate"):
    """Grouping that includes a window: keys, aggregates, then ``window_columns``.

    ``windowed_input``: (start, end) indices when the rows already carry a window.
    ``late_tag``: side output of rows later than all their windows.
    """

    input: Node
    window: WindowSpec
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window_columns: tuple[Literal["start", "end", "time"], ...] = ("start", "end", "time")
    windowed_input: tuple[int, int] | None = None
    late_tag: str | None = None
    allowed_lateness_us: int = 0
    schema: Schema


class Join(_Node, frozen=True, kw_only=True, tag="join"):
    """``condition`` is the residual after the equi-keys. The optimiser fills ``interval``
    (see ``JoinSpec``) and ``window`` ((ls, le), (rs, re)) when it recognises them."""

    left: Node
    right: Node
    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...] = ()
    condition: Expr | None = None
    interval: tuple[int, int, int, int] | None = None
    window: tuple[tuple[int, int], tuple[int, int]] | None = None
    schema: Schema


class TemporalJoin(_Node, frozen=True, kw_only=True, tag="temporal-join"):
    """FOR SYSTEM_TIME AS OF left's time: versioned by event time, or a lookup when
    ``lookup``. ``versions``: every row of the right is a version of its key."""

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int | None
    right_time: int | None
    lookup: bool = False
    versions: bool = False
    condition: Expr | None = None
    schema: Schema


class Union_(_Node, frozen=True, kw_only=True, tag="union"):
    """UNION ALL; DISTINCT is an Aggregate above."""

    inputs: tuple[Node, ...]
    schema: Schema


class SetOperation(_Node, frozen=True, kw_only=True, tag="set-operation"):
    left: Node
    right: Node
    kind: Literal["intersect", "except"]
    all: bool = False
    schema: Schema


class Sort(_Node, frozen=True, kw_only=True, tag="sort"):
    input: Node
    order: tuple[SortKey, ...]
    offset: int = 0
    limit: int | None = None
    schema: Schema


class Limit(_Node, frozen=True, kw_only=True, tag="limit"):
    input: Node
    offset: int = 0
    limit: int
    schema: Schema


class TopN(_Node, frozen=True, kw_only=True, tag="top-n"):
    """ROW_NUMBER/RANK/DENSE_RANK between first and last per partition."""

    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int = 1
    last: int
    rank: Literal["row_number", "rank", "dense_rank"] = "row_number"
    rank_column: bool = False
    window: tuple[int, int] | None = None
    schema: Schema


class Over(_Node, frozen=True, kw_only=True, tag="over"):
    """Functions with OVER, appended. The frame: see ``OverFinalSpec``."""

    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0
    schema: Schema


class Correlate(_Node, frozen=True, kw_only=True, tag="correlate"):
    """LATERAL TABLE(f(args)) / UNNEST."""

    input: Node
    function: str
    args: tuple[Expr, ...]
    kind: Literal["inner", "left"] = "inner"
    builtin: bool = True
    per: Literal["record", "batch"] = "record"
    asynchronous: bool = False
    schema: Schema


class AsyncCalc(_Node, frozen=True, kw_only=True, tag="async-calc"):
    """The input's columns, then what async functions give for each row."""

    input: Node
    calls: tuple[PythonCall, ...]
    schema: Schema


class Transform(_Node, frozen=True, kw_only=True, tag="transform"):
    """A DataStream operation: ``spec`` is run as it is. ``partitioning[i]``: how input i
    reaches it (None: forward when it can be, else rebalance)."""

    inputs: tuple[Node, ...]
    spec: OperatorSpec
    name: str
    uid: str | None = None
    partitioning: tuple[Partitioning | None, ...] = ()
    parallelism: int | None = None
    slot_sharing_group: str | None = None
    chain: bool = True
    schema: Schema
    side_outputs: dict[str, Schema] = {}


class SideOutput(_Node, frozen=True, kw_only=True, tag="side-output"):
    """The rows that ``input`` (a Transform or WindowAggregate) sends to ``tag``."""

    input: Node
    tag: str
    schema: Schema


class Sink(_Node, frozen=True, kw_only=True, tag="sink"):
    """Rows into a table. ``upsert_keys``: columns of the table's primary key. ``label``: of the
    statement, given by the user; ``columns``: what the statement calls the rows' columns."""

    input: Node
    table: TableRef
    upsert_keys: tuple[int, ...] = ()
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    label: str | None = None
    columns: tuple[str, ...] = ()
    schema: Schema


Node = Union[
    Scan, Values, Filter, Project, AssignWatermarks, LocalTime, WindowTable, Expand, Aggregate, WindowAggregate,
    Join, TemporalJoin, Union_, SetOperation, Sort, Limit, TopN, Over, Correlate, AsyncCalc, Transform,
    SideOutput, Sink,
]  # fmt: skip

NODE_TYPES: tuple[type, ...] = get_args(Node)


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The nodes a node reads."""
    match node:
        case Join() | TemporalJoin() | SetOperation():
            return (node.left, node.right)
        case Union_() | Transform():
            return node.inputs
        case Scan() | Values():
            return ()
        case _:
            return (node.input,)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs (same schemas)."""
    if all(a is b for a, b in zip(inputs, inputs_of(node), strict=True)):
        return node
    replace = msgspec.structs.replace
    match node:
        case Join() | TemporalJoin() | SetOperation():
            return replace(node, left=inputs[0], right=inputs[1])
        case Union_() | Transform():
            return replace(node, inputs=inputs)
        case _:
            return replace(node, input=inputs[0])


def fingerprint(node: Node) -> str:
    """16 hex digits of the sub-plan's meaning: equal plans, equal fingerprints."""
    return hashlib.sha256(msgspec.json.encode(node)).hexdigest()[:16]


class LogicalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job: its sinks (sharing sub-plans by value), settings and user functions."""

    name: str
    sinks: tuple[Sink, ...]
    config: dict[str, str] = {}
