"""Results of a user's function as a column of the declared type; no value is truncated silently.

Arrow alone would turn 1.5 into 1 for an INT, 1e300 into infinity for a FLOAT, a ``datetime`` into a date, the
float 1.505 into 1.51 for a DECIMAL(10, 2), and a whole number into microseconds since 1970 for a TIMESTAMP.
Batches are converted as a whole; values are checked one by one only for types that Arrow does not check, and if
a batch does not fit. As in Flink, a fraction of a second beyond the precision of a TIMESTAMP is truncated; a TIME
keeps its milliseconds, because Flink counts a TIME of any precision up to 3 in milliseconds.
"""

from __future__ import annotations

import math
from datetime import datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.functions.variant import canonical
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_WHOLE = (*t.INTEGERS, t.YearMonthIntervalType)
#: A whole number is refused for these types, because its unit is unknown.
_TEMPORAL = (t.DateType, t.TimeType, *t.TIMESTAMPS, t.DayTimeIntervalType)
#: Refuses to round: a DECIMAL is exactly what the function returned, or an error.
_EXACT = Context(prec=76, rounding=ROUND_HALF_UP, traps=[Inexact, InvalidOperation])
#: What ``result_of`` raises for values that do not fit.
MISFIT = (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError)


def result_of(type_: t.LogicalType, out: Any) -> Column:
    """The results as a column of ``type_``. ``out`` is a list of Python values, an Arrow array or a NumPy
    array.

    Raises one of ``MISFIT`` if a value does not fit the type.
    """
    want = external_arrow_type(type_)
    if isinstance(type_, t.RawType):
        return Column.of(type_, list(out))
    if isinstance(type_, t.VariantType):
        values = out.to_pylist() if isinstance(out, (pa.Array, pa.ChunkedArray)) else list(out)
        return Column.of(type_, [None if v is None else canonical(v) for v in values])
    if isinstance(type_, t.DecimalType) and isinstance(out, np.ndarray) and out.dtype.kind in "iuf":
        out = pa.array(out)
    if isinstance(type_, _TEMPORAL) and isinstance(out, np.ndarray) and out.dtype.kind in "iuf":
        raise TypeError(f"{out.dtype} values for {type_}")
    if isinstance(out, (pa.Array, pa.ChunkedArray)):
        column = Column.from_arrow(type_, out if out.type == want else _cast(out, want))
    elif not isinstance(out, list):
        column = Column.from_arrow(type_, pa.array(out, want))
    elif isinstance(type_, t.DecimalType):
        column = Column.from_arrow(type_, pa.array(_decimals(type_, out), want))
    elif isinstance(type_, _WHOLE):
        column = Column.from_arrow(type_, _whole(pa.array(out), type_, want))
    else:
        check = None if isinstance(type_, t.FloatType) else _check(type_)
        if check is not None:
            for value in out:
                check(value)
        column = Column.of(type_, out)
    if isinstance(type_, t.FloatType) and np.isinf(column.values).any():
        for value in out.to_pylist() if isinstance(out, (pa.Array, pa.ChunkedArray)) else out:
            _check_float(value)
    if isinstance(type_, (t.TimeType, *t.TIMESTAMPS)) and type_.precision < 6:
        digits = max(type_.precision, 3) if isinstance(type_, t.TimeType) else type_.precision
        unit = 10 ** (6 - digits)
        column = Column(type_, np.floor_divide(column.values, unit) * unit, column.valid)
    return column


def first_misfit(type_: t.LogicalType, out: Any) -> tuple[int, Any] | None:
    """The first value that does not fit by itself, and its position."""
    for i in range(len(out)):
        try:
            result_of(type_, out[i : i + 1])
        except MISFIT:
            value = out[i]
            return i, value.as_py() if isinstance(value, pa.Scalar) else value
    return None


def allowed(type_: t.LogicalType) -> str:
    """The type in words; numbers with their bounds."""
    if isinstance(type_, t.DecimalType):
        whole = type_.precision - type_.scale
        return f"a value of {type_}: at most {whole} digits before the point and {type_.scale} behind it"
    if not isinstance(type_, t.INTEGERS):
        return f"a value of {type_}"
    bounds = np.iinfo(numpy_dtype(type_))
    return f"a value of {type_}: a whole number from {bounds.min} to {bounds.max}"


def _whole(array: pa.Array, type_: t.LogicalType, want: pa.DataType) -> pa.Array:
    kind = array.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or pa.types.is_null(kind)):
        raise TypeError(f"{kind} values for {type_}")
    return array.cast(want)


