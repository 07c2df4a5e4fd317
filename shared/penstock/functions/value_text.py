"""Values as SQL prints them, for results on a screen."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np

from penstock.functions.formatting import double_text, float_text
from penstock.functions.zones import require_zone
from penstock.types import logical as t
from penstock.types.text import interval_text


def text_of(value: Any, type_: t.LogicalType | None = None, zone: str = "UTC") -> str:
    """A value as SQL prints it: timestamps with their declared precision, those with local time zone
    in ``zone``, numbers as Java spells them, NULL, TRUE. A MAP is a dictionary or a list of pairs, a ROW a
    tuple or a dictionary."""
    if value is None:
        return "NULL"
    if (interval := interval_text(value, type_)) is not None:
        return interval
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case dt.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(require_zone(zone))
            base = value.replace(microsecond=0, tzinfo=None).isoformat(" ")
            precision = type_.precision if isinstance(type_, t.TIMESTAMPS) else 6
            return base if not precision else f"{base}.{value.microsecond:06d}"[: 20 + precision]
        case bytes():
            return "x'" + value.hex() + "'"
        case list() | dict() if isinstance(type_, t.MapType | t.MultisetType):
            key, item = pair_types(type_)
            entries = value.items() if isinstance(value, dict) else value
            pairs = (f"{text_of(k, key, zone)}={text_of(v, item, zone)}" for k, v in entries)
            return "{" + ", ".join(pairs) + "}"
        case list():
            element = type_.element if isinstance(type_, t.ArrayType) else None
            return "[" + ", ".join(text_of(v, element, zone) for v in value) + "]"
        case tuple() if isinstance(type_, t.RowType):
            fields = zip(value, type_.fields, strict=True)
            return "(" + ", ".join(text_of(v, f.type, zone) for v, f in fields) + ")"
        case dict():
            types = {f.name: f.type for f in type_.fields} if isinstance(type_, t.RowType) else {}
            return "(" + ", ".join(text_of(v, types.get(k), zone) for k, v in value.items()) + ")"
        case float():
            return float_text(np.float32(value)) if isinstance(type_, t.FloatType) else double_text(value)
        case Decimal():
            return f"{value:f}"
    return str(value)


def pair_types(type_: t.MapType | t.MultisetType) -> tuple[t.LogicalType, t.LogicalType]:
    """Types of a map's keys and values, or of a multiset's elements and their numbers."""
    return (type_.key, type_.value) if isinstance(type_, t.MapType) else (type_.element, t.IntType())
