"""The implicit casts: which types a table's column or a function's parameter takes without a CAST.

The rules are Flink's ``LogicalTypeCasts.supportsImplicitCast``, with one exception: numbers and intervals are
not cast to each other, because our intervals do not record how many fields they have.
"""

from __future__ import annotations

from penstock.types import logical as t

_NUMBERS = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)

#: Target type → the other types that are cast to it.
_FROM: dict[type, tuple[type, ...]] = {
    t.VarCharType: (t.CharType,),
    t.VarBinaryType: (t.BinaryType,),
    t.DecimalType: _NUMBERS,
    t.SmallIntType: (t.TinyIntType,),
    t.IntType: (t.TinyIntType, t.SmallIntType),
    t.BigIntType: (t.TinyIntType, t.SmallIntType, t.IntType),
    t.FloatType: (*t.INTEGERS, t.DecimalType),
    t.DoubleType: _NUMBERS,
    t.DateType: (t.TimestampType,),
    t.TimeType: (t.TimestampType,),
    t.TimestampType: (t.TimestampLtzType,),
    t.TimestampLtzType: (t.TimestampType,),
}


def assignable(have: t.LogicalType, want: t.LogicalType) -> bool:
    """Whether a value of type ``have`` is cast to ``want`` without a CAST. A nullable type is not assignable to
    a NOT NULL type; a caller that checks NULLs row by row passes ``nullable(want)``."""
    if have.nullable and not want.nullable:
        return False
    if isinstance(have, t.NullType) or have.with_nullable(True) == want.with_nullable(True):
        return True
    if isinstance(have, t.RawType) or isinstance(want, t.RawType):
        return False
    if type(have) is type(want):
        have_parts, want_parts = _parts(have), _parts(want)
        return len(have_parts) == len(want_parts) and all(map(assignable, have_parts, want_parts))
    return type(have) in _FROM.get(type(want), ())


def nullable(type_: t.LogicalType) -> t.LogicalType:
    """The type without NOT NULL, also in its elements and fields."""
    match type_:
        case t.ArrayType(element=element):
            return t.ArrayType(nullable(element))
        case t.MultisetType(element=element):
            return t.MultisetType(nullable(element))
        case t.MapType(key=key, value=value):
            return t.MapType(nullable(key), nullable(value))
        case t.RowType(fields=fields):
            return t.RowType(tuple(t.Field(f.name, nullable(f.type)) for f in fields))
    return type_.with_nullable(True)


def _parts(type_: t.LogicalType) -> tuple[t.LogicalType, ...]:
    match type_:
        case t.ArrayType(element=element) | t.MultisetType(element=element):
            return (element,)
        case t.MapType(key=key, value=value):
            return (key, value)
        case t.RowType(fields=fields):
            return tuple(field.type for field in fields)
    return ()