def _cast(array: pa.Array, want: pa.DataType) -> pa.Array:
    """The array as the type ``want``. Arrow refuses to round a DECIMAL but rounds floating-point numbers, so
    these are converted by their shortest digits."""
    if pa.types.is_decimal(want) and (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        return array.cast(pa.string()).cast(want)
    if pa.types.is_temporal(want) and not (
        pa.types.is_temporal(array.type) or pa.types.is_null(array.type) or pa.types.is_string(array.type)
    ):
        raise TypeError(f"{array.type} values for {want}")
    if (
        pa.types.is_timestamp(want)
        and want.tz is None
        and getattr(array.type, "tz", None) not in (None, "UTC")
    ):
        raise ValueError(f"{array.type} values for {want}, which has no time zone")
    if pa.types.is_nested(want) and _holds(want, pa.types.is_decimal):
        return pa.array(array.to_pylist(), want)
    return array.cast(want)


def _holds(type_: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    parts = (type_.field(i).type for i in range(type_.num_fields))
    return wanted(type_) or any(_holds(part, wanted) for part in parts)


def _decimals(type_: t.DecimalType, values: Iterable[Any]) -> list[Decimal | None]:
    """Floats by their shortest digits."""
    quantum = Decimal(1).scaleb(-type_.scale)
    found = []
    for value in values:
        if value is not None:
            number = value if isinstance(value, Decimal) else Decimal(str(value))
            try:
                value = number.quantize(quantum, context=_EXACT)
            except Inexact:
                raise ValueError(f"{value} has more than {type_.scale} digits behind the point") from None
        found.append(value)
    return found


# -- value by value --------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _check(type_: t.LogicalType) -> Callable[[Any], None] | None:
    """A function that raises for a value, or a part of it, that Arrow would truncate; None if Arrow truncates
    none."""
    if isinstance(type_, _WHOLE):
        return _check_whole
    match type_:
        case t.VariantType():
            return _check_variant
        case t.FloatType():
            return _check_float
        case t.DateType():
            return _check_date
        case t.TimestampType():
            return _check_local
        case t.TimeType() | t.TimestampLtzType() | t.DayTimeIntervalType():
            return _check_time
        case t.ArrayType(element=element):
            return _each(_check(element))
        case t.MultisetType(element=element):
            return _both(_each(_check(element)), None)
        case t.MapType(key=key, value=value):
            return _both(_each(_check(key)), _each(_check(value)))
        case t.RowType(fields=fields):
            return _fields([(f.name, _check(f.type)) for f in fields])
    return None


def _check_whole(value: Any) -> None:
    if value is not None and not isinstance(value, (int, str)) and value != int(value):
        raise ValueError(f"{value} is no whole number")


def _check_variant(value: Any) -> None:
    if value is not None and canonical(value) != value:
        raise ValueError(f"a VARIANT within another type is {canonical(value)!r}, as JSON_STRING writes it")


def _check_float(value: Any) -> None:
    if value is not None and math.isfinite(value) and abs(value) > float(np.finfo(np.float32).max):
        raise OverflowError(f"{value} is out of FLOAT's range")


def _check_time(value: Any) -> None:
    if isinstance(value, (int, float, np.number)) and not isinstance(value, np.timedelta64):
        raise TypeError(f"the number {value}: of which unit is not known")


def _check_local(value: Any) -> None:
    _check_time(value)
    if isinstance(value, datetime) and value.tzinfo is not None and value.utcoffset() != timedelta(0):
        raise ValueError(
            f"{value} has a time zone, TIMESTAMP has none: return value.replace(tzinfo=None), or declare TIMESTAMP_LTZ"
        )


def _check_date(value: Any) -> None:
    _check_time(value)
    if isinstance(value, datetime) and value.time() != time():
        raise ValueError(f"a time of day ({value.time()}) in a DATE")


def _each(check: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
    if check is None:
        return None
    # Values that need no check: most have the wanted type already.
    plain = int if check is _check_whole else None

    def run(values: Iterable[Any] | None) -> None:
        for value in () if values is None else values:
            if type(value) is not plain:
                check(value)

    return run


def _both(
    keys: Callable[[Any], None] | None, values: Callable[[Any], None] | None
) -> Callable[[Any], None] | None:
    if keys is None and values is None:
        return None

    def run(entries: Any) -> None:
        pairs = dict(() if entries is None else entries)
        if keys is not None:
            keys(pairs.keys())
        if values is not None:
            values(pairs.values())

    return run


def _fields(checks: list[tuple[str, Callable[[Any], None] | None]]) -> Callable[[Any], None]:
    def run(row: Any) -> None:
        if row is None:
            return
        if isinstance(row, dict):
            known = [name for name, _ in checks]
            if not row.keys() <= set(known):
                raise ValueError(f"fields {', '.join(map(str, row))} where {', '.join(known)} are declared")
            parts = [row.get(name) for name in known]
        else:
            parts = row
        for part, (_, check) in zip(parts, checks, strict=False):
            if check is not None:
                check(part)

    return run
