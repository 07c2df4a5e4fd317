"""Type rules that all functions share: common types, decimal precision, permitted casts.

The rules are Flink's (Calcite's with Flink's type system): a DECIMAL above 38 digits loses scale, down to 6; an
integer beside a decimal counts as DECIMAL(3/5/10/19, 0); of two approximate types the result is the first.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SqlError
from penstock.functions.expr import Call, Expr, Literal
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INTEGER_DIGITS = {t.TinyIntType: 3, t.SmallIntType: 5, t.IntType: 10, t.BigIntType: 19}
_INTEGER_BITS = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
APPROXIMATE = (t.FloatType, t.DoubleType)
NUMERIC = (*t.INTEGERS, *APPROXIMATE, t.DecimalType)
EXACT = (*t.INTEGERS, t.DecimalType)


def same_type(a: t.LogicalType, b: t.LogicalType) -> bool:
    """Whether the types are equal except for the outer nullability."""
    return a == b or a.with_nullable(True) == b.with_nullable(True)


# -- decimals ----------------------------------------------------------------------


def decimal_of(type_: t.LogicalType) -> t.DecimalType:
    """The DECIMAL that can hold every value of an exact numeric type."""
    if isinstance(type_, t.DecimalType):
        return type_
    return t.DecimalType(_INTEGER_DIGITS[type(type_)], 0)


def adjusted_decimal(precision: int, scale: int) -> t.DecimalType:
    """DECIMAL(precision, scale); above 38 digits it loses scale, but not below 6."""
    if precision <= t.MAX_DECIMAL_PRECISION:
        return t.DecimalType(precision, scale)
    whole = precision - scale
    least = min(scale, 6)
    return t.DecimalType(
        t.MAX_DECIMAL_PRECISION, min(max(t.MAX_DECIMAL_PRECISION - whole, least), t.MAX_DECIMAL_PRECISION)
    )


def decimal_result(op: str, a: t.DecimalType, b: t.DecimalType) -> t.DecimalType:
    """Type of ``a op b`` for op in + - * / %."""
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    if op in "+-":
        scale = max(a.scale, b.scale)
        return adjusted_decimal(max(whole_a, whole_b) + scale + 1, scale)
    if op == "*":
        return adjusted_decimal(a.precision + b.precision + 1, a.scale + b.scale)
    if op == "/":
        scale = max(6, a.scale + b.precision + 1)
        return adjusted_decimal(whole_a + b.scale + scale, scale)
    scale = max(a.scale, b.scale)
    return adjusted_decimal(max(min(whole_a, whole_b) + scale, 1), scale)


# -- the type that holds several ---------------------------------------------------


def common_type(types: Iterable[t.LogicalType]) -> t.LogicalType | None:
    """The smallest type that all values fit (CASE, COALESCE, ARRAY, UNION …); None if there is none."""
    types = list(types)
    nullable = any(x.nullable for x in types)
    typed = [x for x in types if not isinstance(x, t.NullType)]
    if not typed:
        return t.NullType() if types else None
    out: t.LogicalType = typed[0]
    for other in typed[1:]:
        merged = _merge(out, other)
        if merged is None:
            return None
        out = merged
    return out.with_nullable(nullable)


def _merge(a: t.LogicalType, b: t.LogicalType) -> t.LogicalType | None:
    if same_type(a, b):
        return a.with_nullable(a.nullable or b.nullable)
    if isinstance(a, NUMERIC) and isinstance(b, NUMERIC):
        return common_numeric(a, b)
    if isinstance(a, t.STRINGS) and isinstance(b, t.STRINGS):
        return t.VarCharType(max(a.length, b.length))
    if isinstance(a, t.BINARIES) and isinstance(b, t.BINARIES):
        return t.VarBinaryType(max(a.length, b.length))
    if type(a) is type(b):
        match a, b:
            case ((t.TimeType() | t.TimestampType() | t.TimestampLtzType()), _):
                return msgspec.structs.replace(a, precision=max(a.precision, b.precision))  # type: ignore[union-attr]
            case t.ArrayType(), t.ArrayType():
                element = common_type([a.element, b.element])
                return None if element is None else t.ArrayType(element)
            case t.MultisetType(), t.MultisetType():
                element = common_type([a.element, b.element])
                return None if element is None else t.MultisetType(element)
            case t.MapType(), t.MapType():
                key, value = common_type([a.key, b.key]), common_type([a.value, b.value])
                return None if key is None or value is None else t.MapType(key, value)
            case t.RowType(), t.RowType() if len(a.fields) == len(b.fields):
                merged = [common_type([x.type, y.type]) for x, y in zip(a.fields, b.fields, strict=True)]
                if None in merged:
                    return None
                pairs = zip(a.fields, merged, strict=True)
                return t.RowType(tuple(t.Field(f.name, m) for f, m in pairs))  # type: ignore[arg-type]
    if isinstance(a, t.TIMESTAMPS) and isinstance(b, t.TIMESTAMPS):
        return t.TimestampLtzType(max(a.precision, b.precision))
    return None


def common_numeric(a: t.LogicalType, b: t.LogicalType) -> t.LogicalType:
    """The numeric type in which two numbers are compared, added or divided."""
    approximate_a, approximate_b = isinstance(a, APPROXIMATE), isinstance(b, APPROXIMATE)
    if approximate_a and approximate_b:
        return a.with_nullable(True)
    if approximate_a or approximate_b:
        exact, inexact = (b, a) if approximate_a else (a, b)
        return t.DoubleType() if isinstance(exact, t.DecimalType) else inexact.with_nullable(True)
    if isinstance(a, t.INTEGERS) and isinstance(b, t.INTEGERS):
        wider = a if _INTEGER_BITS[type(a)] >= _INTEGER_BITS[type(b)] else b
        return wider.with_nullable(True)
    x, y = decimal_of(a), decimal_of(b)
    scale = max(x.scale, y.scale)
    return adjusted_decimal(max(x.precision - x.scale, y.precision - y.scale) + scale, scale)


# -- casts -------------------------------------------------------------------------

_TEMPORAL = (t.DateType, t.TimeType, t.TimestampType, t.TimestampLtzType)


def castable(source: t.LogicalType, target: t.LogicalType) -> bool:
    """Whether Flink has CAST(source AS target)."""
    if isinstance(source, t.NullType) or same_type(source, target):
        return True
    if isinstance(source, t.RawType) or isinstance(target, (t.NullType, t.RawType)):
        return False
    if isinstance(source, t.VariantType):
        return isinstance(
            target, (t.BooleanType, *NUMERIC, *t.STRINGS, *t.BINARIES, t.DateType, *t.TIMESTAMPS)
        )
    if isinstance(target, t.STRINGS):
        return True
    if isinstance(source, t.STRINGS):
        return isinstance(target, (t.BooleanType, *NUMERIC, *_TEMPORAL, *t.BINARIES))
    if isinstance(source, NUMERIC):
        return isinstance(target, (t.BooleanType, *NUMERIC)) or (
            isinstance(source, EXACT) and isinstance(target, t.INTERVALS)
        )
    if isinstance(source, t.BooleanType):
        return isinstance(target, (t.BooleanType, *NUMERIC))
    if isinstance(source, t.BINARIES):
        return isinstance(target, t.BINARIES)
    if isinstance(source, _TEMPORAL):
        return isinstance(target, _TEMPORAL) and {type(source), type(target)} != {t.DateType, t.TimeType}
    if isinstance(source, t.INTERVALS):
        return type(source) is type(target)
    if isinstance(source, (t.ArrayType, t.MultisetType)) and type(source) is type(target):
        return castable(source.element, target.element)
    if isinstance(source, t.MapType) and isinstance(target, t.MapType):
        return castable(source.key, target.key) and castable(source.value, target.value)
    if isinstance(source, t.RowType) and isinstance(target, t.RowType):
        pairs = list(zip(source.fields, target.fields, strict=False))
        return len(source.fields) == len(target.fields) and all(castable(a.type, b.type) for a, b in pairs)
    return False


def uses_zone(source: t.LogicalType, target: t.LogicalType) -> bool:
    """Whether a cast between the two depends on the session time zone."""
    return _has_ltz(source) != _has_ltz(target)


def _has_ltz(type_: t.LogicalType) -> bool:
    match type_:
        case t.TimestampLtzType():
            return True
        case t.ArrayType(element=e) | t.MultisetType(element=e):
            return _has_ltz(e)
        case t.MapType(key=k, value=v):
            return _has_ltz(k) or _has_ltz(v)
        case t.RowType(fields=fields):
            return any(_has_ltz(f.type) for f in fields)
    return False


def cast_expr(
    expr: Expr,
    target: t.LogicalType,
    *,
    line: int = 0,
    column: int = 0,
    within: str = "",
    zone: str = "UTC",
) -> Expr:
    """``expr`` as ``target``: unchanged if the types are equal, else a literal of that type or a CAST call.

    Raises:
        SqlError: SQL has no such cast.
    """
    source = expr.type
    if same_type(source, target):
        return expr
    if not castable(source, target):
        raise SqlError(
            f"cannot cast {source} to {target}",
            expected="a cast that SQL has between these types",
            got=f"CAST({source} AS {target})",
            where=f"line {line}, column {column}" if line else None,
        )
    if isinstance(expr, Literal):
        folded = _cast_literal(expr, target)
        if folded is not None:
            return folded
    args: tuple[Expr, ...] = (expr,)
    if zone != "UTC" and uses_zone(source, target):
        args = (expr, string_literal(zone))
    return Call("CAST", args, target, line, column, within)


def string_literal(text: str) -> Literal:
    """A CHAR literal that is NOT NULL."""
    return Literal(text, t.CharType(max(len(text), 1), nullable=False))


def _cast_literal(literal: Literal, target: t.LogicalType) -> Literal | None:
    """Widens a constant while planning; None if the value must be computed."""
    value, source = literal.value, literal.type
    if value is None:
        return Literal(None, target.with_nullable(True))
    if isinstance(source, t.STRINGS) and isinstance(target, t.VarCharType) and target.length >= len(value):
        return Literal(value, target)
    if isinstance(source, t.INTEGERS):
        if isinstance(target, t.INTEGERS):
            bits = _INTEGER_BITS[type(target)]
            return Literal(value, target) if -(1 << bits - 1) <= value < 1 << bits - 1 else None
        if isinstance(target, t.DoubleType):
            return Literal(float(value), target)
    if isinstance(source, EXACT) and isinstance(target, (t.DecimalType, t.DoubleType)):
        number = decimal_literal_value(literal)
        if isinstance(target, t.DoubleType):
            return Literal(float(number), target)
        if -number.as_tuple().exponent <= target.scale:  # type: ignore[operator]
            return decimal_literal(number, target)
    return None


def decimal_literal_value(literal: Literal) -> Decimal:
    """The number that an exact literal stands for."""
    if isinstance(literal.type, t.DecimalType):
        if literal.type.precision <= t.MAX_UNSCALED_INT64_PRECISION:
            return Decimal(int(literal.value)).scaleb(-literal.type.scale)
        return Decimal(literal.value)
    return Decimal(int(literal.value))


def decimal_literal(number: Decimal, type_: t.DecimalType) -> Literal | None:
    """A DECIMAL literal in storage form; None if the number does not fit exactly."""
    sign, digits, exponent = number.as_tuple()
    shift = type_.scale + int(exponent)
    if shift < 0:
        return None
    unscaled = int("".join(map(str, digits)) or "0") * 10**shift
    if unscaled >= 10**type_.precision:
        return None
    unscaled = -unscaled if sign else unscaled
    if type_.precision <= t.MAX_UNSCALED_INT64_PRECISION:
        return Literal(unscaled, type_)
    return Literal(decimal_text(unscaled, type_.scale), type_)


def decimal_text(unscaled: int, scale: int) -> str:
    """Plain decimal text of ``unscaled * 10**-scale`` (never an exponent)."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = digits if not scale else f"{digits[:-scale]}.{digits[-scale:]}"
    return "-" + text if unscaled < 0 else text


