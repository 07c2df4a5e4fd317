"""The keys of streams: finds the key columns, and checks that their types can be keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.function_slots import check_function
from penstock.api.selectors import FieldOfValue, column_index, is_untyped, traced
from penstock.errors import SpecError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import Schema


def key_columns(schema: Schema, selector: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Column numbers of a key that is given by names, numbers or a function that only reads fields; None for
    a function that computes."""
    if not selector:
        raise SpecError("key_by without a key", expected="a column, several, or a function of the record")
    if len(selector) == 1 and isinstance(selector[0], (list, tuple)):
        selector = tuple(selector[0])
    if all(isinstance(s, (str, int)) for s in selector):
        return tuple(column_index(schema, s, "key_by") for s in selector)
    if len(selector) > 1:
        raise SpecError("several key functions", expected="one function that returns a tuple")
    function = getattr(selector[0], "get_key", selector[0])
    if not callable(function):
        raise SpecError("not a key selector", expected="a column or a function", got=repr(selector[0]))
    check_function(selector[0], "key_by")
    return traced(function, schema)


def of_untyped(schema: Schema, selector: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replaces field numbers by a function that reads these fields, if the stream's values have no declared
    type."""
    if len(selector) == 1 and isinstance(selector[0], (list, tuple)):
        selector = tuple(selector[0])
    numbers = selector and all(isinstance(s, int) and not isinstance(s, bool) for s in selector)
    return (FieldOfValue(selector),) if numbers and is_untyped(schema) else selector


def check_key_types(types: Sequence[t.LogicalType]) -> None:
    """Raises SpecError for types that cannot be compared as keys: collections."""
    for type_ in types:
        if _holds_collection(type_):
            raise SpecError(
                f"Type {type_} cannot be used as key.",
                expected="numbers, strings, times, rows or tuples of them",
                got=str(type_),
                remedy="key by a tuple of its elements, or by a text made of them",
            )


def _holds_collection(type_: t.LogicalType) -> bool:
    if isinstance(type_, t.RowType):
        return any(_holds_collection(f.type) for f in type_.fields)
    return isinstance(type_, (t.ArrayType, t.MapType, t.MultisetType))
