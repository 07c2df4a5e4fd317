"""ARRAY, MAP and ROW: constructors, elements and the ARRAY_* and MAP_* functions.

Elements are stored in Arrow's external types, so functions per row receive Python's dates and decimals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import RecordError
from penstock.functions.collection_types import (
    INT,
    ORDERED,
    cardinality_type,
    container,
    entries_type,
    from_arrays_type,
    two_arrays,
    union_type,
    with_element,
)
from penstock.functions.formatting import double_text
from penstock.functions.inference import common_type
from penstock.functions.signature import (
    ARRAY,
    AS_INT,
    BOOL,
    MAP,
    STR,
    STRING,
    FunctionDef,
    Resolution,
    register,
    rowwise,
)  # fmt: skip
from penstock.functions.variant import item, resolve_item
from penstock.functions.vector import Scalar, as_column, is_null, retyped
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import arrow_type, external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector


def external_rows(call: Call, function: Callable[..., Any], *, nulls: bool = False) -> Any:
    """``function`` per row on external Python values; NULL in gives NULL out unless ``nulls``."""
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        lists = [_external(a, n) for a in args]
        out = [
            function(*row) if nulls or not any(v is None for v in row) else None
            for row in zip(*lists, strict=True)
        ]
        return Column.of(type_, out)

    return run


def _external(vector: Vector, n: int) -> list[Any]:
    if isinstance(vector, Scalar):
        return as_column(vector, 1).to_pylist() * n
    return vector.to_pylist()


# -- constructors ------------------------------------------------------------------------


def _resolve_array(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    common = common_type(call.types)
    if common is None or isinstance(common, t.NullType):
        call.fail("at least one element, all of one common type")
    return [common.with_nullable(x.nullable) for x in call.types], t.ArrayType(common, nullable=False)


def _bind_array(call: Call) -> Any:
    width, type_ = len(call.args), call.type
    element = external_arrow_type(type_.element)  # type: ignore[union-attr]

    def run(args: Sequence[Vector], n: int) -> Vector:
        arrays = [as_column(a, n).to_external_arrow().cast(element) for a in args]
        order = np.arange(n * width).reshape(width, n).T.ravel()
        values = pa.concat_arrays(arrays).take(pa.array(order))
        offsets = pa.array(np.arange(0, n * width + 1, width, dtype=np.int32))
        return Column(type_, pa.ListArray.from_arrays(offsets, values, type=arrow_type(type_)))

    return run


def _resolve_map(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    types = call.types
    if not types or len(types) % 2:
        call.fail("MAP[key, value, …]")
    key, value = common_type(types[::2]), common_type(types[1::2])
    if key is None or value is None:
        call.fail("keys of one type and values of one type")
    targets = [(value if i % 2 else key).with_nullable(x.nullable) for i, x in enumerate(types)]
    return targets, t.MapType(key, value, nullable=False)


def _entries(keys: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Entries of a map; of equal keys the last value counts."""
    if any(key is None for key in keys):
        raise RecordError("a key of a map is NULL", expected="keys that are not NULL", got="NULL")
    return list(dict(zip(keys, values, strict=True)).items())


def _bind_map(call: Call) -> Any:
    return external_rows(call, lambda *row: _entries(row[::2], row[1::2]), nulls=True)


