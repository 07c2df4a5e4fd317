"""The columns that the fields of plan nodes name, and the same fields over another layout.

A field that names columns is an index, a sort key, an aggregate call, a window, a watermark, an expression,
or a tuple of these; None names none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.functions.expr import AggregateCall, input_refs, shift_refs
from penstock.jobgraph.specs import SortKey, WatermarkSpec, WindowSpec
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

replace = msgspec.structs.replace
#: Old column → new column.
Mapping_ = dict[int, int]


def referenced(value: Any) -> set[int]:
    """The columns that the value of such a field names."""
    match value:
        case None:
            return set()
        case int():
            return {value}
        case tuple():
            return set().union(*map(referenced, value))
        case SortKey():
            return {value.index}
        case AggregateCall():
            return set(value.args) if value.filter is None else {*value.args, value.filter}
        case WindowSpec():
            return set() if value.time is None else {value.time}
        case WatermarkSpec():
            return referenced(value.rowtime) | referenced(value.expr)
    return input_refs(value)


def moved(value: Any, at: Mapping_) -> Any:
    """The value of such a field after the columns have moved. ``at``: old column → new column."""
    match value:
        case None:
            return None
        case int():
            return at[value]
        case tuple():
            return tuple(moved(one, at) for one in value)
        case SortKey():
            return replace(value, index=at[value.index])
        case AggregateCall():
            return replace(value, args=tuple(at[a] for a in value.args), filter=moved(value.filter, at))
        case WindowSpec():
            return value if value.time is None else replace(value, time=at[value.time])
        case WatermarkSpec():
            return replace(value, rowtime=moved(value.rowtime, at), expr=moved(value.expr, at))
    return shift_refs(value, at)


def same_columns(width: int) -> Mapping_:
    """The mapping that leaves each of ``width`` columns at its place."""
    return {i: i for i in range(width)}


def kept_columns(kept: Sequence[int]) -> Mapping_:
    """The mapping for a layout that has only the columns ``kept``, in this order."""
    return {column: i for i, column in enumerate(kept)}


def with_rowtime(old: Schema, new: Schema) -> Schema:
    """The schema ``new`` with the event-time column of ``old``, if ``new`` still has that column."""
    return Schema(new.fields, old.rowtime if old.rowtime in new.names else None)


def appended_schema(given: Schema, own: Schema, at: Mapping_, width: int) -> Schema:
    """The schema of a node that passes an input of ``width`` columns on and appends its own. ``own``: its
    present schema; ``given``: the pruned input, in which the columns ``at`` are left. The passed columns
    keep the node's names and types."""
    leading = renamed(given.fields, own, at).fields
    return with_rowtime(own, Schema((*leading, *own.fields[width:])))


def renamed(given: Sequence[Field], own: Schema, at: Mapping[int, int]) -> Schema:
    """The columns ``given`` under the names and types of ``own``; a column that ``own`` does not have keeps
    its name and type."""
    back = {new: old for old, new in at.items()}
    fields: list[Field] = []
    taken = set(own.names)
    for i, field in enumerate(given):
        if i in back and back[i] < len(own):
            fields.append(own.fields[back[i]])
        else:
            name = field.name
            while name in taken:
                name += "_"
            fields.append(Field(name, field.type))
        taken.add(fields[-1].name)
    rowtime = own.rowtime if any(f.name == own.rowtime for f in fields) else None
    return Schema(tuple(fields), rowtime)
