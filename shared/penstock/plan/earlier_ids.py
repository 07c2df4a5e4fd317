"""The uids that operators had before ``plan.identity`` existed; state in savepoints of that version has them.

Such a uid is the operator's kind and 16 hexadecimal digits over every field of every node below it, so a new
field of a node would change it. ``FIELDS`` holds the fields that existed then; a field added since counts
only if it differs from its default. This module goes away, together with ``OperatorIdentity.former``, one
version after the one that introduced the new ids.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.plan import nodes as n
from penstock.plan.rewriting import Interner, without_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Fields that only the new ids use; the old ids leave them out.
_UNKNOWN_THEN = frozenset({"declared", "location", "label", "columns", "uid", "unread_fields"})
_INPUT_FIELDS = frozenset({"input", "left", "right", "inputs"})


class EarlierFingerprints:
    """The old fingerprints of the nodes of one plan.

    ``code``: function name → the text that replaces the name, because names only number the functions in the
    order of the program.
    """

    def __init__(self, code: Mapping[str, str] | None = None) -> None:
        self._prints: dict[int, tuple[n.Node, str]] = {}
        self._code = {f'"{name}"'.encode(): f'"{text}"'.encode() for name, text in (code or {}).items()}

    def of(self, node: n.Node) -> str:
        """The fingerprint of ``node``: 16 hexadecimal digits."""
        found = self._prints.get(id(node))
        if found is None:
            inputs = [self.of(i) for i in n.inputs_of(node)]
            own = {k: v for k, v in _then(node).items() if k not in _INPUT_FIELDS and k != "node"}
            data = msgspec.json.encode([type(node).__name__, inputs, without_places(own)], order="sorted")
            for name, text in self._code.items():
                data = data.replace(name, text)
            found = (node, hashlib.sha256(data).hexdigest()[:16])
            self._prints[id(node)] = found
        return found[1]


def originals_of(now: Sequence[n.Node], then: Sequence[n.Node]) -> dict[str, n.Node]:
    """Fingerprint (``Interner``) of a node of the plan ``now`` → the node at the same place in ``then``, the
    plan as the version before made it.

    The two plans differ in filters and projections only. A node whose input has other columns than before
    gets no entry, because its state had another layout.
    """
    interner = Interner()
    found: dict[str, list[n.Node]] = {}
    seen: set[tuple[int, int]] = set()

    def visit(new: n.Node, old: n.Node) -> None:
        while type(new) is not type(old):
            if isinstance(new, (n.Filter, n.Project)):
                new = new.input
            elif isinstance(old, (n.Filter, n.Project)):
                old = old.input
            else:
                return
        if (id(new), id(old)) in seen:
            return
        seen.add((id(new), id(old)))
        inputs = list(zip(n.inputs_of(new), n.inputs_of(old), strict=True))
        if isinstance(new, n.Scan) or all(a.schema.types == b.schema.types for a, b in inputs):
            known = found.setdefault(interner.fingerprint(interner.intern(new)), [])
            if all(old is not other for other in known):
                known.append(old)
        for a, b in inputs:
            visit(a, b)

    for new, old in zip(now, then, strict=True):
        visit(new, old)
    # Where two sources have become one, each of the two had its own position: the one source can continue
    # from neither.
    return {fingerprint: nodes[0] for fingerprint, nodes in found.items() if len(nodes) == 1}


def _then(value: Any) -> Any:
    """The value as ``msgspec.to_builtins`` converted it in the version before."""
    if isinstance(value, msgspec.Struct):
        kind = type(value)
        tag_field = kind.__struct_config__.tag_field
        out: dict[str, Any] = {} if tag_field is None else {tag_field: kind.__struct_config__.tag}
        known = FIELDS.get(kind.__name__)
        is_node = isinstance(value, n.Node)
        for field in _fields(kind):
            if is_node and field.name in _INPUT_FIELDS:
                continue
            own = getattr(value, field.name)
            added = known is not None and field.name not in known.split()
            if not added or (field.name not in _UNKNOWN_THEN and own != _default(field)):
                out[field.name] = _then(own)
        return out
    if isinstance(value, dict):
        return {key: _then(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = []
        for (
            item
        ) in value:  # A comprehension would take one more stack frame for each level of a deep expression.
            items.append(_then(item))
        return items
    return msgspec.to_builtins(value)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """The fields of a struct, cached because msgspec reads the annotations anew on each call."""
    return msgspec.structs.fields(kind)


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


#: Name of a struct → the fields that the struct had in the version before.
FIELDS = {
    "AggregateCall": "function args type distinct filter ignore_nulls constants python",
    "Call": "function args type line column",
    "FieldAccess": "arg index type",
    "InputRef": "index type",
    "Literal": "value type",
    "PythonCall": "function args type per asynchronous",
    "Broadcast": "",
    "Forward": "",
    "Global": "",
    "Hash": "keys",
    "Rebalance": "",
    "Rescale": "",
    "AssignWatermarksSpec": "watermark timestamp_function",
    "AsyncCalcSpec": "calls on_error",
    "CalcSpec": "condition projections on_error",
    "CollectionSourceSpec": "data watermark",
    "DeduplicateSpec": "keys keep time emit_before window ttl_ms",
    "EnumeratorSpec": "connector options schema reader_parallelism",
    "ExpandSpec": "projections",
    "GroupAggregateSpec": "keys aggregates retracts emit_before phase bounded_final ttl_ms local_types",
    "JoinSpec": "kind left_keys right_keys condition interval null_safe left_unique right_unique ttl_ms",
    "KeyedProcessSpec": "kind function keys per on_error record_columns tags",
    "KeyedWindowSpec": "window keys function kind trigger allowed_lateness_us late_tag event_time record_columns tags on_error",
    "LimitSpec": "offset limit",
    "LocalTimeSpec": "time zone",
    "LookupJoinSpec": "kind connector options schema left_keys right_keys projection condition",
    "MaterializeSpec": "keys ttl_ms",
    "NormalizeSpec": "keys ttl_ms",
    "OverFinalSpec": "partition order aggregates frame preceding following",
    "OverSpec": "partition order aggregates frame preceding ttl_ms read_at lags",
    "PythonSpec": "kind function per blocking on_error",
    "RecordTimeSpec": "kind column drop unit_us function",
    "SetOperationSpec": "kind all",
    "SinkSpec": "connector options schema mode keys on_error",
    "SortKey": "index descending nulls_first",
    "SortSpec": "order offset limit",
    "SourceSpec": "connector options schema projection metadata arrival pushed computed watermark on_error",
    "SparkProgramSpec": "function folder tables refused sinks",
    "SparkQuerySpec": "graph sinks rows backfill",
    "TableFunctionSpec": "function args kind builtin per on_error asynchronous",
    "TemporalJoinSpec": "kind left_keys right_keys left_time right_time condition",
    "TemporalSortSpec": "time order",
    "TopNSpec": "partition order first last rank rank_column retracts emit_before unique_keys window ttl_ms fixed_order",
    "UnionSpec": "",
    "WatermarkSpec": "rowtime delay_us expr idle_timeout_ms interval_ms",
    "WindowAggregateSpec": "window keys aggregates window_columns phase late_tag allowed_lateness_us windowed_input retracts local_types",
    "WindowJoinSpec": "kind left_keys right_keys left_window right_window condition",
    "WindowMaximumSpec": "value time window",
    "WindowSpec": "kind time size_us slide_us offset_us gap_us ltz",
    "WindowTableSpec": "window keys",
    "Aggregate": "input keys aggregates schema",
    "AssignWatermarks": "input watermark timestamp_function schema",
    "AsyncCalc": "input calls schema",
    "Correlate": "input function args kind builtin per asynchronous schema",
    "Expand": "input projections schema",
    "Filter": "input condition schema",
    "Join": "left right kind left_keys right_keys null_safe condition interval window schema",
    "Limit": "input offset limit schema",
    "LocalTime": "input time zone schema",
    "MetadataColumn": "name key",
    "Over": "input partition order aggregates frame preceding following schema",
    "Project": "input expressions schema",
    "Scan": "table schema projection pushed",
    "SetOperation": "left right kind all schema",
    "SideOutput": "input tag schema",
    "Sink": "input table upsert_keys name uid parallelism schema",
    "Sort": "input order offset limit schema",
    "TableRef": "name connector options physical schema metadata computed watermark primary_key bounded guarantee sink_modes nested_projection lookup",
    "TemporalJoin": "left right kind left_keys right_keys left_time right_time lookup versions condition schema",
    "TopN": "input partition order first last rank rank_column window schema",
    "Transform": "inputs spec name uid partitioning parallelism slot_sharing_group chain schema side_outputs",
    "Union_": "inputs schema",
    "Values": "schema data watermark",
    "WindowAggregate": "input window keys aggregates window_columns windowed_input late_tag allowed_lateness_us schema",
    "WindowTable": "input window keys schema",
    "ArrayType": "element nullable",
    "BigIntType": "nullable",
    "BinaryType": "length nullable",
    "BooleanType": "nullable",
    "CharType": "length nullable",
    "DateType": "nullable",
    "DayTimeIntervalType": "nullable",
    "DecimalType": "precision scale nullable",
    "DoubleType": "nullable",
    "Field": "name type",
    "FloatType": "nullable",
    "IntType": "nullable",
    "MapType": "key value nullable",
    "MultisetType": "element nullable",
    "NullType": "nullable",
    "RawType": "serializer nullable",
    "RowType": "fields nullable",
    "Schema": "fields rowtime",
    "SmallIntType": "nullable",
    "TimeType": "precision nullable",
    "TimestampLtzType": "precision nullable",
    "TimestampType": "precision nullable",
    "TinyIntType": "nullable",
    "VarBinaryType": "length nullable",
    "VarCharType": "length nullable",
    "YearMonthIntervalType": "nullable",
}