def _resolve_row(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    fields = tuple(t.Field(f"EXPR${i}", type_) for i, type_ in enumerate(call.types))
    return call.types, t.RowType(fields, nullable=False)


def _bind_row(call: Call) -> Any:
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        arrow = arrow_type(type_)
        arrays = [as_column(a, n).to_external_arrow().cast(arrow.field(i).type) for i, a in enumerate(args)]
        return Column(type_, pa.StructArray.from_arrays(arrays, fields=list(arrow)))

    return run


register(FunctionDef("ARRAY", _resolve_array, _bind_array))
register(FunctionDef("MAP", _resolve_map, _bind_map, fails=True, costly=True))
register(FunctionDef("ROW", _resolve_row, _bind_row))


# -- elements ------------------------------------------------------------------------------


def _resolve_item(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    container, index = call.types
    if isinstance(container, t.VariantType):
        return resolve_item(call)
    if isinstance(container, t.ArrayType) and isinstance(index, (*t.INTEGERS, t.NullType)):
        return [container, INT.with_nullable(index.nullable)], container.element.with_nullable(True)
    if isinstance(container, t.MapType):
        if common_type([container.key, index]) is None:
            call.fail(f"a key of type {container.key}")
        return [container, index], container.value.with_nullable(True)
    if isinstance(container, t.RowType) and isinstance(index, t.INTEGERS):
        position = call.constant(1, "the field's number")
        if not 1 <= position <= len(container.fields):
            call.fail(f"a field number from 1 to {len(container.fields)}")
        return [container, index], container.fields[position - 1].type.with_nullable(True)
    call.fail("an array and an index, or a map and a key")


def _bind_item(call: Call) -> Any:
    container = call.args[0].type
    if isinstance(container, t.VariantType):
        return rowwise(call, item)
    if isinstance(container, t.MapType):
        return external_rows(call, lambda entries, key: dict(entries).get(key))
    if isinstance(container, t.RowType):
        position = call.args[1].value - 1  # type: ignore[union-attr]
        return lambda args, n: retyped(as_column(args[0], n).child(position), call.type)
    return _array_item(call)


def _array_item(call: Call) -> Any:
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]) or is_null(args[1]):
            return Scalar(type_, None)
        column, index = as_column(args[0], n), as_column(args[1], n)
        known = np.ones(n, np.bool_)
        for vector in (column, index):
            if vector.valid is not None:
                known &= vector.valid
        low = known & (index.values < 1)
        if low.any():
            raise RecordError(
                "array element access needs an index starting at 1",
                expected="an index of at least 1",
                got=str(int(index.values[low][0])),
            )
        array: Any = column.values
        offsets = array.offsets.to_numpy().astype(np.int64)
        at = offsets[:-1] + index.values - 1
        found = known & (at < offsets[1:])
        taken = array.values.take(pa.array(np.where(found, at, 0), mask=~found))
        return Column.from_arrow(type_, taken)

    return run


register(
    FunctionDef(
        "ITEM",
        _resolve_item,
        _bind_item,
        fails=lambda call: isinstance(call.args[0].type, (t.ArrayType, t.VariantType)),
    )
)


# -- functions per row ---------------------------------------------------------------------


def _define(
    name: str,
    infer: Callable[[Resolution], tuple[list[t.LogicalType], t.LogicalType]],
    function: Callable[..., Any],
    *,
    nulls: bool = False,
    fails: bool = False,
) -> None:
    register(
        FunctionDef(
            name, infer, lambda call: external_rows(call, function, nulls=nulls), fails=fails, costly=True
        )
    )


