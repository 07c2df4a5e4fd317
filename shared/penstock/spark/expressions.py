"""Expressions as Spark columns, where Spark's meaning is exactly ours.

``native(expr, columns)`` gives a column or None. None is no refusal: the operator is then run
by Penstock's own evaluator over Arrow batches (``universal``), so nothing is unsupported and
nothing differs. Every implicit conversion is an explicit cast here; what Spark would do of
its own accord (ANSI mode, string to number) never happens. Only functions that raise for
no row are here: Spark evaluates what it likes, in the order it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.functions.expr import Call, Expr, FieldAccess, InputRef, Literal
from penstock.functions.rewrites import rewrite
from penstock.spark.frames import from_micros, micros
from penstock.spark.typemap import spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

_APPROXIMATE = (t.FloatType, t.DoubleType)
_EXACT = (*t.INTEGERS, t.DecimalType)
#: Types whose values Spark compares as we do (floats apart: see ``_compare``).
_COMPARABLE = (
    t.BooleanType, *t.INTEGERS, *_APPROXIMATE, t.DecimalType, *t.STRINGS, *t.BINARIES, t.DateType, t.TimeType,
    *t.TIMESTAMPS, *t.INTERVALS,
)  # fmt: skip
_WIDTH = {t.TinyIntType: 1, t.SmallIntType: 2, t.IntType: 4, t.BigIntType: 8}
_DIGITS = {t.TinyIntType: 3, t.SmallIntType: 5, t.IntType: 10, t.BigIntType: 19}


class _NotNative(Exception):
    pass


def native(expr: Expr, columns: Sequence[Column]) -> Column | None:
    """``columns[i]``: the column that ``InputRef(i)`` means."""
    try:
        return _column(rewrite(expr), columns)
    except _NotNative:
        return None


def all_native(exprs: Sequence[Expr], columns: Sequence[Column]) -> list[Column] | None:
    """Each of them, or None when one is not."""
    out = []
    for expr in exprs:
        column = native(expr, columns)
        if column is None:
            return None
        out.append(column)
    return out


def literal(value: Any, type_: t.LogicalType) -> Column:
    """A constant in storage form."""
    if value is None:
        return F.lit(None).cast(spark_type(type_))
    match type_:
        case t.DecimalType(precision=p, scale=s):
            exact = Decimal(value).scaleb(-s) if p <= t.MAX_UNSCALED_INT64_PRECISION else Decimal(str(value))
            return F.lit(exact).cast(spark_type(type_))
        case t.DateType():
            return F.date_from_unix_date(F.lit(value))
        case t.TimestampType() | t.TimestampLtzType():
            return from_micros(F.lit(value).cast("bigint"), type_)
        case t.BooleanType() | t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType() | t.FloatType() \
            | t.DoubleType() | t.CharType() | t.VarCharType() | t.TimeType() | t.YearMonthIntervalType() \
            | t.DayTimeIntervalType():  # fmt: skip
            return F.lit(value).cast(spark_type(type_))
    raise _NotNative


def _column(expr: Expr, columns: Sequence[Column]) -> Column:
    match expr:
        case InputRef(index=index):
            return columns[index]
        case Literal(value=value, type=type_):
            return literal(value, type_)
        case FieldAccess(arg=arg, index=index):
            assert isinstance(arg.type, t.RowType)
            names = [f.name for f in arg.type.fields]
            if names.count(names[index]) > 1:
                raise _NotNative
            return _column(arg, columns).getField(names[index])
        case Call():
            make = _CALLS.get(expr.function)
            if make is None:
                raise _NotNative
            return make(expr, columns)
    raise _NotNative


# -- logic and comparisons -----------------------------------------------------------------------


def _logic(combine: Callable[[Column, Column], Column]) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        return reduce(combine, (_column(a, columns) for a in call.args))

    return make


def _is(test: Callable[[Column], Column]) -> Callable[..., Column]:
    return lambda call, columns: test(_column(call.args[0], columns))


_OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType) -> Column:
    """``a op b``; NaN equals nothing, not even itself (Java's way; Spark's differs)."""
    if not isinstance(a_type, _COMPARABLE) or not isinstance(b_type, _COMPARABLE):
        raise _NotNative
    a, b = _alike(a, a_type, b, b_type)
    out = _OPERATORS[op](a, b)
    if isinstance(a_type, _APPROXIMATE):
        not_a_number = F.isnan(a) | F.isnan(b)
        # isnan of NULL is FALSE: a NULL stays one.
        return (out | not_a_number) if op == "<>" else (out & ~not_a_number)
    return out


def _alike(a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType) -> tuple[Column, Column]:
    """Both in one Spark type; not native where that would need a conversion of ours."""
    if isinstance(a_type, _EXACT) and isinstance(b_type, _EXACT):
        if isinstance(a_type, t.DecimalType) or isinstance(b_type, t.DecimalType):
            pa_, sa = _decimal(a_type)
            pb, sb = _decimal(b_type)
            scale = max(sa, sb)
            precision = max(pa_ - sa, pb - sb) + scale
            if precision > t.MAX_DECIMAL_PRECISION:
                raise _NotNative
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
    raise _NotNative


def _to(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    return value if type(have) is type(want) else value.cast(spark_type(want))


def _decimal(type_: t.LogicalType) -> tuple[int, int]:
    if isinstance(type_, t.DecimalType):
        return type_.precision, type_.scale
    return _DIGITS[type(type_)], 0


def _compare(call: Call, columns: Sequence[Column]) -> Column:
    a, b = call.args
    return compare(call.function, _column(a, columns), a.type, _column(b, columns), b.type)


def _distinct(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        a, b = call.args
        if isinstance(a.type, _APPROXIMATE):
            raise _NotNative
        if not isinstance(a.type, _COMPARABLE):
            raise _NotNative
        left, right = _alike(_column(a, columns), a.type, _column(b, columns), b.type)
        same = left.eqNullSafe(right)
        return same if negate else ~same

    return make


def _between(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        x, low, high = call.args
        value = _column(x, columns)
        inside = compare(">=", value, x.type, _column(low, columns), low.type) & compare(
            "<=", value, x.type, _column(high, columns), high.type
        )
        if isinstance(x.type, _APPROXIMATE):
            raise _NotNative  # NOT BETWEEN of a NaN is no negation of BETWEEN
        return ~inside if negate else inside

    return make


def _in(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        first, *items = call.args
        if isinstance(first.type, _APPROXIMATE):
            raise _NotNative
        value = _column(first, columns)
        if all(isinstance(i, Literal) and i.value is not None for i in items):
            pairs = [_alike(value, first.type, _column(i, columns), i.type) for i in items]
            if all(i.type.with_nullable(True) == first.type.with_nullable(True) for i in items) or isinstance(
                first.type, t.STRINGS
            ):
                out = value.isin(*[p[1] for p in pairs])
                return ~out if negate else out
        parts = [compare("=", value, first.type, _column(i, columns), i.type) for i in items]
        out = reduce(lambda a, b: a | b, parts)
        return ~out if negate else out

    return make


# -- conditions ------------------------------------------------------------------------------------


def _fit(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    """A branch in the type of the whole; only where nothing is to be converted but NULL."""
    if isinstance(have, t.NullType):
        return F.lit(None).cast(spark_type(want))
    if have.with_nullable(True) == want.with_nullable(True):
        return value
    if isinstance(have, t.STRINGS) and isinstance(want, t.VarCharType):
        return value
    if isinstance(have, _EXACT) and isinstance(want, _EXACT):
        return _widened(value, have, want)
    raise _NotNative


def _case(call: Call, columns: Sequence[Column]) -> Column:
    *pairs, otherwise = call.args
    out: Any = None
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        when = _column(condition, columns)
        then = _fit(_column(value, columns), value.type, call.type)
        out = F.when(when, then) if out is None else out.when(when, then)
    return out.otherwise(_fit(_column(otherwise, columns), otherwise.type, call.type))


def _coalesce(call: Call, columns: Sequence[Column]) -> Column:
    return F.coalesce(*(_fit(_column(a, columns), a.type, call.type) for a in call.args))


# -- arithmetic ------------------------------------------------------------------------------------


def _arithmetic(op: str) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        if len(call.args) != 2:
            raise _NotNative
        a, b = call.args
        left, right = _column(a, columns), _column(b, columns)
        result = call.type
        if (
            isinstance(result, t.INTEGERS)
            and isinstance(a.type, t.INTEGERS)
            and isinstance(b.type, t.INTEGERS)
        ):
            target = spark_type(result)
            return _apply(op, left.cast(target), right.cast(target)).cast(target)
        if (
            isinstance(result, t.DoubleType)
            and isinstance(a.type, t.DoubleType)
            and isinstance(b.type, t.DoubleType)
        ):
            return _apply(op, left, right)
        if isinstance(result, t.DecimalType) and isinstance(a.type, _EXACT) and isinstance(b.type, _EXACT):
            return _decimal_arithmetic(op, left, a.type, right, b.type, result)
        if isinstance(a.type, t.TIMESTAMPS) and isinstance(b.type, t.DayTimeIntervalType):
            return _moved(op, left, a.type, right, result)
        if op == "+" and isinstance(b.type, t.TIMESTAMPS) and isinstance(a.type, t.DayTimeIntervalType):
            return _moved(op, right, b.type, left, result)
        raise _NotNative

    return make


def _apply(op: str, a: Column, b: Column) -> Column:
    return a + b if op == "+" else a - b if op == "-" else a * b


def _decimal_arithmetic(
    op: str, a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType, result: t.DecimalType
) -> Column:
    """Exact in Spark when its own result type needs no rounding, and ours holds it."""
    p1, s1 = _decimal(a_type)
    p2, s2 = _decimal(b_type)
    if op == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > t.MAX_DECIMAL_PRECISION or result.scale != scale:
        raise _NotNative
    left = a.cast(spark_type(t.DecimalType(p1, s1)))
    right = b.cast(spark_type(t.DecimalType(p2, s2)))
    return _apply(op, left, right).cast(spark_type(result))


def _moved(op: str, time: Column, type_: t.LogicalType, by: Column, result: t.LogicalType) -> Column:
    if type(result) is not type(type_) or result.precision < type_.precision:  # type: ignore[union-attr]
        raise _NotNative
    at = micros(time, type_)
    return from_micros(at + by if op == "+" else at - by, result)


def _divisor(call: Call) -> int:
    """A constant integer divisor that is neither 0 nor −1."""
    b = call.args[1]
    if not isinstance(b, Literal) or not isinstance(b.type, t.INTEGERS) or b.value in (None, 0, -1):
        raise _NotNative
    return int(b.value)


def _modulo(call: Call, columns: Sequence[Column]) -> Column:
    a = call.args[0]
    if not isinstance(a.type, t.INTEGERS) or not isinstance(call.type, t.INTEGERS):
        raise _NotNative
    divisor = _divisor(call)
    value = _column(a, columns).cast("bigint") % F.lit(divisor).cast("bigint")
    return value.cast(spark_type(call.type))


# -- casts -----------------------------------------------------------------------------------------


def _widened(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    """An exact number in a type that holds all of its values."""
    if isinstance(have, t.INTEGERS) and isinstance(want, t.INTEGERS):
        if _WIDTH[type(want)] < _WIDTH[type(have)]:
            raise _NotNative
        return value.cast(spark_type(want))
    if isinstance(want, t.DecimalType):
        p, s = _decimal(have)
        if want.scale < s or want.precision - want.scale < p - s:
            raise _NotNative
        return value.cast(spark_type(want))
    raise _NotNative


def _cast(call: Call, columns: Sequence[Column]) -> Column:
    (arg,) = call.args[:1]
    have, want = arg.type, call.type
    value = _column(arg, columns)
    if have.with_nullable(True) == want.with_nullable(True):
        return value
    if isinstance(have, t.NullType):
        return F.lit(None).cast(spark_type(want))
    if isinstance(have, _EXACT) and isinstance(want, _EXACT):
        return _widened(value, have, want)
    if isinstance(have, t.INTEGERS) and isinstance(want, t.DoubleType):
        return value.cast("double")
    if isinstance(have, t.FloatType) and isinstance(want, t.DoubleType):
        return value.cast("double")
    if isinstance(have, t.INTEGERS) and isinstance(want, t.VarCharType) and want.length == t.MAX_VARCHAR:
        return value.cast("string")
    if isinstance(have, t.STRINGS) and isinstance(want, t.VarCharType) and want.length >= have.length:
        return value
    if (
        isinstance(have, t.TIMESTAMPS) and type(have) is type(want) and want.precision >= have.precision  # type: ignore[union-attr]
    ):
        return value
    raise _NotNative


# -- strings ---------------------------------------------------------------------------------------


def _concat(call: Call, columns: Sequence[Column]) -> Column:
    if not all(isinstance(a.type, t.STRINGS) for a in call.args):
        raise _NotNative
    return F.concat(*(_column(a, columns) for a in call.args))


def _like(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        text, pattern, *escape = call.args
        if escape or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise _NotNative
        if "\\" in pattern.value:
            raise _NotNative
        out = _column(text, columns).like(pattern.value)
        return ~out if negate else out

    return make


_CALLS: dict[str, Callable[..., Column]] = {
    "AND": _logic(lambda a, b: a & b),
    "OR": _logic(lambda a, b: a | b),
    "NOT": _is(lambda a: ~a),
    "IS NULL": _is(lambda a: a.isNull()),
    "IS NOT NULL": _is(lambda a: a.isNotNull()),
    "IS TRUE": _is(lambda a: F.coalesce(a, F.lit(False))),
    "IS NOT TRUE": _is(lambda a: ~F.coalesce(a, F.lit(False))),
    "IS FALSE": _is(lambda a: ~F.coalesce(a, F.lit(True))),
    "IS NOT FALSE": _is(lambda a: F.coalesce(a, F.lit(True))),
    "IS UNKNOWN": _is(lambda a: a.isNull()),
    "IS NOT UNKNOWN": _is(lambda a: a.isNotNull()),
    **dict.fromkeys(_OPERATORS, _compare),
    "IS DISTINCT FROM": _distinct(False),
    "IS NOT DISTINCT FROM": _distinct(True),
    "BETWEEN": _between(False),
    "NOT BETWEEN": _between(True),
    "IN": _in(False),
    "NOT IN": _in(True),
    "CASE": _case,
    "COALESCE": _coalesce,
    "+": _arithmetic("+"),
    "-": _arithmetic("-"),
    "*": _arithmetic("*"),
    "%": _modulo,
    "MOD": _modulo,
    "CAST": _cast,
    "||": _concat,
    "CONCAT": _concat,
    "LIKE": _like(False),
    "NOT LIKE": _like(True),
}
