"""What functions over arrays and maps take and give: their arguments' and results' types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.inference import common_type
from penstock.functions.signature import ARRAY, Param, Resolution
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable


INT = t.IntType()
#: An array whose elements have an order, which a VARIANT has not.
ORDERED = Param(
    "an array of values with an order", lambda type_: None if t.holds_variant(type_) else ARRAY.accept(type_)
)


def container(
    param: Any,
    result: Callable[[Any], t.LogicalType],
    *rest: Any,
    optional: int = 0,
    always: bool = False,
    element: bool = False,
) -> Any:
    """The first argument is an array or map. The result is nullable if an argument is, or if ``always``, or
    if it is an ``element`` that may be NULL."""

    def infer(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        call.count(1 + len(rest) - optional, 1 + len(rest))
        targets = []
        for type_, wanted in zip(call.types, (param, *rest), strict=False):
            target = wanted.accept(type_)
            if target is None:
                call.fail(f"{call.name}({', '.join(p.label for p in (param, *rest))})")
            targets.append(target.with_nullable(type_.nullable))
        out = result(targets[0])
        nullable = call.any_nullable or always or (element and out.nullable)
        return targets, out.with_nullable(nullable)

    return infer


def with_element(result: Callable[[t.ArrayType, t.LogicalType], t.LogicalType]) -> Any:
    """An array and a value of its element type; the result is NULL when the array is."""

    def infer(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        call.count(2)
        array, value = call.types
        if not isinstance(array, t.ArrayType):
            call.fail(f"{call.name}(an array, an element)")
        element = common_type([array.element, value])
        if element is None:
            call.fail(f"an element of type {array.element}")
        wide = t.ArrayType(element, array.nullable)
        same = common_type([array.element, value.with_nullable(array.element.nullable)]) == array.element
        targets = [array if same else wide, element.with_nullable(value.nullable)]
        return targets, result(array, element).with_nullable(array.nullable)

    return infer


def two_arrays(result: Callable[[t.ArrayType, t.ArrayType], t.LogicalType], *, many: bool = False) -> Any:
    def infer(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        call.count(1 if many else 2, 255 if many else 2)
        common = common_type(call.types)
        if not isinstance(common, t.ArrayType):
            call.fail("arrays of one element type")
        targets = [common.with_nullable(x.nullable) for x in call.types]
        return targets, common.with_nullable(call.any_nullable)

    return infer


def cardinality_type(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(1)
    if not isinstance(call.types[0], (t.ArrayType, t.MapType, t.MultisetType)):
        call.fail("an array, map or multiset")
    return call.types, INT.with_nullable(call.any_nullable)


def entries_type(map_: t.MapType) -> t.LogicalType:
    return t.ArrayType(t.RowType((t.Field("key", map_.key), t.Field("value", map_.value))))


def from_arrays_type(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    keys, values = call.types
    if not isinstance(keys, t.ArrayType) or not isinstance(values, t.ArrayType):
        call.fail("MAP_FROM_ARRAYS(an array of keys, an array of values)")
    return call.types, t.MapType(keys.element, values.element, call.any_nullable)


def union_type(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    common = common_type(call.types)
    if not isinstance(common, t.MapType):
        call.fail("maps of one type")
    return [common.with_nullable(x.nullable) for x in call.types], common