def _unique(values: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    seen = set()
    for value in values:
        key = repr(value) if isinstance(value, (list, dict)) else value
        if key not in seen:
            seen.add(key)
            out.append(value)
    return out


def _contains(array: list[Any] | None, value: Any) -> bool | None:
    return None if array is None else value in array


def _slice(array: list[Any], start: int, end: int | None = None) -> list[Any]:
    n = len(array)
    start = max(start + n + 1, 1) if start < 0 else max(start, 1)
    end = n if end is None else end + n + 1 if end < 0 else min(max(end, 1) if end == 0 else end, n)
    return array[start - 1 : end] if start <= end else []


def _sort(
    array: list[Any] | None, ascending: bool | None = True, nulls_first: bool | None = None
) -> list[Any] | None:
    if array is None or ascending is None:
        return None
    first = ascending if nulls_first is None else nulls_first
    values = sorted((v for v in array if v is not None), reverse=not ascending)
    nulls = [None] * (len(array) - len(values))
    return nulls + values if first else values + nulls


def _element(array: list[Any]) -> Any:
    if len(array) > 1:
        raise RecordError(
            "the array has more than one element", expected="0 or 1 elements", got=str(len(array))
        )
    return array[0] if array else None


def _join(array: list[Any], separator: str, missing: str | None = None) -> str:
    texts = [missing if v is None else v for v in array]
    return separator.join(v if isinstance(v, str) else double_text(v) for v in texts if v is not None)


def _position(array: list[Any] | None, value: Any) -> int | None:
    return None if array is None or value is None else array.index(value) + 1 if value in array else 0


_define("ELEMENT", container(ARRAY, lambda array: array.element, element=True), _element, fails=True)
_define("ARRAY_CONTAINS", with_element(lambda array, element: t.BooleanType()), _contains, nulls=True)
_define("ARRAY_POSITION", with_element(lambda array, element: INT), _position, nulls=True)
_define(
    "ARRAY_APPEND",
    with_element(lambda array, element: t.ArrayType(element)),
    lambda a, v: None if a is None else [*a, v],
    nulls=True,
)
_define(
    "ARRAY_PREPEND",
    with_element(lambda array, element: t.ArrayType(element)),
    lambda a, v: None if a is None else [v, *a],
    nulls=True,
)
_define(
    "ARRAY_REMOVE",
    with_element(lambda array, element: array),
    lambda a, v: None if a is None else [x for x in a if x != v],
    nulls=True,
)
_define("ARRAY_DISTINCT", container(ARRAY, lambda array: array), _unique)
_define("ARRAY_REVERSE", container(ARRAY, lambda array: array), lambda a: a[::-1])
_define("ARRAY_CONCAT", two_arrays(lambda a, b: a, many=True), lambda *arrays: [v for a in arrays for v in a])
_define("ARRAY_EXCEPT", two_arrays(lambda a, b: a), lambda a, b: [v for v in _unique(a) if v not in b])
_define("ARRAY_INTERSECT", two_arrays(lambda a, b: a), lambda a, b: [v for v in _unique(a) if v in b])
_define("ARRAY_UNION", two_arrays(lambda a, b: a), lambda a, b: _unique([*a, *b]))
_define("ARRAY_JOIN", container(ARRAY, lambda array: STRING, STR, STR, optional=1), _join)
_define(
    "ARRAY_MAX",
    container(ORDERED, lambda array: array.element, always=True),
    lambda a: max((v for v in a if v is not None), default=None),
)
_define(
    "ARRAY_MIN",
    container(ORDERED, lambda array: array.element, always=True),
    lambda a: min((v for v in a if v is not None), default=None),
)
_define("ARRAY_SLICE", container(ARRAY, lambda array: array, AS_INT, AS_INT, optional=1), _slice)
_define("ARRAY_SORT", container(ORDERED, lambda array: array, BOOL, BOOL, optional=2), _sort, nulls=True)
_define("MAP_KEYS", container(MAP, lambda map_: t.ArrayType(map_.key)), lambda m: [k for k, _ in m])
_define("MAP_VALUES", container(MAP, lambda map_: t.ArrayType(map_.value)), lambda m: [v for _, v in m])


_define("CARDINALITY", cardinality_type, len)


_define("MAP_ENTRIES", container(MAP, entries_type), lambda m: [{"key": k, "value": v} for k, v in m])


def _from_arrays(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    if len(keys) != len(values):
        raise RecordError(
            "MAP_FROM_ARRAYS needs as many values as keys",
            expected=f"{len(keys)} values",
            got=str(len(values)),
        )
    return _entries(keys, values)


_define("MAP_FROM_ARRAYS", from_arrays_type, _from_arrays, fails=True)
_define("MAP_UNION", union_type, lambda *maps: list({k: v for m in maps for k, v in m}.items()))
