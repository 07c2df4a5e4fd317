"""Expressions as Spark columns, where Spark's meaning is exactly ours.

``native(expr, columns)`` returns a column or None. After None the operator runs in Penstock's own evaluator
over Arrow batches (``universal``), so every expression is supported and results are the same. Every
conversion is an explicit cast here, so Spark never converts by its own rules (ANSI mode, string to number).
Only functions that never raise an error are here, because Spark may evaluate any expression, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.functions.expr import Call, Expr, FieldAccess, InputRef, Literal
from penstock.functions.rewrites import rewrite
from penstock.spark.exact import (
    APPROXIMATE,
    COMPARABLE,
    EXACT,
    OPERATORS,
    NotNative,
    alike,
    apply,
    compare,
    decimal_arithmetic,
    divisor_of,
    moved,
    widened,
)
from penstock.spark.frames import from_micros
from penstock.spark.typemap import spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column


def native(expr: Expr, columns: Sequence[Column]) -> Column | None:
    """The expression as a Spark column; None if Spark has no exact equivalent. ``columns[i]``: the column of
    ``InputRef(i)``."""
    try:
        return _column(rewrite(expr), columns)
    except NotNative:
        return None


def all_native(exprs: Sequence[Expr], columns: Sequence[Column]) -> list[Column] | None:
    """The expressions as Spark columns; None if one of them has no exact equivalent."""
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
        case t.IntType() | t.YearMonthIntervalType():
            return F.lit(int(value))  # of that very type, as what is below
        case t.BooleanType():
            return F.lit(bool(value))
        case t.CharType() | t.VarCharType():
            return F.lit(str(value))
        case t.TinyIntType() | t.SmallIntType() | t.BigIntType() | t.FloatType() | t.DoubleType() | t.TimeType() \
            | t.DayTimeIntervalType():  # fmt: skip
            # The type is given by name: a type object would cost four more round trips to Java.
            return F.lit(value).cast(spark_type(type_).simpleString())
    raise NotNative


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
                raise NotNative
            return _column(arg, columns).getField(names[index])
        case Call():
            make = _CALLS.get(expr.function)
            if make is None:
                raise NotNative
            return make(expr, columns)
    raise NotNative


# -- logic and comparisons -----------------------------------------------------------------------


def _logic(combine: Callable[[Column, Column], Column]) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        return in_pairs(combine, [_column(a, columns) for a in call.args])

    return make


def in_pairs(combine: Callable[[Column, Column], Column], parts: Sequence[Column]) -> Column:
    """Combines the parts in a tree that is as shallow as possible, because Spark recurses into the tree and
    there may be thousands of parts."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _is(test: Callable[[Column], Column]) -> Callable[..., Column]:
    return lambda call, columns: test(_column(call.args[0], columns))


def _compare(call: Call, columns: Sequence[Column]) -> Column:
    a, b = call.args
    return compare(call.function, _column(a, columns), a.type, _column(b, columns), b.type)


