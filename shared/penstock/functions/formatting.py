"""Values as text, as Flink's CAST to STRING writes them (Java's spelling of numbers)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InternalError
from penstock.functions import decimals as d
from penstock.functions.inference import decimal_text
from penstock.functions.zones import local_us
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_US = 86_400_000_000


def to_text(column: Column, zone: str = "UTC") -> pa.StringArray:
    """The column as text of unlimited length; NULL stays NULL."""
    type_ = column.type
    match type_:
        case t.CharType() | t.VarCharType() | t.VariantType():
            return column.values
        case t.BinaryType() | t.VarBinaryType():
            return _strings(
                [None if v is None else v.decode("utf-8", "replace") for v in column.storage_list()]
            )
        case t.BooleanType():
            return pa.array(["FALSE", "TRUE"]).take(_masked(column.values.astype(np.int8), column))
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            return column.to_arrow().cast(pa.string())
        case t.FloatType() | t.DoubleType():
            text = float_text if isinstance(type_, t.FloatType) else double_text
            return _strings([None if v is None else text(v) for v in _floats(column)])
        case t.DecimalType():
            return _decimals(column)
        case t.DateType():
            return _masked(column.values, column).view(pa.date32()).cast(pa.string())
        case t.TimeType(precision=p):
            return _fraction(column, column.values, p, pa.time64("us"), 8)
        case t.TimestampType(precision=p):
            return _fraction(column, column.values, p, pa.timestamp("us"), 19)
        case t.TimestampLtzType(precision=p):
            return _fraction(column, local_us(column.values, zone), p, pa.timestamp("us"), 19)
        case t.YearMonthIntervalType():
            return _strings([None if v is None else _months_text(v) for v in column.storage_list()])
        case t.DayTimeIntervalType():
            return _strings([None if v is None else _interval_text(v) for v in column.storage_list()])
        case t.ArrayType() | t.MapType() | t.MultisetType() | t.RowType():
            return _strings(_nested(column, zone))
        case t.NullType():
            return pa.nulls(len(column), pa.string())
    raise InternalError(f"no text form of {type_}")


def _strings(values: list[str | None]) -> pa.StringArray:
    return pa.array(values, pa.string())


def _masked(values: Any, column: Column) -> pa.Array:
    valid = column.valid
    return pa.array(values, mask=None if valid is None else ~valid)


def _floats(column: Column) -> list[Any]:
    """Doubles as Python floats, floats as NumPy scalars (their shortest digits differ)."""
    if column.values.dtype == np.float64:
        return column.storage_list()
    valid = column.valid
    return [v if valid is None or valid[i] else None for i, v in enumerate(column.values)]


def _java(digits: str, value: Any) -> str:
    """Java's spelling from the shortest digits in scientific or plain form."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    mantissa, _, exponent_text = digits.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    exponent = int(exponent_text or 0) + len(whole) - 1
    stripped = (whole + fraction).lstrip("0")
    if not stripped:
        return sign + "0.0"
    exponent -= len(whole + fraction) - len(stripped)
    stripped = stripped.rstrip("0")
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{stripped}"
        padded = stripped.ljust(exponent + 1, "0")
        return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
    return f"{sign}{stripped[0]}.{stripped[1:] or '0'}E{exponent}"


def double_text(value: float) -> str:
    """Double.toString."""
    return _java(repr(value), value)


def float_text(value: np.float32) -> str:
    """Float.toString."""
    return _java(str(np.float32(value)), value)


def _decimals(column: Column) -> pa.StringArray:
    scale, valid = d.scale_of(column.type), column.valid
    ints = d.unscaled(column)
    texts: list[str | None] = [decimal_text(int(v), scale) for v in ints.tolist()]  # type: ignore[union-attr]
    if valid is not None:
        for i in np.flatnonzero(~valid).tolist():
            texts[i] = None
    return _strings(texts)


def _fraction(column: Column, values: Any, precision: int, arrow: pa.DataType, whole: int) -> pa.StringArray:
    """Seconds and as many digits of a fraction as the type has."""
    text = _masked(values, column).view(arrow).cast(pa.string())
    if precision == 6:
        return text
    return pc.utf8_slice_codeunits(text, 0, whole + (precision + 1 if precision else 0))


def _months_text(months: int) -> str:
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{years}-{rest:02d}"


def _interval_text(us: int) -> str:
    days, rest = divmod(abs(us), DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if us < 0 else "+"
    return f"{sign}{days} {hour:02d}:{minute:02d}:{second:02d}.{fraction // 1000:03d}"


# -- nested ------------------------------------------------------------------------


def _nested(column: Column, zone: str) -> list[str | None]:
    type_, array = column.type, cast("Any", column.values)
    if isinstance(type_, t.RowType):
        fields = [_texts(column.child(i), zone) for i in range(len(type_.fields))]
        rows = [f"({', '.join(row)})" for row in zip(*fields, strict=True)]
    elif isinstance(type_, t.ArrayType):
        items = _texts(Column.from_arrow(type_.element, array.values), zone)
        rows = [f"[{', '.join(items[a:b])}]" for a, b in _ranges(array)]
    else:
        key = type_.key if isinstance(type_, t.MapType) else type_.element  # type: ignore[union-attr]
        value = type_.value if isinstance(type_, t.MapType) else t.IntType()
        keys = _texts(Column.from_arrow(key, array.keys), zone)
        values = _texts(Column.from_arrow(value, array.items), zone)
        entries = [f"{k}={v}" for k, v in zip(keys, values, strict=True)]
        rows = [f"{{{', '.join(entries[a:b])}}}" for a, b in _ranges(array)]
    valid = column.valid
    return [r if valid is None or valid[i] else None for i, r in enumerate(rows)]


def _texts(column: Column, zone: str) -> list[str]:
    return ["NULL" if v is None else v for v in to_text(column, zone).to_pylist()]


def _ranges(array: pa.Array) -> Sequence[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))
