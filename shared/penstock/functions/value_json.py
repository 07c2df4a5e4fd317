"""Values as JSON, for results and previews."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock.functions.value_text import pair_types, text_of
from penstock.types import logical as t
from penstock.types.text import shortest_float


def json_of(value: Any, type_: t.LogicalType | None = None, zone: str = "UTC") -> Any:
    """A value as JSON: decimals as strings, times as SQL text, maps as objects."""
    if isinstance(type_, t.YearMonthIntervalType) and value is not None:
        return text_of(value, type_)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if value != value or abs(value) == float("inf"):
                return text_of(value)
            return shortest_float(value) if isinstance(type_, t.FloatType) else value
        case Decimal():
            return str(value)
        case dict():
            fields = {f.name: f.type for f in type_.fields} if isinstance(type_, t.RowType) else {}
            return {k: json_of(v, fields.get(k), zone) for k, v in value.items()}
        case list():
            if isinstance(type_, t.MapType | t.MultisetType):
                key, item = pair_types(type_)
                return {
                    k if isinstance(k, str) else text_of(k, key, zone): json_of(v, item, zone)
                    for k, v in value
                }
            element = type_.element if isinstance(type_, t.ArrayType) else None
            return [json_of(v, element, zone) for v in value]
    return text_of(value, type_, zone)