def _distinct(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        a, b = call.args
        if isinstance(a.type, APPROXIMATE):
            raise NotNative
        if not isinstance(a.type, COMPARABLE):
            raise NotNative
        left, right = alike(_column(a, columns), a.type, _column(b, columns), b.type)
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
        if isinstance(x.type, APPROXIMATE):
            raise NotNative  # NOT BETWEEN of a NaN is not the negation of BETWEEN
        return ~inside if negate else inside

    return make


def _in(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        first, *items = call.args
        if isinstance(first.type, APPROXIMATE):
            raise NotNative
        value = _column(first, columns)
        if all(isinstance(i, Literal) and i.value is not None for i in items):
            pairs = [alike(value, first.type, _column(i, columns), i.type) for i in items]
            if all(i.type.with_nullable(True) == first.type.with_nullable(True) for i in items) or isinstance(
                first.type, t.STRINGS
            ):
                out = value.isin(*[p[1] for p in pairs])
                return ~out if negate else out
        parts = [compare("=", value, first.type, _column(i, columns), i.type) for i in items]
        out = in_pairs(lambda a, b: a | b, parts)
        return ~out if negate else out

    return make


# -- conditions ------------------------------------------------------------------------------------


def _fit(value: Column, have: t.LogicalType, want: t.LogicalType) -> Column:
    """A branch in the type of the whole expression. Raises NotNative if a value other than NULL needs a
    conversion."""
    if isinstance(have, t.NullType):
        return F.lit(None).cast(spark_type(want))
    if have.with_nullable(True) == want.with_nullable(True):
        return value
    if isinstance(have, t.STRINGS) and isinstance(want, t.VarCharType):
        return value
    if isinstance(have, EXACT) and isinstance(want, EXACT):
        return widened(value, have, want)
    raise NotNative


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
            raise NotNative
        a, b = call.args
        left, right = _column(a, columns), _column(b, columns)
        result = call.type
        if (
            isinstance(result, t.INTEGERS)
            and isinstance(a.type, t.INTEGERS)
            and isinstance(b.type, t.INTEGERS)
        ):
            target = spark_type(result)
            return apply(op, left.cast(target), right.cast(target)).cast(target)
        if (
            isinstance(result, t.DoubleType)
            and isinstance(a.type, t.DoubleType)
            and isinstance(b.type, t.DoubleType)
        ):
            return apply(op, left, right)
        if isinstance(result, t.DecimalType) and isinstance(a.type, EXACT) and isinstance(b.type, EXACT):
            return decimal_arithmetic(op, left, a.type, right, b.type, result)
        if isinstance(a.type, t.TIMESTAMPS) and isinstance(b.type, t.DayTimeIntervalType):
            return moved(op, left, a.type, right, result)
        if op == "+" and isinstance(b.type, t.TIMESTAMPS) and isinstance(a.type, t.DayTimeIntervalType):
            return moved(op, right, b.type, left, result)
        raise NotNative

    return make


def _modulo(call: Call, columns: Sequence[Column]) -> Column:
    a = call.args[0]
    if not isinstance(a.type, t.INTEGERS) or not isinstance(call.type, t.INTEGERS):
        raise NotNative
    divisor = divisor_of(call)
    value = _column(a, columns).cast("bigint") % F.lit(divisor).cast("bigint")
    return value.cast(spark_type(call.type))


# -- casts -----------------------------------------------------------------------------------------


def _cast(call: Call, columns: Sequence[Column]) -> Column:
    (arg,) = call.args[:1]
    have, want = arg.type, call.type
    value = _column(arg, columns)
    if have.with_nullable(True) == want.with_nullable(True):
        return value
    if isinstance(have, t.NullType):
        return F.lit(None).cast(spark_type(want))
    if isinstance(have, EXACT) and isinstance(want, EXACT):
        return widened(value, have, want)
    if isinstance(have, t.INTEGERS) and isinstance(want, t.DoubleType):
        return value.cast("double")
    if isinstance(have, t.FloatType) and isinstance(want, t.DoubleType):
        return value.cast("double")
    if isinstance(have, t.INTEGERS) and isinstance(want, t.VarCharType) and want.length == t.MAX_VARCHAR:
        return value.cast("string")
    if isinstance(have, t.STRINGS) and isinstance(want, t.VarCharType) and want.length >= have.length:
        return value
    if isinstance(have, t.TIMESTAMPS) and type(have) is type(want) and want.precision >= have.precision:
        return value
    raise NotNative


# -- strings ---------------------------------------------------------------------------------------


def _concat(call: Call, columns: Sequence[Column]) -> Column:
    if not all(isinstance(a.type, t.STRINGS) for a in call.args):
        raise NotNative
    return F.concat(*(_column(a, columns) for a in call.args))


def _like(negate: bool) -> Callable[..., Column]:
    def make(call: Call, columns: Sequence[Column]) -> Column:
        text, pattern, *escape = call.args
        if escape or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise NotNative
        if "\\" in pattern.value:
            raise NotNative
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
    **dict.fromkeys(OPERATORS, _compare),
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
