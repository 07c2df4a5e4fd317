"""Compares and computes Spark columns where Spark's meaning is exactly ours.

Explicit casts bring both sides to one type. ``NotNative`` is raised where that would need a conversion of
ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.functions.expr import Call, Literal
from penstock.spark.frames import from_micros, micros
from penstock.spark.typemap import spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from pyspark.sql import Column

APPROXIMATE = (t.FloatType, t.DoubleType)
EXACT = (*t.INTEGERS, t.DecimalType)
#: Types whose values Spark compares as we do (floats apart: see ``compare``).
COMPARABLE = (
    t.BooleanType, *t.INTEGERS, *APPROXIMATE, t.DecimalType, *t.STRINGS, *t.BINARIES, t.DateType, t.TimeType,
    *t.TIMESTAMPS, *t.INTERVALS,
)  # fmt: skip
_WIDTH = {t.TinyIntType: 1, t.SmallIntType: 2, t.IntType: 4, t.BigIntType: 8}
_DIGITS = {t.TinyIntType: 3, t.SmallIntType: 5, t.IntType: 10, t.BigIntType: 19}


class NotNative(Exception):
    """Raised for an expression without an exact equivalent in Spark."""


OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType) -> Column:
    """``a op b``. As in Java, and unlike Spark, NaN equals nothing, not even itself."""
    if not isinstance(a_type, COMPARABLE) or not isinstance(b_type, COMPARABLE):
        raise NotNative
    a, b = alike(a, a_type, b, b_type)
    out = OPERATORS[op](a, b)
    if isinstance(a_type, APPROXIMATE):
        not_a_number = F.isnan(a) | F.isnan(b)
        # isnan of NULL is FALSE, so the result for NULL stays NULL.
        return (out | not_a_number) if op == "<>" else (out & ~not_a_number)
    return out


def alike(a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType) -> tuple[Column, Column]:
    """Both columns cast to one Spark type. Raises NotNative if that would need a conversion of ours."""
    if isinstance(a_type, EXACT) and isinstance(b_type, EXACT):
        if isinstance(a_type, t.DecimalType) or isinstance(b_type, t.DecimalType):
            pa_, sa = _decimal(a_type)
            pb, sb = _decimal(b_type)
            scale = max(sa, sb)
            precision = max(pa_ - sa, pb - sb) + scale
            if precision > t.MAX_DECIMAL_PRECISION:
                raise NotNative
            wanted = spark_type(t.DecimalType(precision, scale))
            return a.cast(wanted), b.cast(wanted)
        wide = a_type if _WIDTH[type(a_type)] >= _WIDTH[type(b_type)] else b_type
        return _to(a, a_type, wide), _to(b, b_type, wide)
    families: tuple[tuple[type, ...], ...] = (
        t.STRINGS, t.BINARIES, (t.TimestampType,), (t.TimestampLtzType,), (t.DateType,), (t.TimeType,),
        (t.YearMonthIntervalType,), (t.DayTimeIntervalType,), (t.BooleanType,), (t.DoubleType,), (t.FloatType,),
    )  # fmt: skip
    if any(isinstance(a_type, f) and isinstance(b_type, f) for f in families):
        return a, b
    raise NotNative


def _to(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    return value if type(have) is type(want) else value.cast(spark_type(want))


def _decimal(type_: t.LogicalType) -> tuple[int, int]:
    if isinstance(type_, t.DecimalType):
        return type_.precision, type_.scale
    return _DIGITS[type(type_)], 0


def apply(op: str, a: Column, b: Column) -> Column:
    """``a op b`` for op in + - *."""
    return a + b if op == "+" else a - b if op == "-" else a * b


def decimal_arithmetic(
    op: str, a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType, result: t.DecimalType
) -> Column:
    """``a op b`` of decimals. Raises NotNative unless Spark's result needs no rounding and has our result's
    scale."""
    p1, s1 = _decimal(a_type)
    p2, s2 = _decimal(b_type)
    if op == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > t.MAX_DECIMAL_PRECISION or result.scale != scale:
        raise NotNative
    left = a.cast(spark_type(t.DecimalType(p1, s1)))
    right = b.cast(spark_type(t.DecimalType(p2, s2)))
    return apply(op, left, right).cast(spark_type(result))


def moved(op: str, time: Column, type_: t.LogicalType, by: Column, result: t.LogicalType) -> Column:
    """A time plus or minus an interval in µs. Raises NotNative if the result would lose precision."""
    if type(result) is not type(type_) or result.precision < type_.precision:  # type: ignore[union-attr]
        raise NotNative
    at = micros(time, type_)
    return from_micros(at + by if op == "+" else at - by, result)


def divisor_of(call: Call) -> int:
    """The constant divisor of a call. Raises NotNative unless it is an integer other than 0 and −1."""
    b = call.args[1]
    if not isinstance(b, Literal) or not isinstance(b.type, t.INTEGERS) or b.value in (None, 0, -1):
        raise NotNative
    return int(b.value)


def widened(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    """An exact number cast to a type that holds all its values."""
    if isinstance(have, t.INTEGERS) and isinstance(want, t.INTEGERS):
        if _WIDTH[type(want)] < _WIDTH[type(have)]:
            raise NotNative
        return value.cast(spark_type(want))
    if isinstance(want, t.DecimalType):
        p, s = _decimal(have)
        if want.scale < s or want.precision - want.scale < p - s:
            raise NotNative
        return value.cast(spark_type(want))
    raise NotNative
