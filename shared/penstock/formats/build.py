"""Converts Python values to Arrow arrays, column by column, by logical type.

The values are those of a JSON decoder: int, float, str (also for dates, times and timestamps), bool,
``Decimal``, bytes, list, dict, or an object with one attribute for each field of a ROW; a time may be a
``datetime.time``, too. Raises ``pa.ArrowException``, ``ValueError``, ``OverflowError`` or ``TypeError`` if a value does not fit; the caller
then searches the record with that value.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.variant import canonical
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

#: Decimals of any precision, rounded as Flink does.
EXACT = Context(prec=76, rounding=ROUND_HALF_UP)
#: Days since 1970 of 0001-01-01 and of 9999-12-31.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY_US = 86_400_000_000
_STEP_US = {p: 10 ** (6 - p) for p in range(7)}


def field_attribute(index: int) -> str:
    """The attribute of a decoded record that holds its field ``index``."""
    return f"f{index}"


def is_plain_name(name: str) -> bool:
    """Whether JSON writes the name as it is. msgspec takes no other name as a field of a struct."""
    return not any(c in '"\\' or c < " " for c in name)


def build_column(type_: t.LogicalType, values: list[Any]) -> Column:
    """One column of ``len(values)`` rows."""
    return column_of(type_, build_array(type_, values))


def column_of(type_: t.LogicalType, array: pa.Array) -> Column:
    """An array of the external type as a column. Times are cut to the type's precision."""
    column = Column.from_arrow(type_, array)
    if isinstance(type_, t.TIMESTAMPS) and type_.precision < 6:
        step = _STEP_US[type_.precision]
        return Column(type_, column.values - column.values % step, column.valid)
    return column


def in_range(type_: t.LogicalType, array: pa.Array) -> pa.Array:
    """The array of dates or timestamps (days or µs since 1970). ValueError for one outside SQL's years 1 to 9999:
    Arrow reads the year 0000 and goes on counting behind 9999."""
    if isinstance(type_, t.DateType):
        first, last, numbers = FIRST_DAY, LAST_DAY, array.view(pa.int32())
    elif isinstance(type_, t.TIMESTAMPS):
        first, last, numbers = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1, array.view(pa.int64())
    else:
        return array
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and not first <= bounds["min"].as_py() <= bounds["max"].as_py() <= last:
        raise ValueError(f"a value of type {type_} is outside the years 1 to 9999")
    return array


def singles(doubles: pa.Array) -> pa.Array:
    """DOUBLE values as FLOAT ones. ValueError for a number that is beyond FLOAT's range, which Arrow makes infinite."""
    made = doubles.cast(pa.float32())
    if pc.any(pc.and_not(pc.is_inf(made), pc.is_inf(doubles))).as_py():
        raise ValueError("a number is outside the range of FLOAT")
    return made


def build_array(type_: t.LogicalType, values: list[Any]) -> pa.Array:
    """An Arrow array of the external type. Raises as the module says."""
    match type_:
        case t.TimeType() if not any(isinstance(v, str) for v in values):
            return pa.array(values, external_arrow_type(type_))
        case t.TimestampType() | t.TimestampLtzType() | t.DateType() | t.TimeType():
            return in_range(type_, pa.array(values, pa.string()).cast(external_arrow_type(type_)))
        case t.DecimalType():
            return _decimals(type_, values)
        case t.FloatType():
            return singles(pa.array(values, pa.float64()))
        case t.DayTimeIntervalType():
            return pc.multiply(pa.array(values, pa.int64()), pa.scalar(1000)).cast(pa.duration("us"))
        case t.ArrayType(element=element):
            offsets, mask, flat = flatten(values)
            return pa.ListArray.from_arrays(
                offsets, build_array(element, flat), type=external_arrow_type(type_), mask=mask
            )
        case t.MapType(key=key, value=value):
            return _maps(type_, key, value, values)
        case t.MultisetType(element=element):
            return _maps(type_, element, t.IntType(), values)
        case t.RowType():
            return _rows(type_, values)
        case t.VariantType():
            return pa.array([_variant(v) for v in values], pa.string())
    return pa.array(values, external_arrow_type(type_))


def _variant(value: msgspec.Raw | None) -> str | None:
    """The stored form of a JSON value; null is NULL, as for every other type."""
    if value is None or bytes(value).strip() == b"null":
        return None
    return canonical(bytes(value).decode())


def _decimals(type_: t.DecimalType, values: list[Any]) -> pa.Array:
    want = pa.decimal128(type_.precision, type_.scale)
    try:
        return pa.array(values, want)
    except pa.ArrowInvalid:
        quantum = Decimal(1).scaleb(-type_.scale)
        rounded = [None if v is None else v.quantize(quantum, context=EXACT) for v in values]
        return pa.array(rounded, want)


def flatten(values: Sequence[Any]) -> tuple[pa.Array, pa.Array | None, list[Any]]:
    """Offsets, NULL mask and the elements of all lists (or dict items), one after another."""
    lengths = np.array([0 if v is None else len(v) for v in values], np.int32)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = None
    if any(v is None for v in values):
        mask = pa.array([v is None for v in values])
    flat = [item for v in values if v is not None for item in v]
    return pa.array(offsets), mask, flat


def _maps(type_: t.LogicalType, key: t.LogicalType, value: t.LogicalType, values: list[Any]) -> pa.Array:
    pairs = [None if v is None else list(v.items()) for v in values]
    offsets, mask, flat = flatten(pairs)
    if not isinstance(key, t.STRINGS):
        flat = [(_map_key(key, k), v) for k, v in flat]
    keys = build_array(key, [k for k, _ in flat])
    items = build_array(value, [v for _, v in flat])
    return pa.MapArray.from_arrays(offsets, keys, items, type=external_arrow_type(type_), mask=mask)


def _map_key(type_: t.LogicalType, text: Any) -> Any:
    """A JSON object's key is text, whatever the map's key type."""
    match type_:
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            return int(text)
        case t.FloatType() | t.DoubleType():
            return float(text)
        case t.DecimalType():
            return Decimal(text)
        case t.BooleanType():
            return {"true": True, "false": False}[text]
    return text


def _rows(type_: t.RowType, values: list[Any]) -> pa.Array:
    if not type_.fields:
        return pa.array([None if v is None else {} for v in values], pa.struct([]))
    there = [v for v in values if v is not None]
    children = [
        build_array(field.type, list(map(attrgetter(field_attribute(i)), there)))
        for i, field in enumerate(type_.fields)
    ]
    # The fields of a NULL row are not converted: most rows of a column of variants are NULL.
    absent = None if len(there) == len(values) else np.array([v is None for v in values])
    return struct_of(type_, children, absent)


def struct_of(type_: t.RowType, children: list[pa.Array], absent: np.ndarray | None) -> pa.Array:
    """Rows whose fields are ``children``, which have values for those rows alone that are not NULL.

    ``absent``: the rows that are NULL; None = there is none. The type has at least one field.
    """
    fields = [pa.field(f.name, c.type) for f, c in zip(type_.fields, children, strict=True)]
    if absent is None:
        return pa.StructArray.from_arrays(children, fields=fields)
    places = pa.array(np.cumsum(~absent) - 1, mask=absent)
    return pa.StructArray.from_arrays(
        [child.take(places) for child in children], fields=fields, mask=pa.array(absent)
    )