def shared_number(types: Sequence[t.LogicalType], equality: bool) -> t.LogicalType | None:
    """The type in which the first of these numeric types compares with all others just as with each alone.

    None if there is none: a BIGINT loses digits as the DOUBLE that another operand needs, a DECIMAL may as the
    DECIMAL of 38 digits that holds most of all.
    """
    first, *rest = [x.with_nullable(True) for x in types if not isinstance(x, t.NullType)]
    if all(isinstance(x, EXACT) for x in (first, *rest)):
        common = common_type([first, *rest])
        assert common is not None
        return common if all(_holds(common, x) for x in (first, *rest)) else None
    pairs = [comparison_types(first, x, equality) or () for x in rest]
    alone = {type(x) for pair in pairs for x in pair}
    return pairs[0][0] if len(alone) == 1 and issubclass(alone.pop(), APPROXIMATE) else None


def _holds(wide: t.LogicalType, exact: t.LogicalType) -> bool:
    outer, inner = decimal_of(wide), decimal_of(exact)
    return outer.scale >= inner.scale and outer.precision - outer.scale >= inner.precision - inner.scale


def comparison_types(a: t.LogicalType, b: t.LogicalType, equality: bool) -> Sequence[t.LogicalType] | None:
    """The types to which both sides of a comparison are cast; None if they cannot be compared."""
    if t.holds_variant(a) or t.holds_variant(b):
        return None
    if isinstance(a, t.NullType) or isinstance(b, t.NullType):
        other = b if isinstance(a, t.NullType) else a
        return other, other
    if isinstance(a, t.STRINGS) and isinstance(b, t.STRINGS):
        return a, b
    if isinstance(a, NUMERIC) and isinstance(b, NUMERIC):
        approximate_a, approximate_b = isinstance(a, APPROXIMATE), isinstance(b, APPROXIMATE)
        # Flink compares a FLOAT and a DOUBLE for equality in the type of the first, and for order as DOUBLE.
        mixed = type(a) is not type(b) and not equality
        if approximate_a != approximate_b or (approximate_a and mixed):
            return t.DoubleType(), t.DoubleType()
        if isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType):
            return a, b  # the kernel aligns scales
        common = common_numeric(a, b)
        return common, common
    if isinstance(a, t.STRINGS) != isinstance(b, t.STRINGS):
        other = b if isinstance(a, t.STRINGS) else a
        if isinstance(other, NUMERIC) and equality:
            return None
        if isinstance(other, (*NUMERIC, *_TEMPORAL, t.BooleanType)):
            target = t.TimestampType(6) if isinstance(other, t.TimestampType) else other
            return (target, b) if isinstance(a, t.STRINGS) else (a, target)
        return None
    if isinstance(a, (t.ArrayType, t.MapType, t.MultisetType, t.RowType)) and not equality:
        return None
    common_all = common_type([a, b])
    return None if common_all is None else (common_all, common_all)
